"""``opsmith keys``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from opsmith.cli.console import Json, out, print_json
from opsmith.cli.opened import loaded_backend
from opsmith.cli.options import Backend
from opsmith.observe.explain.keys import keys_of
from opsmith.schema import read_catalogue


def keys(
    expression: Annotated[
        str, typer.Argument(help="Python that gives a Tensor: \"torch.ones(2, device='sim')\".")
    ],
    operator: Annotated[
        str, typer.Option(help="Show what this operator has at each key, e.g. add.Tensor.")
    ] = "",
    backend: Backend = "",
    json: Json = False,
) -> None:
    """Show a Tensor's dispatch keys, in the order in which the dispatcher tries them."""
    catalogue = read_catalogue()
    loaded_backend(backend)
    rows = keys_of(expression, operator, catalogue)
    if json:
        print_json({"expression": expression, "operator": operator, "keys": rows})
        return
    table = Table(header_style="bold")
    for column in ("key", "brought by", "meaning", *(["kernel"] if operator else [])):
        table.add_column(column, overflow="fold")
    for row in rows:
        cells = [row.key, row.origin if row.active else f"{row.origin}; left out now", row.meaning]
        table.add_row(*map(escape, [*cells, *([row.kernel] if operator else [])]))
    out.print(table)
