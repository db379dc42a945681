"""``opsmith fuzz``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from opsmith.base.output_files import write_output
from opsmith.cli.conformance_results import shown_standing
from opsmith.cli.console import Json, out, print_json
from opsmith.cli.options import (
    BackendArgument,
    ExpectedFailures,
    Jobs,
    Kernels,
    NamedBackend,
    Results,
    Seed,
    Timeout,
)
from opsmith.conformance import FuzzOutcome
from opsmith.conformance import fuzz as run_fuzz

Programs = Annotated[
    int, typer.Option("--programs", "-n", min=1, help="How many programs are run.", metavar="N")
]


def fuzz(
    backend: BackendArgument = "",
    named: NamedBackend = "",
    programs: Programs = 1000,
    seed: Seed = 0,
    jobs: Jobs = None,
    timeout: Timeout = 300.0,
    kernels: Kernels = None,
    expected_failures: ExpectedFailures = None,
    output: Results = None,
    json: Json = False,
) -> None:
    """Run random programs on a device and on the CPU, and shrink those that differ.

    Exits with 1 where one differs as `expected_failures.yaml`, beside `backend.yaml`, does not declare.
    """
    with shown_standing() as (report, building):
        outcome = run_fuzz(
            backend,
            programs=programs,
            seed=seed,
            jobs=jobs,
            timeout=timeout,
            kernels=kernels,
            expected_failures=expected_failures,
            report=report,
            building=building,
        )
    if output is not None:
        _write_findings(outcome, output)
    _print_findings(outcome)
    if json:
        print_json(_summary(outcome))
    if outcome.interrupted:
        raise typer.Exit(130)
    raise typer.Exit(1 if outcome.findings else 0)


def _write_findings(outcome: FuzzOutcome, path: Path) -> None:
    """Writes the counts and every finding to ``path``, as JSON."""
    data = {
        **_summary(outcome),
        "findings": outcome.findings,
        "expected_findings": outcome.expected,
    }
    write_output(path, msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")


def _print_findings(outcome: FuzzOutcome) -> None:
    """Prints the classes of differences, the rarest first, and the counts at the end."""
    for finding, count in reversed(outcome.classes()):
        more = f" ({count:,} programs)" if count > 1 else ""
        title = f"{finding.operator}: {finding.kind}{more}"
        out.print(f"[bold red]{escape(title)}[/]", highlight=False, soft_wrap=True)
        out.print(finding.program, markup=False, highlight=False, soft_wrap=True)
    if outcome.loaded:
        out.print(outcome.loaded, markup=False, highlight=False, soft_wrap=True)
    differ = len(outcome.findings)
    expected = f", {len(outcome.expected):,} as expected" if outcome.expected else ""
    out.print(
        f"{escape(outcome.backend)}, torch {outcome.torch}, seed {outcome.seed}: "
        f"{outcome.programs:,} programs, {outcome.steps:,} steps, {len(outcome.operators):,} operators; "
        f"{differ:,} programs differ, in {len(outcome.classes()):,} classes{expected}; "
        f"{outcome.skipped:,} skipped",
        highlight=False,
        soft_wrap=True,
    )


def _summary(outcome: FuzzOutcome) -> Mapping[str, Any]:
    """The run in a line of JSON."""
    return {
        "backend": outcome.backend,
        "loaded": outcome.loaded,
        "torch": outcome.torch,
        "seed": outcome.seed,
        "programs": outcome.programs,
        "steps": outcome.steps,
        "skipped": outcome.skipped,
        "operators": sorted(outcome.operators),
        "differing": len(outcome.findings),
        "expected": len(outcome.expected),
        "classes": [
            {"operator": finding.operator, "kind": finding.kind, "programs": count,
             "text": finding.text, "program": finding.program}
            for finding, count in outcome.classes()
        ],
    }  # fmt: skip
