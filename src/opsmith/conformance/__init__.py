"""Whether a device does what PyTorch's own operator database says: the checks, and their verdicts.

``run("sim", dtypes=["float32"], checks=["forward"])`` makes the checks and returns their results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.base.on_demand import on_demand

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
        "fuzzing.findings": "Finding FuzzOutcome",
        "fuzzing.running": "fuzz",
        "record": "Standing",
        "results": "read_results scores Check Results Status Verdict",
        "running": "run run_upstream Outcome",
        "torchcts": "find_torchcts",
        "upstream": "read_checkout",
    },
)
