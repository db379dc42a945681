"""Progress and results of runs of tests, as ``conform``, ``upstream`` and ``torchcts`` show them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from opsmith.build.progress import OnProgress
from opsmith.cli.console import err, out, print_json, shown_progress
from opsmith.conformance import Check, Outcome, Results, Standing, Status, Verdict, scores
from opsmith.conformance.junit import write_junit
from opsmith.conformance.record import OnStanding
from opsmith.conformance.results import latest_path, write_results
from opsmith.conformance.selection import dtype_order

_SHOWN_FAILURES = 25
_LOG_SECONDS = 15.0
# Short ones, so that a row of all checks fits 80 columns.
_HEADS = {
    Check.FORWARD: "fwd",
    Check.BACKWARD: "bwd",
    Check.OUT: "out=",
    Check.NONCONTIGUOUS: "non-contig",
    Check.MIXED_DTYPES: "mixed",
    Check.DETERMINISM: "determ",
    Check.BOUNDARY: "bounds",
}


def end(outcome: Outcome, output: Path | None, junit: Path | None, json: bool) -> NoReturn:
    """Writes and shows the results, and exits."""
    results = outcome.results
    if output is not None:
        write_results(results, output)
    if junit is not None:
        write_junit(results, junit)
    _print(results)
    if outcome.interrupted:
        err.print(
            "interrupted; what is done is kept: the same command with --resume goes on",
            soft_wrap=True,
        )
    if json:
        print_json(_summary(results))
    if outcome.interrupted:
        raise typer.Exit(130)
    raise typer.Exit(1 if results.is_bad else 0)


@contextmanager
def shown_standing() -> Iterator[tuple[OnStanding, OnProgress]]:
    """Callbacks that show the progress of a run and a build: a bar on a terminal, lines in a log."""
    if err.is_terminal:
        with Progress(
            TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.description}"), console=err, transient=True,
        ) as progress:  # fmt: skip
            bar = progress.add_task("", total=None)
            yield (
                lambda now: progress.update(
                    bar, total=now.total, completed=now.done, description=escape(_at(now))
                ),
                lambda step: progress.update(bar, description=escape(str(step))),
            )
        return
    said = time.monotonic()

    def say(now: Standing) -> None:
        nonlocal said
        if time.monotonic() - said > _LOG_SECONDS or now.done == now.total:
            said = time.monotonic()
            err.print(f"{now.done:,} of {now.total:,} checks, {now.bad:,} bad", highlight=False)

    with shown_progress() as building:
        yield say, building


def _at(now: Standing) -> str:
    bad = f"{now.bad:,} bad; " if now.bad else ""
    return bad + (f"{now.verdict.entry} {now.verdict.dtype}" if now.verdict else "loading PyTorch")


def _print(results: Results) -> None:
    out.print(f"[bold]{escape(results.backend)}, torch {results.torch}[/]", highlight=False)
    if results.loaded:
        out.print(results.loaded, markup=False, highlight=False, soft_wrap=True)
    out.print(_table(results))
    counts = Counter(verdict.status for verdict in results.verdicts)
    out.print(", ".join(f"{counts[s]:,} {s.value}" for s in Status if counts[s]), highlight=False)
    _print_reasons(results)
    _print_failures([verdict for verdict in results.verdicts if verdict.status.is_bad])


def _print_reasons(results: Results) -> None:
    """Prints how many are known to fail or left out, by the declared reason."""
    declared = Counter(
        (verdict.reason, verdict.status) for verdict in results.verdicts if verdict.reason
    )
    for (reason, status), count in declared.most_common():
        out.print(f"{count:,} {status.value}: {escape(reason)}", soft_wrap=True, highlight=False)


def _table(results: Results) -> Table:
    """The share of checks that pass, of those that had something to run."""
    counted = scores(results.verdicts)
    checks = [check for check in Check if any(check is each for each, _ in counted)]
    dtypes = sorted({dtype for _, dtype in counted}, key=dtype_order)
    table = Table(header_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("% passed", no_wrap=True)
    for check in checks:
        table.add_column(_HEADS.get(check, check.value), justify="right", no_wrap=True)
    for dtype in dtypes:
        cells = [counted.get((check, dtype)) for check in checks]
        table.add_row(dtype or "any", *(_share(*cell) if cell else "" for cell in cells))
    return table


def _share(passed: int, total: int) -> str:
    # 99.96 % is not yet all.
    return "100" if passed == total else f"{min(passed / total * 100, 99.9):.1f}"


def _print_failures(failures: Sequence[Verdict]) -> None:
    for verdict in failures[:_SHOWN_FAILURES]:
        where = escape(f"{verdict.entry} {verdict.dtype} {verdict.check.value}")
        out.print(
            f"[bold red]{verdict.status.value}[/]: {where}: {escape(verdict.message)}",
            soft_wrap=True,
            highlight=False,
        )
    if len(failures) > _SHOWN_FAILURES:
        out.print(f"and {len(failures) - _SHOWN_FAILURES:,} more: --output or --junit has all")


def _summary(results: Results) -> dict[str, object]:
    counts = Counter(verdict.status for verdict in results.verdicts)
    return {
        "backend": results.backend,
        "torch": results.torch,
        "loaded": results.loaded,
        "build": results.build,
        "complete": results.complete,
        "results": str(latest_path(Path(results.description))),
        "totals": {status.value: counts[status] for status in Status},
        "scores": [
            {"check": check, "dtype": dtype, "passed": passed, "total": total}
            for (check, dtype), (passed, total) in scores(results.verdicts).items()
        ],
        "failures": [verdict for verdict in results.verdicts if verdict.status.is_bad],
        "expected_failures": [
            verdict for verdict in results.verdicts if verdict.status is Status.EXPECTED_FAILURE
        ],
    }
