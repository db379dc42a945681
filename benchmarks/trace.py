"""Costs of a trace: nothing where there is none, and how much for each kernel while one runs.

Instructions are callgrind's, of the same call before any trace and after one has been taken and removed.
Nanoseconds are the thread's own, medians over rounds in which traced and plain loops take turns, for each
kernel that the dispatcher runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from _callgrind import instructions

import opsmith
from opsmith.observe.benchmarks.measurements import Measurement, measured, report

SETUP = """
import opsmith
opsmith.load("sim")
x, y = torch.zeros(4).to("sim"), torch.zeros(4).to("sim")
w = torch.zeros(4, 4).to("sim").requires_grad_()
linear = torch.nn.functional.linear
traces = []
def trace_once():
    if not traces:
        with opsmith.trace() as traced:
            x + y
            linear(x, w)
        assert len(traced.calls) > 4
        traces.append(traced)
"""
# Each call before the trace, and again after it.
COUNTED = ("x + y", "linear(x, w)", "trace_once()", "(x + y)", "(linear(x, w))")
# A count repeats but for the allocator's and the interpreter's own caches.
SAME = 1.005
GOAL_NS = 300
ROUNDS, CALLS = 15, 3000


def off() -> list[Measurement]:
    """Instructions of a call after a trace, and before there was one."""
    found = instructions(SETUP, COUNTED)
    return [
        measured(
            f"{name}, after a trace; peer: before it",
            "instructions",
            [found[f"({name})"]],
            [found[name]],
            SAME,
        )
        for name in COUNTED[:2]
    ]


def on() -> list[Measurement]:
    """Nanoseconds that a trace adds to each kernel."""
    import torch

    opsmith.load("sim")
    torch.set_num_threads(1)
    found = []
    for device in ("cpu", "sim"):
        x, y = torch.zeros(4, device=device), torch.zeros(4, device=device)
        w = torch.zeros(4, 4, device=device, requires_grad=True)
        calls: dict[str, Callable[[], object]] = {
            "x + y": lambda x=x, y=y: x + y,
            "x.neg_()": lambda x=x: x.neg_(),
            "x.view(2, 2)": lambda x=x: x.view(2, 2),
            "linear(x, w)": lambda x=x, w=w: torch.nn.functional.linear(x, w),
        }
        for name, call in calls.items():
            for shapes in (False, True):
                found.append(_added(f"{name} on {device}", call, shapes))
    return found


def _added(name: str, call: Callable[[], object], shapes: bool) -> Measurement:
    added = []
    for _ in range(ROUNDS):
        before = _nanoseconds(call)
        with opsmith.trace(shapes=shapes, limit=100 * CALLS) as traced:
            call()  # its operators are interposed now
            during = _nanoseconds(call)
        kernels = len(traced.calls) / (CALLS + 1)
        added.append((during - before) / kernels)
    what = "with shapes" if shapes else "without shapes"
    return measured(
        f"{name}, {what}: more for each of {kernels:.0f} kernels",
        "ns",
        added,
        goal=None if shapes else GOAL_NS,
        is_absolute=True,
    )


def _nanoseconds(call: Callable[[], object]) -> float:
    start = time.thread_time_ns()
    for _ in range(CALLS):
        call()
    return (time.thread_time_ns() - start) / CALLS


if __name__ == "__main__":
    report("The cost of a trace", [*on(), *off()])
