"""``opsmith executorch run``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from opsmith.cli.console import Json, many, out, print_json, shown_progress
from opsmith.cli.options import Libraries, Program
from opsmith.executorch.run import ProgramRun, ServedCall, run_program


def run(
    program: Program,
    libraries: Libraries = None,
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
