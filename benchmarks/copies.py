"""Operators on copies in host memory, beside copying by hand once each way and the CPU's own call.

sim's driver without its host window: with no kernel at all, where every operator falls back, and with sim's
kernel libraries, whose kernels are given the copies.  By hand means: the operands' bytes to the host,
PyTorch's call on the CPU, the result's bytes to the device, with host memory that is there already.  One
thread; the figures are medians of calls that take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from _turns import microseconds_in_turns
from torch import Tensor

import opsmith
from opsmith.build.backend import build_backend
from opsmith.description import HOST_WINDOW, find_backend
from opsmith.observe.benchmarks.measurements import Measurement, measured, report

FALLBACK = Path(__file__).parent / "fallback_backends" / "copies" / "backend.yaml"
# By what the rows are called.
BACKENDS = {"fallback": FALLBACK, "kernels": find_backend("sim")}
SIZES = [10_000, 1_000_000, 10_000_000]
ROUNDS = 15
ROUND_SECONDS = 5e-3
GOAL = 1.1

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Statement:
    """A call, the operands that it reads, and the one that it writes to, if it returns nothing new."""

    call: Callable[[Tensors], Tensor]
    reads: tuple[str, ...]
    writes: str = ""

    def by_hand(self, on_sim: Tensors, on_cpu: Tensors) -> None:
        """Copies, calls on the CPU, copies back."""
        for name in self.reads:
            on_cpu[name].copy_(on_sim[name])
        result = self.call(on_cpu)
        to = on_sim[self.writes] if self.writes else torch.empty_like(result, device="sim")
        to.copy_(result)


STATEMENTS = {
    "x.add(y)": Statement(lambda t: t["x"].add(t["y"]), ("x", "y")),
    "x.add_(y)": Statement(lambda t: t["x"].add_(t["y"]), ("x", "y"), "x"),
    "torch.add(x, y, out=z)": Statement(
        lambda t: torch.add(t["x"], t["y"], out=t["z"]), ("x", "y"), "z"
    ),
    "x.neg()": Statement(lambda t: t["x"].neg(), ("x",)),
    "x.sigmoid()": Statement(lambda t: t["x"].sigmoid(), ("x",)),
    "x.sum()": Statement(lambda t: t["x"].sum(), ("x",)),
    "rows.amax(1)": Statement(lambda t: t["x"].view(-1, 100).amax(1), ("x",)),
    "rows.softmax(1)": Statement(lambda t: t["x"].view(-1, 100).softmax(1), ("x",)),
    "x.cumsum(0)": Statement(lambda t: t["x"].cumsum(0), ("x",)),
}

# By size, by statement, by who runs it: the microseconds of a call, in each round.
Times = dict[int, dict[str, dict[str, list[float]]]]


def time_calls(backend: str) -> None:
    """Prints the :data:`Times` of all calls as JSON."""
    opsmith.load(str(BACKENDS[backend]))
    torch.set_num_threads(1)  # threads would be measured in the copies' place
    times: Times = {}
    for size in SIZES:
        on_cpu = {name: torch.rand(size) for name in "xyz"}
        on_sim = {name: tensor.to("sim") for name, tensor in on_cpu.items()}
        times[size] = {
            name: microseconds_in_turns(
                {
                    "ours": partial(statement.call, on_sim),
                    "by hand": partial(statement.by_hand, on_sim, on_cpu),
                },
                ROUNDS,
                ROUND_SECONDS,
            )
            for name, statement in STATEMENTS.items()
        }
    print(json.dumps(times))


def timed(backend: str) -> list[Measurement]:
    """The times that :func:`time_calls` prints, in a process of its own: there is one backend in each."""
    printed = subprocess.run(
        [sys.executable, "-c", f"import copies; copies.time_calls({backend!r})"],
        cwd=Path(__file__).parent,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return [
        measured(f"{backend}, {int(size):.0e}: {name}", "µs", each["ours"], each["by hand"], GOAL)
        for size, statements in json.loads(printed).items()
        for name, each in statements.items()
    ]


def main() -> None:
    os.environ[HOST_WINDOW] = "off"
    for description in BACKENDS.values():
        build_backend(description, progress=print)
    report(
        "running on copies in host memory; beside copying by hand and the CPU's call",
        [row for backend in BACKENDS for row in timed(backend)],
    )


if __name__ == "__main__":
    main()
