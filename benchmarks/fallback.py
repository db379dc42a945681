"""Operators that run on the CPU for want of a kernel, beside the CPU's own call and PyTorch's cpu_fallback.

The two backends of ``fallback_backends`` have no kernel at all: on ``window`` the host sees the device's
memory, on ``copies`` it does not.  A switch in their library decides which of the two fallbacks a call
takes, so that both run in one process, on the same tensors, in turn.  Callgrind counts the instructions
of calls on four elements; the clock's figures are medians of calls that take turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from _callgrind import instructions
from _report import Measurement, compared, report
from torch import Tensor

import opsmith
from opsmith.build.backend import build_backend

BACKENDS = Path(__file__).parent / "fallback_backends"
SETUP = f"""
import opsmith
opsmith.load({str(BACKENDS / "window" / "backend.yaml")!r})
on_cpu = [torch.zeros(4) for _ in range(3)]
on_sim = [x.to("sim") for x in on_cpu]
"""
COUNTED = [
    "x.neg()",
    "x.add(y)",
    "x.add_(y)",
    "torch.add(x, y, out=z)",
    "x.cumsum(0)",
    "x.sum()",
    "x.sort()",
]

Call = Callable[[Tensor, Tensor, Tensor], object]
ELEMENTWISE: dict[str, Call] = {
    "x.add(y)": lambda x, y, z: x.add(y),
    "x.sigmoid()": lambda x, y, z: x.sigmoid(),
    "x.mul_(y)": lambda x, y, z: x.mul_(y),
    "torch.add(x, y, out=z)": lambda x, y, z: torch.add(x, y, out=z),
}
OTHERS: dict[str, Call] = {
    "x.cumsum(0)": lambda x, y, z: x.cumsum(0),
    "x.sum()": lambda x, y, z: x.sum(),
    "x.view(-1, 100).amax(1)": lambda x, y, z: x.view(-1, 100).amax(1),
    "x[::2].clamp_(0, 1)": lambda x, y, z: x[::2].clamp_(0, 1),
    "x.view(-1, 100).t().mul(y.view(-1, 100).t())": lambda x, y, z: (
        x.view(-1, 100).t().mul(y.view(-1, 100).t())
    ),
    "torch.cumsum(x, 0, out=z)": lambda x, y, z: torch.cumsum(x, 0, out=z),
    "torch._foreach_add_(x.split(n // 20), 1)": lambda x, y, z: torch._foreach_add_(
        x.split(x.numel() // 20), 1
    ),
}
INDEXED = "x.index_put_((i,), ones)"
ROUNDS = 15
ROUND_SECONDS = 2e-3


def indexed(indices: Tensor) -> Call:
    """Writes to a tenth of ``x``."""
    values = torch.rand(indices.numel()).to(indices.device)
    return lambda x, y, z: x.index_put_((indices,), values)


def time_calls(backend: str, sizes: list[int]) -> None:
    """Prints the microseconds of each call, by size and by who runs it, as JSON."""
    opsmith.load(str(BACKENDS / backend / "backend.yaml"))
    torch.set_num_threads(1)  # threads would be measured in the fallback's place
    figures = {}
    for size in sizes:
        indices = torch.randperm(size)[: size // 10]
        on_cpu = tuple(torch.rand(size) for _ in range(3))
        on_sim = tuple(x.to("sim") for x in on_cpu)
        for name, call in {**ELEMENTWISE, **OTHERS}.items():
            figures[f"{name}, {size:.0e}"] = medians(
                lambda call=call: call(*on_cpu), lambda call=call: call(*on_sim)
            )
        figures[f"{INDEXED}, {size:.0e}"] = medians(
            indexed(on_cpu[0], indices), indexed(on_sim[0], indices)
        )
    print(json.dumps(figures))


def medians(on_cpu: Callable[[], object], on_sim: Callable[[], object]) -> dict[str, float]:
    """The microseconds of a call on the CPU, by opsmith's fallback and by PyTorch's, which take turns."""
    use_stock = torch.ops.fallback_benchmark.use_stock
    turns = {"cpu": (on_cpu, False), "ours": (on_sim, False), "stock": (on_sim, True)}
    times: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(1 + ROUNDS):
        for name, (call, stock) in turns.items():
            use_stock(stock)
            call()
            seconds = []
            while sum(seconds) < ROUND_SECONDS:
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
            times[name].append(statistics.median(seconds))
    use_stock(False)
    return {name: 1e6 * statistics.median(values[1:]) for name, values in times.items()}


def indexed(x: Tensor, indices: Tensor) -> Callable[[], object]:
    """Writes to a tenth of ``x``."""
    indices = indices.to(x.device)
    values = torch.ones(indices.numel()).to(x.device)
    return lambda: x.index_put_((indices,), values)


def timed(backend: str, sizes: list[int]) -> dict[str, dict[str, float]]:
    """What :func:`time_calls` prints, in a process of its own."""
    script = f"import fallback; fallback.time_calls({backend!r}, {sizes})"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)
