"""``opsmith executorch``: programs of ExecuTorch and the kernel libraries that serve them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from opsmith.cli.console import Json, many, out, print_json, shown_progress
from opsmith.description import find_backend
from opsmith.executorch.build import BuiltLibrary, build_library
from opsmith.executorch.export import ModuleToExport, export_program
from opsmith.executorch.program import read_program
from opsmith.executorch.run import RUNTIME, ProgramRun, ServedCall, run_program
from opsmith.executorch.selection import Selection, select
from opsmith.inspect.module_program import made_by_factory
from opsmith.plan.executorch import ServedForm

executorch = typer.Typer(
    no_args_is_help=True, help="Programs of ExecuTorch and the kernel libraries that serve them."
)

_Backend = Annotated[str, typer.Argument(help="A shipped backend, or a backend.yaml.")]


@executorch.callback()
def _commands() -> None:
    """A group, so that its commands keep their names."""


@executorch.command("export")
def export_module(
    factory: Annotated[
        str, typer.Argument(help="MODULE:FUNCTION, which returns (model, example_inputs).")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The program to write, a .pte.")],
    backend: Annotated[str, typer.Option(help="Whose kernels it will run with.")] = "sim",
    json: Json = False,
) -> None:
    """Export a module as a program, and keep its example inputs beside it."""
    made = made_by_factory(factory, (), train=False)
    what = ModuleToExport(
        factory, made.placed("cpu"), made.inputs, made.keywords, made.dynamic_shapes
    )
    with shown_progress() as progress:
        exported = export_program(what, output, find_backend(backend), progress=progress)
    out.print(_served_forms(exported.forms))
    if exported.preserved:
        out.print(f"not decomposed: {', '.join(exported.preserved)}", highlight=False)
    out.print(f"program  {exported.program}", highlight=False, soft_wrap=True)
    out.print(f"graph    {exported.graph}", highlight=False, soft_wrap=True)
    if json:
        print_json(
            {
                "program": str(exported.program),
                "graph": str(exported.graph),
                "preserved": exported.preserved,
                "forms": [_form_json(each) for each in exported.forms],
            }
        )


@executorch.command("build")
def build(
    backend: _Backend,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the library.")],
    programs: Annotated[
        list[Path] | None, typer.Option("--for", help="Only what this program uses; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Build a backend's kernels into one library for ExecuTorch, all of them or what programs use."""
    read = [read_program(path) for path in programs or ()]
    with shown_progress() as progress:
        built = build_library(find_backend(backend), read, output, progress=progress)
    if built.forms:
        out.print(_served_forms(built.forms))
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
                "forms": [_form_json(each) for each in built.forms],
            }
        )


@executorch.command("run")
def run(
    program: Annotated[Path, typer.Argument(help="The program, a .pte.")],
    libraries: Annotated[
        list[Path] | None,
        typer.Option("--library", help="A kernel library, or the folder with it; repeatable."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option("--input", help="Inputs that torch.save wrote; else the example inputs."),
    ] = None,
    method: Annotated[str, typer.Option(help="Which method to run.")] = "forward",
    json: Json = False,
) -> None:
    """Run a program, say which library serves each instruction, compare with eager and time both."""
    with shown_progress() as progress:
        ran = run_program(program, libraries or (), inputs, method, progress=progress)
    out.print(_instructions(ran.calls))
    if ran.delegates:
        out.print(f"the rest is delegated: {', '.join(ran.delegates)}", highlight=False)
    out.print(f"outputs     {', '.join(ran.outputs)}", highlight=False, markup=False)
    out.print(f"difference  {_difference(ran)}", highlight=False, markup=False)
    out.print(f"time        {_times(ran)}", highlight=False)
    if json:
        print_json(
            {
                "max_difference_from_eager": ran.difference,
                "served_by": ran.served_by,
                "ms": ran.ms,
                "eager_ms": ran.eager_ms,
            }
        )


@executorch.command("select")
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


def _table(selection: Selection) -> Table:
    table = Table(header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("Tensors: dtype(dim order)", overflow="fold")
    table.add_column("calls", justify="right", no_wrap=True)
    for use in selection.kernels:
        table.add_row(use.operator, " ".join(map(str, use.tensors)), f"{use.calls:,}")
    return table


def _served_forms(forms: Iterable[ServedForm]) -> Table:
    table = Table(header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("Tensors: dtype(dim order)", overflow="fold")
    table.add_column("library", no_wrap=True)
    table.add_column("why", overflow="fold")
    for each in forms:
        tensors = " ".join(map(str, each.form.tensors))
        table.add_row(each.form.operator, tensors, _library(each), escape(each.why))
    return table


def _library(each: ServedForm) -> str:
    if each.kernel is not None:
        return each.kernel.library
    return RUNTIME if each.backup else "[bold red]none[/]"


def _form_json(each: ServedForm) -> dict[str, object]:
    return {
        "operator": each.form.operator,
        "key": each.form.key,
        "library": each.kernel.library if each.kernel else RUNTIME if each.backup else None,
        "backup": RUNTIME if each.backup and each.kernel else None,
        "why": each.why,
    }


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


def _instructions(calls: Iterable[ServedCall]) -> Table:
    table = Table(header_style="bold")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("operator", overflow="fold")
    table.add_column("Tensors: dtype(dim order)", overflow="fold")
    table.add_column("library", no_wrap=True)
    for index, call in enumerate(calls):
        tensors = " ".join(map(str, call.form.tensors))
        table.add_row(str(index), call.form.operator, tensors, call.library)
    return table


def _difference(ran: ProgramRun) -> str:
    if ran.difference is None:
        return f"not known: {ran.not_compared}"
    where = "" if ran.eager_device == "cpu" else f" on {ran.eager_device}"
    return f"{ran.difference:.3g} at most from eager{where}"


def _times(ran: ProgramRun) -> str:
    eager = "" if ran.eager_ms is None else f", eager {ran.eager_ms:.3g} ms"
    calls = many(ran.timed, "call")
    return f"{ran.ms:.3g} ms{eager}: medians of {calls}, {many(ran.threads, 'thread')}"
