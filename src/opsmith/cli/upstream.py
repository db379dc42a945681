"""``opsmith upstream``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from opsmith.cli.conformance_results import end, shown_standing
from opsmith.cli.console import Json, err
from opsmith.cli.options import (
    BackendArgument,
    ExpectedFailures,
    Jobs,
    JUnit,
    NamedBackend,
    Results,
    Resume,
    Timeout,
)
from opsmith.conformance import find_torchcts, read_checkout, run_upstream
from opsmith.conformance.upstream import Checkout

Tests = Annotated[
    str,
    typer.Argument(
        metavar="CHECKOUT|torchcts",
        help="A folder with PyTorch's sources, or the installed TorchCTS.",
    ),
]
Files = Annotated[list[str] | None, typer.Option(help="Run this test file; repeatable.")]
Ledger = Annotated[
    Path | None,
    typer.Option(
        help="The suite's known failures, in the place of the ledger beside backend.yaml."
    ),
]


def upstream(
    tests: Tests,
    backend: BackendArgument = "",
    named: NamedBackend = "",
    file: Files = None,
    jobs: Jobs = None,
    timeout: Timeout = 300.0,
    resume: Resume = False,
    ledger: Ledger = None,
    expected_failures: ExpectedFailures = None,
    output: Results = None,
    junit: JUnit = None,
    json: Json = False,
) -> None:
    """Run PyTorch's own device-generic tests, from a checkout, or those of TorchCTS on a device.

    Exits with 1 where a test fails that passes on the CPU, unless `upstream_ledger.yaml`,
    `torchcts_ledger.yaml` or `expected_failures.yaml`, beside `backend.yaml`, declares it.
    """
    suite = find_torchcts() if tests == "torchcts" else _checkout(Path(tests))
    with shown_standing() as (report, building):
        outcome = run_upstream(
            suite,
            backend,
            files=file or (),
            jobs=jobs,
            timeout=timeout,
            resume=resume,
            ledger=ledger,
            expected_failures=expected_failures,
            report=report,
            building=building,
        )
    end(outcome, output, junit, json)


def _checkout(folder: Path) -> Checkout:
    """The checkout in ``folder``, after a warning where it is of another version than the installed torch."""
    checkout = read_checkout(folder)
    if checkout.mismatch:
        err.print(f"[yellow]warning[/]: {escape(checkout.mismatch)}", soft_wrap=True)
    return checkout
