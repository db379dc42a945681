"""Costs of the runtime: memory that is used again, training steps and inference, calls that return early.

Instructions are callgrind's, of a Python call and of the release of its result.  All else is timed in
turns with the CPU.
"""

from __future__ import annotations

import time

import torch
from _callgrind import instructions
from _models import TRAININGS
from _turns import microseconds_in_turns

import opsmith
from opsmith.observe.benchmarks.measurements import Measurement, measured, report

SETUP = """
import opsmith
opsmith.load("sim")
host = {size: torch.empty(size) for size in (1000, 300_000)}
device = {size: torch.empty(size, device="sim") for size in host}
"""
SIZES = (1000, 300_000)


def allocations() -> list[Measurement]:
    statements = [f"torch.empty_like({on}[{size}])" for size in SIZES for on in ("device", "host")]
    counts = instructions(SETUP, statements)
    return [
        measured(
            f"allocate and free {4 * size} bytes",
            "instructions",
            [counts[f"torch.empty_like(device[{size}])"]],
            [counts[f"torch.empty_like(host[{size}])"]],
            1.3,
        )
        for size in SIZES
    ]


def addition() -> Measurement:
    x, y = (torch.rand(16 << 20, device="sim") for _ in range(2))
    result = torch.empty_like(x)
    taken = microseconds_in_turns(
        {"functional": lambda: torch.add(x, y), "out": lambda: torch.add(x, y, out=result)},
        rounds=7,
        seconds=0.3,
    )
    return measured("add 64 MiB; peer: out=", "us", taken["functional"], taken["out"], 1.05)


def models() -> list[Measurement]:
    """Training steps, and inference."""
    measurements = []
    for name, training in TRAININGS.items():
        for what, call, goal in (
            ("training step", training.step, 1.0),
            ("inference", training.inference, 1 / 1.2),
        ):
            taken = microseconds_in_turns(
                {device: call(device) for device in ("sim", "cpu")}, rounds=7, seconds=1.0
            )
            ours, peer = ([each / 1e3 for each in taken[device]] for device in ("sim", "cpu"))
            measurements.append(measured(f"{what}: {name}", "ms", ours, peer, goal))
    return measurements


def calls_in_a_row() -> Measurement:
    """How much of the time of kernels of 5 ms each their calls take, where a core is left for these."""
    x = torch.rand(1024, 1024, device="sim")
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads - 1))
    parts = []
    for _ in range(8):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            torch.mm(x, x)
        called = time.perf_counter()
        torch.accelerator.synchronize()
        parts.append((called - start) / (time.perf_counter() - start))
    torch.set_num_threads(threads)
    return measured(
        "calls of kernels of 5 ms in a row", "of the kernels' time", parts[1:], goal=0.3
    )


def main() -> None:
    opsmith.load("sim", progress=lambda step: print(step))
    report(
        "the runtime on sim; peer: the CPU",
        [*allocations(), addition(), calls_in_a_row(), *models()],
    )


if __name__ == "__main__":
    main()
