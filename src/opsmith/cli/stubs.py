"""``opsmith stubs``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from opsmith.cli.console import Json, out, print_json
from opsmith.observe.explain.stubs import StubRow, stub_rows


def stubs(
    name: Annotated[
        str, typer.Argument(help="Show the stubs with this in their name or an operator's.")
    ] = "",
    json: Json = False,
) -> None:
    """List PyTorch's DispatchStubs and the operators that filling each would serve."""
    rows = stub_rows(name)
    if json:
        print_json(rows)
        return
    out.print(_table(rows))
    served = sum(row.served for row in rows)
    operators = {operator for row in rows for operator in row.operators}
    out.print(
        f"{len(rows)} stubs; opsmith serves {len(operators)} operators through {served} of them",
        highlight=False,
    )


def _table(rows: list[StubRow]) -> Table:
    table = Table(header_style="bold")
    table.add_column("stub", overflow="fold")
    table.add_column("type, header", overflow="fold")
    table.add_column("serves", overflow="fold")
    for row in rows:
        serves = ", ".join(row.operators) if row.served else f"nothing: {row.obstacle}"
        table.add_row(
            row.name,
            escape(f"{row.signature}\n{row.header}"),
            escape(serves),
            style=None if row.served else "dim",
        )
    return table
