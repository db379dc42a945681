"""``opsmith fallbacks``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from opsmith.base.cache_folder import cache_root
from opsmith.cli.console import Json, err, many, out, print_json
from opsmith.cli.options import Arguments, LoadedBackend, ProgramName
from opsmith.cli.unrecorded import end_unrecorded
from opsmith.observe.explain.advice import Advice
from opsmith.observe.programs.fallbacks import first_kernel, read_gate, run_program
from opsmith.observe.programs.process import Program
from opsmith.plan import plan_backend
from opsmith.runtime.records.fallbacks import FallbackCount, Fallbacks
from opsmith.schema import read_catalogue

_SHOWN_CALLERS = 3


def fallbacks(
    program: ProgramName,
    arguments: Arguments = None,
    module: Annotated[bool, typer.Option("--module", "-m", help="PROGRAM is a module.")] = False,
    backend: LoadedBackend = None,
    budget: Annotated[
        int | None, typer.Option(min=0, help="Fail if more calls than this run on the CPU.")
    ] = None,
    allow: Annotated[
        Path | None,
        typer.Option(help="A file of operators that may run there, one in a line; others fail."),
    ] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help="Fail if this operator runs on the CPU; repeatable.")
    ] = None,
    callers: Annotated[bool, typer.Option(help="Show the lines that called.")] = True,
    json: Json = False,
) -> None:
    """Run a program and show what of it ran on the CPU, and which kernel to write first.

    That is what fell back, and what kernels computed on the host, on copies.  Exits with the program's own
    status if that is not 0, and with 1 if more ran there than is allowed.
    """
    catalogue = read_catalogue()
    gate = read_gate(catalogue, budget, allow, fail_on or [])
    described = Program(program, tuple(arguments or ()), module)
    run = run_program(described, backend=backend, callers=callers)
    if run.description is None:
        left = "no counts: it loaded no backend, or could not write them"
        end_unrecorded(described, "fallbacks", run.status, left)
    planned = plan_backend(run.description, cache_root())
    advice = first_kernel(run.fallbacks, planned, catalogue)
    violations = gate.violations(run.fallbacks)
    _print(run.fallbacks, advice, callers)
    for violation in violations:
        err.print(f"[bold red]failed[/]: {escape(violation)}", soft_wrap=True, highlight=False)
    if json:
        print_json(
            {
                "status": run.status,
                "calls": run.fallbacks.calls,
                "kernel_calls": run.fallbacks.kernel_calls,
                "seconds": run.fallbacks.seconds,
                "bytes_moved": run.fallbacks.bytes_moved,
                "denied": run.fallbacks.denied,
                "operators": run.fallbacks.counts,
                "first_kernel": advice,
                "violations": violations,
            }
        )
    raise typer.Exit(run.status or (1 if violations else 0))


def _print(found: Fallbacks, advice: Advice | None, callers: bool) -> None:
    if found.denied:
        out.print(f"denied the fallback, and raised: {many(found.denied, 'call')}", highlight=False)
    if advice is None:
        out.print("no operator ran on the CPU")
        return
    counts = [count for count in found.counts if count.calls]
    title = f"{many(found.calls, 'call')} of {many(len(counts), 'operator')} ran on the CPU"
    if found.kernel_calls:
        title += f", {found.kernel_calls:,} in kernels on copies"
    table = Table(title=title, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for column in ("calls", "on copies", "ms", "share", "MB moved"):
        table.add_column(column, justify="right", no_wrap=True)
    if callers:
        table.add_column("called from", overflow="fold")
    for count in counts:
        row = [
            count.operator,
            f"{count.calls:,}",
            f"{count.kernel_calls:,}" if count.kernel_calls else "",
            f"{count.seconds * 1e3:,.2f}",
            f"{_share(count.seconds, found):.0%}",
            f"{count.bytes_moved / 1e6:,.1f}",
        ]
        table.add_row(*row, *([_callers(count)] if callers else []))
    out.print(table)
    for reason, operators in _by_reason(counts).items():
        out.print(escape(f"why: {reason}"), soft_wrap=True, highlight=False)
        out.print(escape(f"  {', '.join(operators)}"), soft_wrap=True, highlight=False, style="dim")
    out.print(
        f"write this kernel first: it would take {_share(advice.seconds, found):.0%} of the time "
        "off the CPU",
        soft_wrap=True,
        highlight=False,
    )
    out.print(escape(advice.remedy), soft_wrap=True, highlight=False)


def _share(seconds: float, found: Fallbacks) -> float:
    return seconds / found.seconds if found.seconds else 0.0


def _callers(count: FallbackCount) -> str:
    locations = sorted(count.callers.items(), key=lambda location: -location[1])
    lines = [
        f"{_shown(location)} ×{calls:,}" if calls > 1 else _shown(location)
        for location, calls in locations[:_SHOWN_CALLERS]
    ]
    if len(locations) > _SHOWN_CALLERS:
        lines.append(f"and {len(locations) - _SHOWN_CALLERS} more")
    return escape("\n".join(lines))


def _shown(location: str) -> str:
    """The place relative to the working directory, where it is below it."""
    try:
        return str(Path(location).relative_to(Path.cwd()))
    except ValueError:
        return location or "a thread without Python"


def _by_reason(counts: list[FallbackCount]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for count in counts:
        reasons.setdefault(count.reason, []).append(count.operator)
    return reasons
