"""Output of ``opsmith conform --fuzz``: counts, and each class of differences with a program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.markup import escape

from opsmith.base.output_files import write_output
from opsmith.cli.console import out
from opsmith.conformance import FuzzOutcome


def write_findings(outcome: FuzzOutcome, path: Path) -> None:
    """Writes the counts and every finding to ``path``, as JSON."""
    data = {
        **fuzz_summary(outcome),
        "findings": outcome.findings,
        "expected_findings": outcome.expected,
    }
    write_output(path, msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")


def print_findings(outcome: FuzzOutcome) -> None:
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


def fuzz_summary(outcome: FuzzOutcome) -> Mapping[str, Any]:
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
