"""``opsmith conform``."""

from __future__ import annotations

from typing import Annotated

import typer

from opsmith.cli.conformance_results import end, shown_standing
from opsmith.cli.console import Json
from opsmith.cli.options import (
    BackendArgument,
    ExpectedFailures,
    Jobs,
    JUnit,
    Kernels,
    NamedBackend,
    Results,
    Resume,
    Seed,
    Timeout,
)
from opsmith.conformance import run

Operators = Annotated[
    list[str] | None,
    typer.Option(help="An OpInfo entry, a pattern, or an ATen operator; repeatable."),
]
Dtypes = Annotated[list[str] | None, typer.Option(help="float32, …; repeatable.")]
Checks = Annotated[list[str] | None, typer.Option(help="forward, backward, out, …; repeatable.")]
Samples = Annotated[
    int, typer.Option(min=0, help="The most inputs of each entry; 0: all that OpInfo has.")
]


def conform(
    backend: BackendArgument = "",
    named: NamedBackend = "",
    op: Operators = None,
    dtype: Dtypes = None,
    check: Checks = None,
    samples: Samples = 0,
    seed: Seed = 0,
    jobs: Jobs = None,
    timeout: Timeout = 300.0,
    resume: Resume = False,
    kernels: Kernels = None,
    expected_failures: ExpectedFailures = None,
    output: Results = None,
    junit: JUnit = None,
    json: Json = False,
) -> None:
    """Check a device against PyTorch's own operator database, OpInfo.

    Exits with 1 where something fails that `expected_failures.yaml`, beside `backend.yaml`, does not
    declare, or where what it declares passes.
    """
    with shown_standing() as (report, building):
        outcome = run(
            backend,
            operators=op or (),
            dtypes=dtype or (),
            checks=check or (),
            samples=samples,
            seed=seed,
            jobs=jobs,
            timeout=timeout,
            resume=resume,
            kernels=kernels,
            expected_failures=expected_failures,
            report=report,
            building=building,
        )
    end(outcome, output, junit, json)
