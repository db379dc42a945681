"""Whether a device does what PyTorch's own operator database says: the checks, and their verdicts.

``run("sim", dtypes=["float32"], checks=["forward"])`` makes the checks and returns their results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.on_demand import on_demand

if TYPE_CHECKING:
    from opsmith.conformance.fuzzing.findings import Finding, FuzzOutcome
    from opsmith.conformance.fuzzing.running import fuzz
    from opsmith.conformance.record import Standing
    from opsmith.conformance.results import Check, Results, Status, Verdict, read_results, scores
    from opsmith.conformance.running import Outcome, run, run_upstream
    from opsmith.conformance.torchcts import find_torchcts
    from opsmith.conformance.upstream import read_checkout

__all__ = [
    "Check",
    "Finding",
    "FuzzOutcome",
    "Outcome",
    "Results",
    "Standing",
    "Status",
    "Verdict",
    "find_torchcts",
    "fuzz",
    "read_checkout",
    "read_results",
    "run",
    "run_upstream",
    "scores",
]

# Reading results needs nothing of what runs tests.
__getattr__ = on_demand(
    __name__,
    {
        "Check": "opsmith.conformance.results",
        "Finding": "opsmith.conformance.fuzzing.findings",
        "FuzzOutcome": "opsmith.conformance.fuzzing.findings",
        "Outcome": "opsmith.conformance.running",
        "Results": "opsmith.conformance.results",
        "Standing": "opsmith.conformance.record",
        "Status": "opsmith.conformance.results",
        "Verdict": "opsmith.conformance.results",
        "find_torchcts": "opsmith.conformance.torchcts",
        "fuzz": "opsmith.conformance.fuzzing.running",
        "read_checkout": "opsmith.conformance.upstream",
        "read_results": "opsmith.conformance.results",
        "run": "opsmith.conformance.running",
        "run_upstream": "opsmith.conformance.running",
        "scores": "opsmith.conformance.results",
    },
)
