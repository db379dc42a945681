"""A conformance run of sim: forward in float32, then forward and backward in all dtypes, with all samples.

There is no peer: the goals are times on two idle cores.  The processors' seconds stand beside them, since
other programs on the same cores lengthen the one and not the other.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

from opsmith import conformance
from opsmith.observe.benchmarks.measurements import Measurement, measured, report


def run(
    name: str, goal: float, checks: Sequence[str], dtypes: Sequence[str] = ()
) -> list[Measurement]:
    """The times of one run, from the command's begin to its results."""
    before, start = _processors(), time.perf_counter()
    conformance.run("sim", checks=checks, dtypes=dtypes)
    took = time.perf_counter() - start
    return [
        measured(name, "s", [took], goal=goal),
        measured(f"{name}, of the processors", "s", [_processors() - before]),
    ]


def _processors() -> float:
    """The processors' seconds of this process and of all that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    conformance.run("sim", operators=["add"], checks=["forward"], dtypes=["float32"])  # builds sim
    report(
        "opsmith conform on sim",
        [
            *run("forward in float32", 60.0, ["forward"], ["float32"]),
            *run("forward and backward in all dtypes", 900.0, ["forward", "backward"]),
        ],
    )


if __name__ == "__main__":
    main()
