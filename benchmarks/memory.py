"""Memory that is used again: allocating and freeing it beside the CPU's, and results beside ``out=``.

Instructions are callgrind's, of a Python call and of the release of its result.  64 MiB are added in turns.
"""

from __future__ import annotations

import torch
from _callgrind import instructions
from _turns import microseconds_in_turns

import opsmith
from opsmith.benchmarks.measurements import Measurement, measured, report

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


def main() -> None:
    opsmith.load("sim", progress=lambda step: print(step))
    report("memory on sim that is used again; peer: the CPU", [*allocations(), addition()])


if __name__ == "__main__":
    main()
