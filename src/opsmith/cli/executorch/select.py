"""``opsmith executorch select``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from opsmith.cli.console import Json, many, out, print_json
from opsmith.executorch.program import read_program
from opsmith.executorch.selected_kernels import KernelSelection, select


def select_kernels(
    programs: Annotated[list[Path], typer.Argument(help="Programs, as .pte files.")],
    json: Json = False,
) -> None:
    """List the operators that programs use, by the dtypes and dim orders of their Tensors."""
    selection = select(read_program(path) for path in programs)
    out.print(_table(selection))
    files = many(len(selection.programs), "program")
    out.print(
        f"{many(len(selection.operators), 'operator')} in {many(len(selection.kernels), 'form')}, "
        f"of {files}",
        highlight=False,
    )
    if selection.delegates:
        out.print(f"the rest is delegated: {', '.join(selection.delegates)}", highlight=False)
    if json:
        print_json(selection)


def _table(selection: KernelSelection) -> Table:
    table = Table(header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("Tensors: dtype(dim order)", overflow="fold")
    table.add_column("calls", justify="right", no_wrap=True)
    for use in selection.kernels:
        table.add_row(use.operator, " ".join(map(str, use.tensors)), f"{use.calls:,}")
    return table
