"""The table, and the JSON, of what serves each form that a program calls."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from opsmith.executorch.run import RUNTIME
from opsmith.plan.executorch.resolver import ServedForm


def served_forms(forms: Iterable[ServedForm]) -> Table:
    """One row for each form: who serves it, and why."""
    table = Table(header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("Tensors: dtype(dim order)", overflow="fold")
    table.add_column("library", no_wrap=True)
    table.add_column("why", overflow="fold")
    for each in forms:
        tensors = " ".join(map(str, each.form.tensors))
        table.add_row(each.form.operator, tensors, _library(each), escape(each.why))
    return table


def form_json(each: ServedForm) -> dict[str, object]:
    """One form, in plain values."""
    return {
        "operator": each.form.operator,
        "key": each.form.key,
        "library": each.kernel.library if each.kernel else RUNTIME if each.in_runtime else None,
        "next": RUNTIME if each.in_runtime and each.kernel else None,
        "why": each.why,
    }


def _library(each: ServedForm) -> str:
    if each.kernel is not None:
        return each.kernel.library
    return RUNTIME if each.in_runtime else "[bold red]none[/]"
