"""``opsmith conform``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from opsmith.base.output_files import check_writable
from opsmith.build.progress import OnProgress
from opsmith.cli.console import Json, err, out, print_json, shown_progress
from opsmith.cli.fuzz_results import fuzz_summary, print_findings, write_findings
from opsmith.cli.options import BackendArgument, NamedBackend, flag, written_to
from opsmith.conformance import (
    Check,
    FuzzOutcome,
    Outcome,
    Results,
    Standing,
    Status,
    Verdict,
    find_torchcts,
    read_checkout,
    run,
    run_upstream,
    scores,
)
from opsmith.conformance import fuzz as run_fuzz
from opsmith.conformance.junit import write_junit
from opsmith.conformance.record import OnStanding
from opsmith.conformance.results import latest_path, write_results
from opsmith.conformance.selection import dtype_order
from opsmith.conformance.upstream import Checkout, Suite
from opsmith.errors import FilterInvalid

_SHOWN_FAILURES = 25
_LOG_SECONDS = 15.0
# Short ones, so that a row of all checks fits 80 columns.
_HEADS = {
    Check.FORWARD: "fwd",
    Check.BACKWARD: "bwd",
    Check.OUT: "out=",
    Check.NONCONTIGUOUS: "non-contig",
    Check.DETERMINISM: "determ",
    Check.BOUNDARY: "bounds",
}


Operators = Annotated[
    list[str] | None,
    typer.Option(help="An OpInfo entry, a pattern, or an ATen operator; repeatable."),
]
Checks = Annotated[list[str] | None, typer.Option(help="forward, backward, out, …; repeatable.")]
Samples = Annotated[
    int, typer.Option(min=0, help="The most inputs of each entry; 0: all that OpInfo has.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Workers; as many as cores.")]
Resume = Annotated[bool, flag("--resume", "Go on where the last run was interrupted.")]
Kernels = Annotated[
    Path | None, typer.Option(help="A Python file that registers kernels on the device.")
]
ExpectedFailures = Annotated[
    Path | None,
    typer.Option(help="Known failures, in the place of expected_failures.yaml beside it."),
]
LedgerFile = Annotated[
    Path | None,
    typer.Option(
        help="Its known failures, in the place of upstream_ledger.yaml or torchcts_ledger.yaml beside it."
    ),
]
UpstreamCheckout = Annotated[
    Path | None,
    typer.Option(help="A checkout of PyTorch: run its own device-generic tests instead."),
]
TorchCts = Annotated[bool, flag("--torchcts", "Run the tests of the installed TorchCTS instead.")]
Files = Annotated[
    list[str] | None, typer.Option(help="A test file of the checkout or of TorchCTS; repeatable.")
]
Fuzz = Annotated[
    int, typer.Option(min=0, help="Run so many random programs of operators instead.", metavar="N")
]
Output = Annotated[Path | None, written_to("Write the results there, as JSON.")]
JUnit = Annotated[Path | None, typer.Option(help="Write the results there, as JUnit XML.")]


def conform(
    backend: BackendArgument = "",
    named: NamedBackend = "",
    op: Operators = None,
    dtype: Annotated[list[str] | None, typer.Option(help="float32, …; repeatable.")] = None,
    check: Checks = None,
    samples: Samples = 0,
    seed: Annotated[int, typer.Option(help="Draws the inputs.")] = 0,
    jobs: Jobs = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one check may take.")] = 300.0,
    resume: Resume = False,
    kernels: Kernels = None,
    expected_failures: ExpectedFailures = None,
    gaps: Annotated[Path | None, typer.Option(hidden=True)] = None,
    upstream: UpstreamCheckout = None,
    torchcts: TorchCts = False,
    ledger: LedgerFile = None,
    file: Files = None,
    fuzz: Fuzz = 0,
    output: Output = None,
    junit: JUnit = None,
    json: Json = False,
) -> None:
    """Check a device against PyTorch's own operator database, OpInfo.

    Exits with 1 where something fails that `expected_failures.yaml`, beside `backend.yaml`, does not
    declare, or where what it declares passes.
    """
    if gaps is not None:
        err.print(
            "[yellow]warning[/]: --gaps is called --expected-failures now, and the next version of opsmith "
            "no longer takes it",
            soft_wrap=True,
        )
        expected_failures = expected_failures or gaps
    _check_choice(upstream, torchcts, file, [op, dtype, check, samples, kernels])
    if ledger is not None and upstream is None and not torchcts:
        raise FilterInvalid(
            "--ledger is about the tests of PyTorch or TorchCTS",
            remedy="say --upstream PATH or --torchcts, or leave it out",
        )
    _check_fuzz(fuzz, [op, dtype, check, samples, upstream, torchcts, resume, junit])
    for path in (output, junit):
        if path is not None:
            check_writable(path)
    if fuzz:
        with shown_standing() as (report, building):
            findings = run_fuzz(
                backend, programs=fuzz, seed=seed, jobs=jobs, timeout=timeout, kernels=kernels,
                expected_failures=expected_failures, report=report, building=building,
            )  # fmt: skip
        _end_fuzz(findings, output, json)
    chosen: Callable[..., Outcome] = (
        partial(run_upstream, suite, backend, files=file or (), ledger=ledger)
        if (suite := _suite(upstream, torchcts)) is not None
        else partial(
            run,
            backend,
            operators=op or (),
            dtypes=dtype or (),
            checks=check or (),
            samples=samples,
            seed=seed,
            kernels=kernels,
        )
    )
    how = {"jobs": jobs, "timeout": timeout, "resume": resume}
    with shown_standing() as (report, building):
        outcome = chosen(
            **how, expected_failures=expected_failures, report=report, building=building
        )
    _end(outcome, output, junit, json)


def _check_choice(
    upstream: Path | None,
    torchcts: bool,
    files: Sequence[str] | None,
    of_opinfo: Sequence[object],
) -> None:
    """Refuses options of one kind of run beside those of another."""
    if upstream is not None and torchcts:
        raise FilterInvalid(
            "--upstream and --torchcts are two runs", remedy="leave one out, and run it afterwards"
        )
    if (upstream is not None or torchcts) and any(of_opinfo):
        raise FilterInvalid(
            "--op, --dtype, --check, --samples and --kernels are of OpInfo, not of "
            + ("--torchcts" if torchcts else "--upstream"),
            remedy="leave them out; --file chooses what is run",
        )
    if upstream is None and not torchcts and files:
        raise FilterInvalid(
            "--file chooses among the test files of a checkout, and none is given",
            remedy="name the checkout, --upstream PATH, or say --torchcts",
        )


def _check_fuzz(programs: int, of_others: Sequence[object]) -> None:
    """Refuses options of other runs beside ``--fuzz``."""
    if programs and any(of_others):
        raise FilterInvalid(
            "--fuzz runs random programs, and takes of the other options only --seed, --jobs, --timeout, "
            "--kernels, --expected-failures, --output and --json",
            remedy="leave the others out",
        )


def _end_fuzz(outcome: FuzzOutcome, output: Path | None, json: bool) -> NoReturn:
    """Writes and shows what random programs have found, and exits."""
    if output is not None:
        write_findings(outcome, output)
    print_findings(outcome)
    if json:
        print_json(fuzz_summary(outcome))
    if outcome.interrupted:
        raise typer.Exit(130)
    raise typer.Exit(1 if outcome.findings else 0)


def _suite(upstream: Path | None, torchcts: bool) -> Suite | None:
    """The test files that are run in the place of OpInfo, if any."""
    if torchcts:
        return find_torchcts()
    return _checkout(upstream) if upstream is not None else None


def _checkout(folder: Path) -> Checkout:
    """The checkout in ``folder``, after a warning where it is of another version than the installed torch."""
    checkout = read_checkout(folder)
    if checkout.mismatch:
        err.print(f"[yellow]warning[/]: {escape(checkout.mismatch)}", soft_wrap=True)
    return checkout


def _end(outcome: Outcome, output: Path | None, junit: Path | None, json: bool) -> NoReturn:
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
