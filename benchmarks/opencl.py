"""Calls on an OpenCL device beside kernels by hand, and the demo's training step beside the CPU's.

The peers of calls are pyopencl's and run on the same implementation: one kernel for the sum, and for
products the fastest of several tilings, each result written to memory that is there already.  Both sides
wait for each result and take turns.  OPSMITH_OPENCL_PLATFORM chooses among several implementations, as it
does for opsmith.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from _turns import median_microseconds

import opsmith
from opsmith.observe.benchmarks.measurements import Measurement, measured, report

try:
    import _opencl_by_hand as by_hand
except ImportError as error:
    sys.exit(
        f"the peers are written with pyopencl, and `{error.name}` is missing\n"
        "  remedy: pip install -r requirements-dev.txt"
    )

ROUNDS, SECONDS = 15, 0.1
EPOCHS = 8
ADD_GOAL = 1.3
# At least 0.8 times as fast.
MATMUL_GOAL = 1 / 0.8
STEP_GOAL = 3.0


def beside(
    name: str,
    operator: str,
    shape: tuple[int, ...],
    ours: Callable[[Any, Any], Any],
    peer: str,
    goal: float,
    pool: ProcessPoolExecutor,
) -> Measurement:
    """``ours`` of two tensors beside ``peer`` of the same numbers; they agree on the result."""
    import numpy
    import torch

    generator = numpy.random.default_rng(0)
    a, b = (generator.random(shape, numpy.float32) for _ in range(2))
    x, y = (torch.from_numpy(values).to("opencl") for values in (a, b))
    expected = torch.from_numpy(pool.submit(by_hand.prepare, peer, a, b).result())
    torch.testing.assert_close(ours(x, y).cpu(), expected, rtol=1e-4, atol=1e-3)

    def call() -> None:
        ours(x, y)
        torch.accelerator.synchronize()

    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        taken[0].append(median_microseconds(call, SECONDS))
        taken[1].append(pool.submit(by_hand.microseconds, peer, SECONDS).result())
    return measured(name, "µs", *taken, goal, operator=operator)


def calls(pool: ProcessPoolExecutor) -> list[Measurement]:
    """The sum and the product."""
    import torch

    return [
        beside(
            "x + y, 1e+06 float32",
            "add.Tensor",
            (by_hand.ELEMENTS,),
            torch.add,
            "adding",
            ADD_GOAL,
            pool,
        ),
        beside(
            f"mm {by_hand.SIDE}×{by_hand.SIDE}×{by_hand.SIDE} float32",
            "mm",
            (by_hand.SIDE, by_hand.SIDE),
            torch.mm,
            "multiplying",
            MATMUL_GOAL,
            pool,
        ),
    ]


def training() -> Measurement:
    """The demo's step, and the CPU's on one thread: on busy cores two wait for each other, and flatter us."""
    import torch

    from opsmith.cli.demonstration.training import compare

    loaded = opsmith.load("opencl")
    torch.set_num_threads(1)
    compared = compare("opencl", loaded.plan, EPOCHS, lambda epoch, device, cpu: None)
    ours, peer = compared.device.warm_steps_ms, compared.cpu.warm_steps_ms
    return measured(
        "training step of the demo; peer: the CPU, 1 thread", "ms", ours, peer, STEP_GOAL
    )


def main() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            platform = pool.submit(by_hand.platform_name).result()
        except by_hand.NoPlatform as error:
            sys.exit(str(error))
        opsmith.load("opencl", progress=print)
        measurements = [*calls(pool), training()]
    report(f"OpenCL, {platform}; peer: kernels by hand", measurements)


if __name__ == "__main__":
    main()
