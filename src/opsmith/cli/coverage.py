"""``opsmith coverage``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from opsmith import conformance
from opsmith.base.cache_folder import cache_root
from opsmith.cli.conformance_results import shown_standing
from opsmith.cli.console import Json, err, many, out, print_json, write_json
from opsmith.cli.opened import loaded_backend, opened_backend
from opsmith.cli.options import Arguments, default_backend, written_to
from opsmith.cli.unrecorded import end_unrecorded
from opsmith.conformance.record import latest_results
from opsmith.observe.programs.coverage import (
    Coverage,
    ProgramCoverage,
    backend_coverage,
    entries_coverage,
    program_coverage,
    run_recorded,
)
from opsmith.observe.programs.module import ModuleProgram, made_by_factory, read_exported
from opsmith.observe.programs.process import Program
from opsmith.plan import OpenedBackend, Place, Route, plan_backend
from opsmith.schema import read_catalogue

_SHOWN_OPERATORS = 20
_EXPORTED = ".pt2"


def coverage(
    program: Annotated[
        str | None, typer.Argument(help="A Python file, a module with -m, or an exported .pt2.")
    ] = None,
    arguments: Arguments = None,
    python_module: Annotated[bool, typer.Option("-m", help="PROGRAM is a Python module.")] = False,
    module: Annotated[
        str | None,
        typer.Option(help="A factory of a torch.nn.Module, such as transformers:BertModel."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="An input of the module: 1x3x32x32, 1x16:int64; repeatable."),
    ] = None,
    train: Annotated[bool, typer.Option(help="Run the module's backward too.")] = False,
    backend: Annotated[
        str | None,
        typer.Option(help="A shipped backend, or a backend.yaml; else the program's own."),
    ] = None,
    opinfo: Annotated[
        bool, typer.Option(help="Of a backend: run OpInfo's entries too, where they never were.")
    ] = True,
    share: Annotated[
        float,
        typer.Option(min=0, max=1, help="The share of the CPU's time to write kernels for."),
    ] = 0.95,
    output: Annotated[Path | None, written_to("Write a program's coverage, as JSON.")] = None,
    json: Json = False,
) -> None:
    """Show how much of PyTorch a backend serves; or of a program, by time, and which kernels to write next.

    Exits with the program's own status if that is not 0.
    """
    if program is None and module is None:
        _show_backend(backend or default_backend(), opinfo, json)
        return
    if module is not None:
        found = _of_module(
            made_by_factory(module, inputs or (), train=train), backend, train, share
        )
    elif program is not None and program.endswith(_EXPORTED):
        found = _of_module(read_exported(Path(program), inputs or ()), backend, train, share)
    else:
        assert program is not None
        found = _of_program(Program(program, tuple(arguments or ()), python_module), backend, share)
    if output is not None:
        write_json(output, found)
    _print(found)
    if json:
        print_json(found)
    raise typer.Exit(found.status)


def _of_program(program: Program, backend: str | None, share: float) -> ProgramCoverage:
    status, description, calls, registered = run_recorded(program, backend=backend)
    if description is None:
        left = "no record: it loaded no backend, or could not write one"
        end_unrecorded(program, "coverage", status, left)
    planned = plan_backend(description, cache_root()).replacing(registered)
    return program_coverage(program.name, status, calls, planned, read_catalogue(), share)


def _of_module(
    program: ModuleProgram, backend: str | None, train: bool, share: float
) -> ProgramCoverage:
    loaded = loaded_backend(backend or default_backend())
    calls = program.record(loaded.name, train=train)
    return program_coverage(program.name, 0, calls, loaded.plan, read_catalogue(), share)


def _show_backend(backend: str, opinfo: bool, json: bool) -> None:
    opened = opened_backend(backend)
    plan = opened.plan
    sets = backend_coverage(plan, opened.catalogue)
    if opinfo:
        sets = (*sets, entries_coverage("OpInfo entries", _entries(opened), plan))
    out.print(_table(backend, sets))
    if json:
        print_json({"backend": backend, "coverage": sets})


def _entries(opened: OpenedBackend) -> Mapping[str, tuple[str, ...]]:
    """The operators that OpInfo's entries call, from the latest conformance run, or from a short one."""
    known = latest_results(opened.path)
    if known is not None and known.operators:
        return known.operators
    err.print(
        "finding out what OpInfo's entries call: one input of each, in float32", soft_wrap=True
    )
    with shown_standing() as (report, building):
        outcome = conformance.run(
            str(opened.path),
            dtypes=["float32"],
            checks=["forward"],
            samples=1,
            report=report,
            building=building,
        )
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.results.operators


def _table(backend: str, sets: tuple[Coverage, ...]) -> Table:
    table = Table(title=f"how {backend} serves PyTorch's operators", header_style="bold")
    table.add_column("route", no_wrap=True)
    for each in sets:
        table.add_column(each.name, justify="right", no_wrap=True)
    for route in Route:
        if any(each.routes[route.value] for each in sets):
            table.add_row(route.value, *(_of(each.routes[route.value], each) for each in sets))
    table.add_section()
    table.add_row("all", *(f"{each.total:,}" for each in sets))
    for place in Place:
        table.add_row(place.value, *(_of(each.places[place.value], each) for each in sets))
    unknown = [each.total - each.refused - sum(each.places.values()) for each in sets]
    if any(unknown):
        table.add_row("in parts not known", *map(_of, unknown, sets))
    table.add_row("come to the fallback", *(_of(each.on_cpu, each) for each in sets))
    table.add_row("come to an error", *(_of(each.refused, each) for each in sets))
    return table


def _of(count: int, coverage: Coverage) -> str:
    return f"{count:,} {count / coverage.total:>4.0%}" if coverage.total else "0"


def _print(found: ProgramCoverage) -> None:
    title = f"{found.program} on {found.backend}: {found.calls:,} calls, {_ms(found.seconds)} ms in them"
    table = Table(title=title, header_style="bold")
    table.add_column("route", no_wrap=True)
    table.add_column("where", no_wrap=True)
    for column in ("operators", "calls", "ms", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    for use in found.routes:
        table.add_row(
            use.route,
            use.place,
            f"{use.operators:,}",
            f"{use.calls:,}",
            _ms(use.seconds),
            _share(use.seconds, found.seconds),
        )
    out.print(table)
    calls, seconds = found.at(Place.DEVICE)
    out.print(
        f"{Place.DEVICE.value}: {_share(calls, found.calls)} of the calls, "
        f"{_share(seconds, found.seconds)} of the time",
        highlight=False,
    )
    _print_operators(found)
    if found.elsewhere:
        out.print(f"{found.elsewhere:,} calls were on Tensors of other devices", highlight=False)
    if not found.kernels:
        out.print("no operator ran on the CPU in the device's place")
        return
    saved = sum(kernel.seconds for kernel in found.kernels)
    who = "it" if len(found.kernels) == 1 else "together they"
    out.print(
        f"\n{many(len(found.kernels), 'kernel')} to write next; {who} would take "
        f"{_share(saved, found.host_seconds)} of the time on the CPU off it:",
        highlight=False,
        soft_wrap=True,
    )
    for number, kernel in enumerate(found.kernels, 1):
        names = ", ".join(kernel.operators)
        out.print(
            f"[bold]{number}.[/] at most {_ms(kernel.seconds)} ms in {many(kernel.calls, 'call')}: "
            f"{escape(names)}",
            highlight=False,
            soft_wrap=True,
        )
        out.print(escape(kernel.remedy), highlight=False, soft_wrap=True)


def _print_operators(found: ProgramCoverage) -> None:
    table = Table(header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("route", no_wrap=True)
    copies = any(use.bytes_moved for use in found.operators)
    columns = ("calls", "fell back", *(["on copies"] if copies else []), "ms", "share")
    for column in (*columns, *(["MB moved"] if copies else [])):
        table.add_column(column, justify="right", no_wrap=True)
    for use in found.operators[:_SHOWN_OPERATORS]:
        table.add_row(
            use.name,
            use.route,
            f"{use.calls:,}",
            f"{use.fell_back:,}" if use.fell_back else "",
            *([f"{use.on_copies:,}" if use.on_copies else ""] if copies else []),
            _ms(use.seconds),
            _share(use.seconds, found.seconds),
            *([f"{use.bytes_moved / 1e6:,.1f}"] if copies else []),
        )
    out.print(table)
    if (more := len(found.operators) - _SHOWN_OPERATORS) > 0:
        out.print(f"and {many(more, 'operator')} more: --json has all", highlight=False)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0%"
