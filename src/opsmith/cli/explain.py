"""``opsmith explain``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table as Grid

from opsmith.cli.compiled import explain_compiled
from opsmith.cli.console import Json, out, print_json
from opsmith.cli.opened import loaded_backend, may_load, opened_backend
from opsmith.cli.options import Backend, Build, Table, flag, given_backend
from opsmith.observe.explain.chain import entry_json, served_operator
from opsmith.observe.explain.explanation import RELEVANT_KEYS, Explanation
from opsmith.observe.explain.explanation import explain as explanation_of
from opsmith.observe.programs.process import Program
from opsmith.plan import Entry
from opsmith.schema import qualified


def explain(
    context: typer.Context,
    operator: Annotated[
        str, typer.Argument(help="An operator with its overload, e.g. add_.Tensor.")
    ] = "",
    arguments: Annotated[
        list[str] | None, typer.Argument(help="With --compile: the program's own.")
    ] = None,
    backend: Backend = "",
    compile: Annotated[
        str,
        typer.Option(
            metavar="PROGRAM", help="Run this program and explain how its graphs were compiled."
        ),
    ] = "",
    table: Table = True,
    build: Build = False,
    all_keys: Annotated[bool, flag("--all-keys", "Show every dispatch key.")] = False,
    json: Json = False,
) -> None:
    """Explain how one operator is served on a backend, and why; or what torch.compile makes of a program.

    With --compile, exits with the program's own status.
    """
    if compile:
        words = [operator, *(arguments or ())] if operator else ()
        explain_compiled(Program(compile, tuple(words)), given_backend(context, backend), json)
    if not operator or arguments:
        raise typer.BadParameter("name one operator, or a program after --compile")
    opened = opened_backend(backend)
    planned = opened.plan
    planned.entry(operator)  # an unknown name fails before anything is built
    loaded = table and may_load(opened, build)
    if loaded:
        planned = loaded_backend(backend).plan
    explanation = explanation_of(planned, operator, loaded=loaded)
    if json:
        print_json(_as_json(explanation))
        return
    out.print(_facts(explanation, planned.backend))
    rows = [row for row in explanation.table if all_keys or row.key in RELEVANT_KEYS]
    if rows:
        shown = Grid(title="dispatch table", header_style="bold")
        for column in ("key", "kernel", "registered as"):
            shown.add_column(column, overflow="fold")
        for row in rows:
            shown.add_row(row.key, row.location, row.kind)
        out.print(shown)


_NO_CPU_KERNEL = "refused, as there is no CPU kernel to fall back on"


def _as_json(explanation: Explanation) -> dict[str, object]:
    entry = explanation.entry
    return {
        "name": entry.name,
        "schema": explanation.schema,
        **entry_json(entry),
        "cannot_fall_back": explanation.cannot_fall_back,
        "autograd": _autograd(entry),
        "autocast": explanation.autocast.why if explanation.autocast else None,
        "meta": explanation.meta.why if explanation.meta else None,
        "dispatch_table": [
            {"key": row.key, "kernel": row.kernel, "kind": row.kind} for row in explanation.table
        ],
    }


def _facts(explanation: Explanation, backend: str) -> Grid:
    entry = explanation.entry
    facts = Grid.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("operator", f"{qualified(entry.name)} on {backend}")
    facts.add_row("schema", explanation.schema)
    facts.add_row("route", entry.route.value)
    if entry.where:
        facts.add_row("computed", entry.where)
    facts.add_row("source", entry.source)
    if entry.library:
        facts.add_row("library", entry.library)
    facts.add_row("why", entry.why)
    served = served_operator(entry)
    if entry.next:
        chain = [
            f"{link.takes}: {link.kernel} ({link.library}), {link.place}" for link in served.chain
        ]
        others = _NO_CPU_KERNEL if explanation.cannot_fall_back else served.last_resort
        chain += [f"others: {others}"] if others else []
        facts.add_row("chain", "\n".join(chain))
    elif explanation.cannot_fall_back:
        facts.add_row("fallback", _NO_CPU_KERNEL)
    if autograd := _autograd(entry):
        facts.add_row("autograd", autograd)
    if explanation.autocast:
        facts.add_row("autocast", explanation.autocast.why)
    if explanation.meta:
        facts.add_row("meta", explanation.meta.why)
    return facts


def _autograd(entry: Entry) -> str:
    """The text about the operator's gradient, if any."""
    if entry.autograd:
        return entry.autograd.why
    return entry.interception.why if entry.interception else ""
