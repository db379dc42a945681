"""Operators that run on the CPU for want of a kernel, beside the CPU's own call and PyTorch's cpu_fallback.

The two backends of ``fallback_backends`` have no kernel at all: on ``window`` the host sees the device's
memory, on ``copies`` it does not.  A switch in their library decides which of the two fallbacks a call
takes, so that both run in one process, on the same tensors, in turn.  Callgrind counts the instructions
of calls on four elements; the clock's figures are medians of calls that take turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from _callgrind import instructions
from _turns import microseconds_in_turns
from torch import Tensor

import opsmith
from opsmith.build.backend import build_backend
from opsmith.observe.benchmarks.measurements import Measurement, measured, report

BACKENDS = Path(__file__).parent / "fallback_backends"
SETUP = f"""
import opsmith
opsmith.load({str(BACKENDS / "window" / "backend.yaml")!r})
on_cpu = [torch.zeros(4) for _ in range(3)]
on_sim = [x.to("sim") for x in on_cpu]
"""
COUNTED = {
    "x.neg()": "neg",
    "x.add(y)": "add.Tensor",
    "x.add_(y)": "add_.Tensor",
    "torch.add(x, y, out=z)": "add.out",
    "x.cumsum(0)": "cumsum",
    "x.sum()": "sum",
    "x.sort()": "sort",
}

Call = Callable[[Tensor, Tensor, Tensor], object]
# Those that compute little: what is to be seen is the memory.
ELEMENTWISE: dict[str, Call] = {
    "x.add(y)": lambda x, y, z: x.add(y),
    "x.neg()": lambda x, y, z: x.neg(),
    "x.mul_(y)": lambda x, y, z: x.mul_(y),
    "torch.add(x, y, out=z)": lambda x, y, z: torch.add(x, y, out=z),
}
OTHERS: dict[str, Call] = {
    "x.sigmoid()": lambda x, y, z: x.sigmoid(),
    "x.cumsum(0)": lambda x, y, z: x.cumsum(0),
    "torch.cumsum(x, 0, out=z)": lambda x, y, z: torch.cumsum(x, 0, out=z),
    "x.sum()": lambda x, y, z: x.sum(),
    "rows.amax(1)": lambda x, y, z: x.view(-1, 100).amax(1),
    "x[::2].clamp_(0, 1)": lambda x, y, z: x[::2].clamp_(0, 1),
    "x.view(2, -1).t().mul(y…)": lambda x, y, z: x.view(2, -1).t().mul(y.view(2, -1).t()),
    "torch._foreach_add_(x.split(…), 1)": lambda x, y, z: torch._foreach_add_(
        x.split(x.numel() // 4), 1
    ),
}
INDEXED = "x.index_put_((i,), ones)"
WINDOW_SIZES = [100_000, 1_000_000]
COPIED_SIZES = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
ROUNDS = 15
ROUND_SECONDS = 2e-3

# By who runs it: the microseconds of a call, in each round.
Rounds = dict[str, list[float]]
# By size, by statement.
Times = dict[int, dict[str, Rounds]]


def time_calls(backend: str, sizes: list[int]) -> None:
    """Prints the :data:`Times` of all calls as JSON."""
    opsmith.load(str(BACKENDS / backend / "backend.yaml"))
    torch.set_num_threads(1)  # threads would be measured in the fallback's place
    times: Times = {}
    for size in sizes:
        indices = torch.randperm(size)[: size // 10]
        on_cpu = tuple(torch.rand(size) for _ in range(3))
        on_sim = tuple(x.to("sim") for x in on_cpu)
        for name, call in {**ELEMENTWISE, **OTHERS}.items():
            times.setdefault(size, {})[name] = rounds(
                partial(call, *on_cpu), partial(call, *on_sim)
            )
        times[size][INDEXED] = rounds(indexed(on_cpu[0], indices), indexed(on_sim[0], indices))
    print(json.dumps(times))


def rounds(on_cpu: Callable[[], object], on_sim: Callable[[], object]) -> Rounds:
    """The microseconds of a call on the CPU, by opsmith's fallback and by PyTorch's, which take turns."""
    use_stock = torch.ops.fallback_benchmark.use_stock
    turns = {"cpu": (on_cpu, False), "ours": (on_sim, False), "stock": (on_sim, True)}
    times = microseconds_in_turns(
        {name: call for name, (call, _) in turns.items()},
        ROUNDS,
        ROUND_SECONDS,
        before=lambda name: use_stock(turns[name][1]),
    )
    use_stock(False)
    return times


def indexed(x: Tensor, indices: Tensor) -> Callable[[], object]:
    """Writes to a tenth of ``x``."""
    indices = indices.to(x.device)
    values = torch.ones(indices.numel()).to(x.device)
    return lambda: x.index_put_((indices,), values)


def count_nanoseconds() -> None:
    """Prints what counting one call takes, in rounds of 100,000."""
    opsmith.load(str(BACKENDS / "window" / "backend.yaml"))
    nanoseconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        torch.ops.fallback_benchmark.count(100_000)
        nanoseconds.append((time.perf_counter_ns() - start) / 100_000)
    print(json.dumps(nanoseconds))


def timed(backend: str, sizes: list[int]) -> Times:
    """The times that :func:`time_calls` prints, in a process of its own: there is one backend in each."""
    printed = printed_by(f"time_calls({backend!r}, {sizes})")
    return {int(size): times for size, times in json.loads(printed).items()}


def printed_by(call: str) -> bytes:
    """The output of a call of this module's in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", f"import fallback; fallback.{call}"],
        cwd=Path(__file__).parent,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout


def slowest(what: str, times: dict[str, Rounds], size: int, peer: str, goal: float) -> Measurement:
    """Of ``times``, the statement that is slowest beside its ``peer``."""
    each = [
        measured(f"{what}, {size:.0e}: {name}", "µs", figures["ours"], figures[peer], goal)
        for name, figures in times.items()
    ]
    return max(each, key=lambda one: one.value)


def elementwise(times: dict[str, Rounds]) -> dict[str, Rounds]:
    return {name: figures for name, figures in times.items() if name in ELEMENTWISE}


def main() -> None:
    for backend in ("window", "copies"):
        build_backend(BACKENDS / backend / "backend.yaml", progress=print)
    window, copies = timed("window", WINDOW_SIZES), timed("copies", COPIED_SIZES)
    places = {place: f"x, y, z = {place}" for place in ("on_cpu", "on_sim")}
    counts = {place: instructions(SETUP + choice, COUNTED) for place, choice in places.items()}
    counting = json.loads(printed_by("count_nanoseconds()"))
    report(
        "running on the CPU for want of a kernel; of each group the slowest beside its peer",
        [
            measured("what counting adds to a call", "ns", counting, goal=40),
            *(
                measured(
                    f"a whole call; CPU: {name}",
                    "instructions",
                    [counts["on_sim"][name]],
                    [counts["on_cpu"][name]],
                    1.9,
                    operator=operator,
                )
                for name, operator in COUNTED.items()
            ),
            *(slowest("window; CPU", times, size, "cpu", 1.15) for size, times in window.items()),
            slowest("window; cpu_fallback", elementwise(window[10**6]), 10**6, "stock", 1 / 5),
            *(
                slowest("copies; cpu_fallback", elementwise(times), size, "stock", 1 / 1.3)
                for size, times in copies.items()
            ),
            *(
                slowest("copies, all; cpu_fallback", times, size, "stock", 1)
                for size, times in copies.items()
            ),
        ],
    )


if __name__ == "__main__":
    main()
