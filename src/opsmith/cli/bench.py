"""``opsmith bench``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from opsmith.cli.console import Json, err, many, out, print_json, write_json
from opsmith.cli.options import flag, written_to
from opsmith.observe.benchmarks.measurements import table
from opsmith.observe.benchmarks.runs import (
    BenchmarkResult,
    BenchRun,
    Change,
    begin,
    changes,
    choose,
    find_benchmarks,
    read_run,
    run_benchmark,
)


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Which ones; all without.")] = None,
    list_them: Annotated[bool, flag("--list", "Say what there is.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the scripts are; else benchmarks/ here, or opsmith's."),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Compare with an earlier run's --output.")
    ] = None,
    output: Annotated[Path | None, written_to("Write what was measured, as JSON.")] = None,
    strict: Annotated[
        bool, flag("--strict", "Fail if a goal is missed, or something got slower.")
    ] = False,
    json: Json = False,
) -> None:
    """Run benchmarks beside their peers: medians and spread, goals, and what changed since an earlier run.

    Exits with 1 if one does not run to its end.
    """
    chosen = choose(find_benchmarks(folder), names or ())
    if list_them:
        for benchmark in chosen:
            out.print(
                f"[bold]{escape(benchmark.name)}[/]: {escape(benchmark.summary)}",
                soft_wrap=True,
                highlight=False,
            )
        return
    earlier = None if against is None else read_run(against)
    run = begin()
    interrupted = False
    try:
        for benchmark in chosen:
            with err.status(f"{escape(benchmark.name)}: {escape(benchmark.summary)}"):
                result = run_benchmark(benchmark)
            _print(result)
            run = replace(run, results=(*run.results, result))
    except KeyboardInterrupt:
        interrupted = True  # what is done is shown, and kept
    found = () if earlier is None else changes(earlier, run)
    if earlier is not None:
        _print_changes(earlier, found)
    if output is not None:
        write_json(output, run)
    if json:
        print_json({"run": run, "changes": found})
    if interrupted:
        err.print("interrupted; what was measured so far is kept")
        raise typer.Exit(130)
    raise typer.Exit(1 if _has_failed(run, found, strict) else 0)


def _has_failed(run: BenchRun, found: tuple[Change, ...], strict: bool) -> bool:
    missed = any(each.verdict == "missed" for _, each in run.measurements())
    slower = any(each.is_certain and each.change > 0 for each in found)
    return any(result.failure for result in run.results) or (strict and (missed or slower))


def _print(result: BenchmarkResult) -> None:
    if result.failure:
        err.print(
            f"[bold red]failed[/]: {escape(result.name)}: {escape(result.failure)}",
            soft_wrap=True,
            highlight=False,
        )
        return
    out.print(table(f"{result.name}: {result.title}", result.measurements))


def _print_changes(earlier: BenchRun, found: tuple[Change, ...]) -> None:
    certain = [change for change in found if change.is_certain]
    out.print(
        f"{many(len(certain), 'change')} of {many(len(found), 'measurement')} since {earlier.started}",
        soft_wrap=True,
        highlight=False,
    )
    if not certain:
        return
    rows = Table(header_style="bold")
    rows.add_column("measured", overflow="fold")
    for column in ("before", "now", "change"):
        rows.add_column(column, justify="right", no_wrap=True)
    for change in certain:
        rows.add_row(
            f"{change.benchmark}: {change.name}",
            f"{change.before:.4g}",
            f"{change.now:.4g}",
            f"{change.change:+.1%}",
            style="red" if change.change > 0 else "green",
        )
    out.print(rows)
