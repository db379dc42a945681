"""The end of a command whose program loaded no backend, or left no record of what it did with one."""

from __future__ import annotations

from typing import NoReturn

import typer
from rich.markup import escape

from opsmith.cli.console import err
from opsmith.cli.options import likely_backend
from opsmith.errors import LoadError
from opsmith.observe.programs.process import Program


def end_unrecorded(program: Program, command: str, status: int, left: str = "") -> NoReturn:
    """Exits with the program's ``status``, of which stderr is told what it has ``left``.

    Raises :class:`LoadError` where the program ended well, since then it loaded no backend.
    """
    if status == 0:
        raise LoadError(
            f"`{program.name}` loaded no backend, so nothing was counted",
            remedy=f'call opsmith.load("{likely_backend()}") in it, or have one loaded for it: '
            f"opsmith {command} --backend {likely_backend()} {program.name}",
        )
    if left:
        said = f"{program.name} ended with status {status} and left {left}"
        err.print(escape(said), soft_wrap=True, highlight=False)
    raise typer.Exit(status)
