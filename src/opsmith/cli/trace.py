"""``opsmith trace``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from opsmith.base.output_files import check_writable, write_output
from opsmith.cli.console import Json, err, fail, print_json, shown_progress
from opsmith.cli.options import Arguments, LoadedBackend, ProgramName, flag, written_to
from opsmith.errors import OpsmithError
from opsmith.observe.programs.process import Program
from opsmith.observe.programs.trace import ProgramTrace, check_filter, check_met, trace_program
from opsmith.runtime.records.trace.recording import LIMIT, Request
from opsmith.runtime.records.trace.short import short, touches_device
from opsmith.runtime.records.trace.shown import perfetto, rows, table, text
from opsmith.runtime.records.trace.traced_calls import TraceFilter, totals
from opsmith.schema import read_catalogue


class TraceFormat(Enum):
    """How the trace is shown."""

    TEXT = "text"
    PERFETTO = "perfetto"
    TABLE = "table"


Operators = Annotated[
    list[str] | None, typer.Option(help="Only this one, such as add or conv*; repeatable.")
]
Keys = Annotated[
    list[str] | None, typer.Option(help="Only kernels at this dispatch key; repeatable.")
]
Routes = Annotated[list[str] | None, typer.Option(help="Only kernels of this route; repeatable.")]
Modules = Annotated[
    list[str] | None,
    typer.Option(help="Only what runs in this module's forward and backward; repeatable."),
]
Depth = Annotated[int | None, typer.Option(min=1, help="Only this many levels of nesting.")]
All = Annotated[bool, flag("--all", "All calls, those inside of others and off the device too.")]
Format = Annotated[
    TraceFormat | None,
    typer.Option(help="text, perfetto (for ui.perfetto.dev) or table (sums of calls)."),
]
Output = Annotated[Path | None, written_to("Write to this file; .json: perfetto.")]


def trace(
    program: ProgramName,
    arguments: Arguments = None,
    is_module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module.")] = False,
    backend: LoadedBackend = None,
    operator: Operators = None,
    key: Keys = None,
    route: Routes = None,
    module: Modules = None,
    depth: Depth = None,
    all_calls: All = False,
    shapes: Annotated[bool, typer.Option(help="Record the tensors among the arguments.")] = True,
    limit: Annotated[int, typer.Option(min=1, help="Record at most this many calls.")] = LIMIT,
    format: Format = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Run a program and show the kernels that PyTorch's dispatcher ran on its device, with key and route.

    In short: --all, and options that ask for certain calls, show all that ran inside of a call, nested.
    Exits with the program's own status.
    """
    chosen = TraceFilter(tuple(operator or ()), tuple(key or ()), tuple(route or ()), depth)
    check_filter(chosen, read_catalogue())
    if output is not None:
        check_writable(output)
    if format is None:
        is_json = output is not None and output.suffix == ".json"
        format = TraceFormat.PERFETTO if is_json else TraceFormat.TEXT
    request = Request(limit, shapes, module or [])
    with shown_progress() as progress:
        traced = trace_program(
            Program(program, tuple(arguments or ()), is_module),
            request,
            backend=backend,
            progress=progress,
        )
    is_short = not (all_calls or request.modules or chosen != TraceFilter()) and any(
        touches_device(thread.calls) for thread in traced.threads
    )
    is_text = format is TraceFormat.TEXT and (output is not None or not json)
    try:
        if output is not None or not json:
            _write(_shown(traced, chosen, format, is_short), output)
        if json:
            _print_json(traced, chosen, format)
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if output is not None:
        err.print(escape(f"wrote {output}"), soft_wrap=True, highlight=False)
    if is_short and is_text:
        count = sum(len(thread.calls) for thread in traced.threads)
        err.print(f"in short: --all shows each of {count:,} calls", soft_wrap=True, highlight=False)
    if traced.dropped:
        err.print(
            f"{traced.dropped:,} more calls came after the first {limit:,} and were not recorded (--limit)",
            soft_wrap=True,
            highlight=False,
        )
    _end(traced, chosen, request.modules)


def _end(traced: ProgramTrace, chosen: TraceFilter, modules: Sequence[str]) -> NoReturn:
    """Exits as the program did; where that was well, an error if nothing was found of what is asked for."""
    try:
        check_met(traced, chosen, modules)
    except OpsmithError as error:
        try:
            fail(error)
        except typer.Exit as failed:
            raise typer.Exit(traced.status or failed.exit_code) from None
    raise typer.Exit(traced.status)


def _shown(
    traced: ProgramTrace, chosen: TraceFilter, format: TraceFormat, is_short: bool
) -> Iterable[bytes]:
    if format is TraceFormat.PERFETTO:
        return perfetto(traced.threads, chosen)
    if format is TraceFormat.TABLE:
        lines = table(totals(traced.threads, chosen))
    else:
        lines = short(traced.threads) if is_short else text(traced.threads, chosen)
    return (f"{line}\n".encode() for line in lines)


def _write(pieces: Iterable[bytes], output: Path | None) -> None:
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(pieces)
        sys.stdout.buffer.flush()
        return
    write_output(output, pieces)


def _print_json(traced: ProgramTrace, chosen: TraceFilter, format: TraceFormat) -> None:
    answer: dict[str, object] = {
        "status": traced.status,
        "backend": traced.description,
        "dropped": traced.dropped,
    }
    if format is TraceFormat.TABLE:
        answer["totals"] = totals(traced.threads, chosen)
    else:
        answer["threads"] = [
            {
                "process": thread.process,
                "thread": thread.thread,
                "name": thread.name,
                "is_main": thread.is_main,
                "calls": list(rows(thread, chosen)),
            }
            for thread in traced.threads
        ]
    print_json(answer)
