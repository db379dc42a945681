"""``opsmith import``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from opsmith.base.output_files import write_output
from opsmith.cli.console import err
from opsmith.cli.options import flag, written_to
from opsmith.description import FLAG_GEMS, import_flag_gems, import_library
from opsmith.errors import OutputRejected
from opsmith.schema import read_catalogue


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="torchgen's backend YAML, op-plugin's, ExecuTorch's functions.yaml, or flag_gems."
        ),
    ],
    output: Annotated[Path | None, written_to("Write this file, not standard output.")] = None,
    force: Annotated[bool, flag("--force", "Overwrite the output.")] = False,
) -> None:
    """Turn a kernel library that torchgen, op-plugin, ExecuTorch or FlagGems describes into a manifest."""
    if output is not None and output.exists() and not force:
        raise OutputRejected(
            f"{output} exists already", remedy="write another file, or overwrite it with --force"
        )
    is_package = str(file) == FLAG_GEMS and not file.exists()
    catalogue = read_catalogue()
    imported = import_flag_gems(catalogue) if is_package else import_library(file, catalogue)
    for reason, items in imported.by_reason().items():
        err.print(f"not carried over: {escape(reason)}", soft_wrap=True, highlight=False)
        for item in items:
            err.print(escape(f"  {item.location}: {item.name}"), soft_wrap=True, highlight=False)
    if output is None:
        sys.stdout.write(imported.text)
        return
    write_output(output, imported.text.encode())
