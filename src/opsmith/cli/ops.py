"""``opsmith ops``: the operators, and one of them in full."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from opsmith.cli.console import Json, err, out, print_json
from opsmith.cli.opened import loaded_backend, may_load, opened_backend
from opsmith.cli.options import Backend, Build
from opsmith.conformance.build_digest import digest_at_hand, staleness
from opsmith.conformance.record import latest_results
from opsmith.observe.explain.explanation import dispatch_table
from opsmith.observe.explain.operators import (
    DispatchStop,
    OperatorFacts,
    OperatorFilter,
    dispatch_path,
    gather,
)
from opsmith.observe.explain.verdicts import OperatorVerdicts, verdicts_of
from opsmith.schema import qualified

ops = typer.Typer(invoke_without_command=True)


@ops.callback()
def list_operators(
    context: typer.Context,
    search: Annotated[str, typer.Option("--search", "-s", help="Part of a name.")] = "",
    route: Annotated[str, typer.Option(help="kernel, derived, composite, fallback, …")] = "",
    place: Annotated[
        str, typer.Option(help="on the device; on the host, in place; on the host, on copies.")
    ] = "",
    tag: Annotated[str, typer.Option(help="core, pointwise, view, …")] = "",
    variant: Annotated[str, typer.Option(help="functional, in-place, out, …")] = "",
    library: Annotated[str, typer.Option(help="Served by a kernel of this library.")] = "",
    dtype: Annotated[str, typer.Option(help="Served by a kernel that takes it: Float, …")] = "",
    composite: Annotated[str, typer.Option(help="CompositeImplicitAutograd, …")] = "",
    differentiable: Annotated[
        str, typer.Option(help="formula, parts, discrete, description or no.")
    ] = "",
    stub: Annotated[str, typer.Option(help="Served through this DispatchStub.")] = "",
    structured: Annotated[
        bool | None, typer.Option("--structured/--unstructured", help="By PyTorch's meta function.")
    ] = None,
    backend: Backend = "",
    json: Json = False,
) -> None:
    """List the operators of a backend with what is known of each; `opsmith ops show OP` has all."""
    if context.invoked_subcommand is not None:
        return
    chosen = OperatorFilter(
        search,
        route,
        place,
        tag,
        variant,
        library,
        dtype,
        composite,
        differentiable,
        stub,
        structured,
    ).choose(gather(opened_backend(backend)))
    if json:
        print_json({"backend": backend, "operators": chosen})
        return
    table = Table(title=_title(len(chosen)), header_style="bold")
    table.add_column("operator", no_wrap=True)
    for column in ("route", "where", "variant", "gradient", "dtypes", "tags"):
        table.add_column(column, overflow="fold")
    for facts in chosen:
        table.add_row(
            facts.name,
            facts.route,
            facts.place,
            facts.variant,
            facts.differentiable,
            ", ".join(facts.dtypes) or ("all" if facts.library else ""),
            ", ".join(facts.tags),
        )
    out.print(table)


@ops.command()
def show(
    operator: Annotated[str, typer.Argument(help="With its overload, e.g. add.Tensor.")],
    backend: Backend = "",
    build: Build = False,
    json: Json = False,
) -> None:
    """Show one operator in full: schema, group, kernels, and its path through the dispatcher."""
    opened = opened_backend(backend)
    name = opened.plan.entry(operator).name
    facts = next(facts for facts in gather(opened) if facts.name == name)
    stops: tuple[DispatchStop, ...] = ()
    if may_load(opened, build):
        loaded_backend(backend)
        stops = dispatch_path(dispatch_table(qualified(name)))
    results = latest_results(opened.path)
    if results and (stale := staleness(results, digest_at_hand(opened.path))):
        err.print(f"the latest results are stale: {stale}", soft_wrap=True, markup=False)
        results = None
    tests = None if results is None else verdicts_of(name, results, opened.plan)
    if json:
        print_json({"operator": facts, "dispatch_path": stops, "tests": tests})
        return
    out.print(_grid(facts, _in_words(tests, backend)))
    for verdict in () if tests is None else tests.bad:
        out.print(
            f"[bold red]{verdict.status.value}[/]: {escape(verdict.entry)} {verdict.dtype} "
            f"{verdict.check.value}: {escape(verdict.message)}",
            soft_wrap=True,
            highlight=False,
        )
    table = Table(title="a call on the device", header_style="bold")
    for column in ("key", "what happens", "kernel"):
        table.add_column(column, overflow="fold")
    for stop in stops:
        table.add_row(*map(escape, (stop.key, stop.what, stop.location)))
    out.print(table)


def _title(count: int) -> str:
    return "1 operator" if count == 1 else f"{count:,} operators"


def _in_words(tests: OperatorVerdicts | None, backend: str) -> str:
    if tests is None:
        return f"none were run: opsmith conform --backend {backend}"
    if not tests.entries:
        return "no entry of OpInfo that was run is about it"
    counts = ", ".join(f"{count:,} {status}" for status, count in tests.counts.items())
    return f"{counts} ({', '.join(tests.entries)})"


def _grid(facts: OperatorFacts, tests: str) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    rows = {
        "operator": qualified(facts.name),
        "schema": facts.schema,
        "route": f"{facts.route}: {facts.why}",
        "computed": facts.place,
        "variant": facts.variant,
        "group": ", ".join(facts.variants),
        "checked by": "PyTorch's structured meta function" if facts.structured else "",
        "composite": facts.composite,
        "gradient": facts.differentiable,
        "stubs": ", ".join(facts.stubs),
        "dtypes": ", ".join(facts.dtypes) or ("all" if facts.library else ""),
        "tags": ", ".join(facts.tags),
        "kernels": "\n".join(facts.kernels),
        "tests": tests,
    }
    for name, value in rows.items():
        if value:
            grid.add_row(name, escape(value))
    return grid
