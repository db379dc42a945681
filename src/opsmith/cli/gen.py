"""``opsmith gen``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opsmith.cli.console import Json, out, print_json
from opsmith.cli.options import BackendArgument, NamedBackend, flag, written_to
from opsmith.emit import emit
from opsmith.emit.folder import compare, out_of_date, update
from opsmith.plan import open_backend


def gen(
    backend: BackendArgument = "",
    named: NamedBackend = "",
    output: Annotated[Path, written_to("The folder for the generated files.")] = Path("generated"),
    check: Annotated[
        bool, flag("--check", "Write nothing; fail where the folder is out of date.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a backend's generated C++ to a folder, without compiling it."""
    opened = open_backend(backend)
    # Places are given relative to the description, so that every checkout gets the same bytes.
    plan = opened.compiled_plan.relative_to(opened.path.parent)
    files = emit(plan)
    found = (compare if check else update)(files, output, plan.backend)
    if json:
        print_json(
            {
                "folder": str(output),
                "files": [file.name for file in files],
                "missing": found.missing,
                "changed": found.changed,
                "superfluous": found.superfluous,
                "up_to_date": not (check and found),
            }
        )
    elif check and found:
        raise out_of_date(found, output, ["opsmith", "gen", backend, "-o", str(output)])
    elif check:
        out.print(f"{output} is up to date", highlight=False, soft_wrap=True)
    else:
        written = len(found.missing) + len(found.changed)
        removed = f", {len(found.superfluous)} removed" if found.superfluous else ""
        out.print(
            f"{output}: {len(files)} files, {written} written{removed}",
            highlight=False,
            soft_wrap=True,
        )
    if check and found:
        raise typer.Exit(1)
