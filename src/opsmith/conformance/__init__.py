"""Whether a device does what PyTorch's own operator database says: the checks, and their verdicts.

``run("sim", dtypes=["float32"], checks=["forward"])`` makes the checks and returns their results.
"""

from opsmith.conformance.record import Standing
from opsmith.conformance.results import Check, Results, Status, Verdict, read_results, scores
from opsmith.conformance.running import Outcome, run, run_upstream
from opsmith.conformance.upstream import read_checkout

__all__ = [
    "Check",
    "Outcome",
    "Results",
    "Standing",
    "Status",
    "Verdict",
    "read_checkout",
    "read_results",
    "run",
    "run_upstream",
    "scores",
]
