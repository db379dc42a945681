"""The table, and the JSON, of what serves each form that a program calls."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from opsmith.executorch.run import RUNTIME
from opsmith.plan.executorch.built_libraries import BuiltForm
from opsmith.plan.executorch.resolver import ServedForm


def served_forms(
    forms: Sequence[ServedForm | BuiltForm], calls: Sequence[int] | None = None
) -> Table:
    """One row for each form: who serves it, and why; with ``calls``, how often it is called too."""
    table = Table(header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("Tensors: dtype(dim order)", overflow="fold")
    if calls is not None:
        table.add_column("calls", justify="right", no_wrap=True)
    table.add_column("library", no_wrap=True)
    table.add_column("why", overflow="fold")
    for place, each in enumerate(forms):
        tensors = " ".join(map(str, each.form.tensors))
        count = [] if calls is None else [f"{calls[place]:,}"]
        table.add_row(each.form.operator, tensors, *count, _library(each), escape(_why(each)))
    return table


def form_json(each: ServedForm | BuiltForm) -> dict[str, object]:
    """One form, in plain values."""
    return {
        "operator": each.form.operator,
        "key": each.form.key,
        "library": each.kernel.library if each.kernel else RUNTIME if each.in_runtime else None,
        "next": RUNTIME if each.in_runtime and each.kernel else None,
        "why": _why(each),
    }


def _why(each: ServedForm | BuiltForm) -> str:
    return each.why if each.nearest is None else f"nearest: {each.nearest}"


def _library(each: ServedForm | BuiltForm) -> str:
    if each.kernel is not None:
        return each.kernel.library
    return RUNTIME if each.in_runtime else "[bold red]none[/]"
