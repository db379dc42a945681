"""The time to plan every ATen operator for sim: from nothing, and from the cache.

The peer is torchgen's parse of native_functions.yaml alone.  Each figure is the median of five
processes, because a second plan in one process would find the schemas parsed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from opsmith.benchmarks.measurements import measured, report

ROUNDS = 5
_PLAN = """
import sys, time
from pathlib import Path
start = time.perf_counter()
from opsmith.plan import plan_backend
plan_backend("sim", Path(sys.argv[1]))
print(time.perf_counter() - start)
"""
_PARSE = """
import time
start = time.perf_counter()
from opsmith.schema.catalogue import _native_functions
_native_functions()
print(time.perf_counter() - start)
"""


def seconds(script: str, *arguments: str) -> float:
    """The seconds that ``script`` prints, run in a process of its own."""
    command = [sys.executable, "-c", script, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    fresh, cached, parse = [], [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as cache:
            fresh.append(seconds(_PLAN, cache))
            cached.append(seconds(_PLAN, cache))
        parse.append(seconds(_PARSE))
    report(
        "planning every ATen operator; peer: torchgen's parse",
        [
            measured("plan from nothing", "s", fresh, parse, 1.5, is_absolute=True),
            measured("plan from the cache", "s", cached, parse, 0.1, is_absolute=True),
        ],
    )


if __name__ == "__main__":
    main()
