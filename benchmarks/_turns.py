"""Calls that take turns, so that what else the machine does falls on all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def microseconds_in_turns(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    seconds: float,
    before: Callable[[str], None] = lambda name: None,
) -> dict[str, list[float]]:
    """The median microseconds of a call in each round, by its name.

    A round makes each call again and again for ``seconds``, after ``before`` with its name and an untimed
    call.  One more round, the first, is not counted.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(1 + rounds):
        for name, call in calls.items():
            before(name)
            taken[name].append(median_microseconds(call, seconds))
    return {name: values[1:] for name, values in taken.items()}


def median_microseconds(call: Callable[[], object], seconds: float) -> float:
    """The median of ``call`` made again and again for ``seconds``, after an untimed one."""
    call()
    each: list[float] = []
    while sum(each) < seconds:
        start = time.perf_counter()
        call()
        each.append(time.perf_counter() - start)
    return 1e6 * statistics.median(each)
