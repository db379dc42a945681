"""``opsmith plan``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from opsmith.cli.console import Json, out, print_json
from opsmith.cli.opened import opened_backend
from opsmith.cli.options import BackendArgument, NamedBackend, flag
from opsmith.observe.explain.chain import entry_json, served_operators
from opsmith.plan import NotServed, Plan, Route


def plan(
    backend: BackendArgument = "",
    named: NamedBackend = "",
    route: Annotated[Route | None, typer.Option(help="List the operators on this route.")] = None,
    not_served: Annotated[
        bool, flag("--not-served", "List what of the description no route uses.")
    ] = False,
    libraries: Annotated[
        bool, flag("--libraries", "List which library serves which operator for which dtypes.")
    ] = False,
    json: Json = False,
) -> None:
    """Show how every ATen operator is served on a backend."""
    planned = opened_backend(backend).plan
    if json:
        print_json(_as_json(planned, route))
    elif not_served:
        _print_not_served(planned)
    elif libraries:
        out.print(_libraries(planned))
    elif route is None:
        out.print(
            f"{planned.backend} on torch {planned.torch}: {len(planned.entries):,} operators",
            highlight=False,
        )
        out.print(_counts(planned))
        out.print(
            ", ".join(
                f"{count:,} {place.value}" for place, count in planned.places().items() if count
            )
            + "; composites where their parts are",
            highlight=False,
            soft_wrap=True,
        )
        if intercepted := sum(entry.interception is not None for entry in planned.entries):
            out.print(
                f"{intercepted:,} of the route fallback are composites that are intercepted",
                highlight=False,
            )
        if planned.not_served:
            out.print(
                f"{len(planned.not_served):,} items of the description are not served; list them with "
                "--not-served",
                highlight=False,
            )
        out.print("list one route with --route, one operator with `opsmith explain`", style="dim")
    else:
        out.print(_operators(planned, route))


def _as_json(planned: Plan, route: Route | None) -> dict[str, object]:
    return {
        "backend": planned.backend,
        "torch": planned.torch,
        "operators": [
            entry_json(entry) for entry in planned.entries if route is None or entry.route is route
        ],
        "counts": {counted.value: count for counted, count in planned.counts().items()},
        "places": {place.value: count for place, count in planned.places().items()},
        "not_served": planned.not_served,
    }


def _counts(planned: Plan) -> Table:
    table = Table(header_style="bold")
    table.add_column("route")
    table.add_column("operators", justify="right")
    for route, count in planned.counts().items():
        table.add_row(route.value, f"{count:,}")
    return table


def _libraries(planned: Plan) -> Table:
    served = served_operators(planned)
    table = Table(
        title=f"{planned.backend}: {len(served):,} operators with kernels", header_style="bold"
    )
    table.add_column("operator", no_wrap=True)
    table.add_column("library", no_wrap=True)
    table.add_column("dtypes", overflow="fold")
    for operator in served:
        shown = operator.name
        for link in operator.chain:
            table.add_row(shown, link.library, link.takes)
            shown = ""
        if operator.last_resort:
            table.add_row("", f"({operator.last_resort})", "others", style="dim")
    return table


def _print_not_served(planned: Plan) -> None:
    """Each reason with the places that it holds for."""
    by_reason: dict[str, list[NotServed]] = {}
    for item in planned.not_served:
        by_reason.setdefault(item.why, []).append(item)
    for reason, items in by_reason.items():
        out.print(f"not served: {escape(reason)}", soft_wrap=True, highlight=False)
        for item in items:
            out.print(escape(f"  {item.source}: {item.name}"), soft_wrap=True, highlight=False)


def _operators(planned: Plan, route: Route) -> Table:
    entries = [entry for entry in planned.entries if entry.route is route]
    title = f"{planned.backend}: {len(entries):,} operators on the route {route.value}"
    table = Table(title=title, header_style="bold")
    table.add_column("operator", no_wrap=True)
    table.add_column("where", no_wrap=True)
    table.add_column("why")
    for entry in entries:
        table.add_row(entry.name, entry.where, entry.why)
    return table
