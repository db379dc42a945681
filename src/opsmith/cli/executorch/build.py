"""``opsmith executorch build``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from opsmith.cli.console import Json, out, print_json, shown_progress
from opsmith.cli.executorch.served_forms import form_json, served_forms
from opsmith.cli.options import BackendArgument, NamedBackend, RuntimeKernels, written_to
from opsmith.description import find_backend
from opsmith.executorch.build import BuiltLibrary, build_library
from opsmith.executorch.program import read_program


def build(
    output: Annotated[Path, written_to("The folder for the library.")],
    backend: BackendArgument = "",
    named: NamedBackend = "",
    programs: Annotated[
        list[Path] | None, typer.Option("--for", help="Only what this program uses; repeatable.")
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            help="What to call it: libNAME.so.", show_default="that of the backend, and _executorch"
        ),
    ] = "",
    runtime_kernels: RuntimeKernels = True,
    json: Json = False,
) -> None:
    """Build a backend's kernels into one library for ExecuTorch, all of them or what programs use."""
    read = [read_program(path) for path in programs or ()]
    with shown_progress() as progress:
        built = build_library(
            find_backend(backend),
            read,
            output,
            name=name,
            runtime_kernels=runtime_kernels,
            progress=progress,
        )
    if built.forms:
        out.print(served_forms(built.forms))
    out.print(_sizes(built))
    share = built.text / built.full_text
    out.print(
        f"{built.text:,} bytes of text, {share:.1%} of the full library's {built.full_text:,}",
        highlight=False,
    )
    out.print(f"library  {built.library}", highlight=False, soft_wrap=True)
    if json:
        print_json(
            {
                "library": str(built.library),
                "text": built.text,
                "full_text": built.full_text,
                "kernels": built.kernels,
                "forms": [form_json(each) for each in built.forms],
            }
        )


def _sizes(built: BuiltLibrary) -> Table:
    table = Table(header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("library", no_wrap=True)
    table.add_column("kernel", overflow="fold")
    for column in ("bytes", "alone"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in built.kernels:
        table.add_row(
            each.operator, each.library, each.symbol, f"{each.bytes:,}", f"{each.alone:,}"
        )
    return table
