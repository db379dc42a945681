"""Compiled models on sim beside the CPU's own, and on the OpenCL device beside its eager kernels.

Of eight models, forward and backward, each side is compiled once by Inductor; on sim that is C++ on the
host window's bytes, the generated code of both is Inductor's.  The programs on the OpenCL device are those
that fusion is for: many operations on each element.  All are called in turns in one process for each
device; compiling is not measured.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
from collections.abc import Callable
from functools import partial

from _turns import microseconds_in_turns

import opsmith
from opsmith.observe.benchmarks.measurements import Measurement, measured, report

ROUNDS, SECONDS = 7, 0.4
MOST, MEAN = 1.15, 1.05
FUSED = 1 / 1.3


def models() -> list[Measurement]:
    """The models, and the geometric mean of their ratios."""
    opsmith.load("sim")
    import torch
    from _models import MODELS

    found = []
    for name, (make, batch) in MODELS.items():
        torch._dynamo.reset()
        calls = {}
        for device in ("sim", "cpu"):
            torch.manual_seed(0)
            model = torch.compile(make().to(device))
            calls[device] = _there_and_back(model, batch().to(device))
        taken = microseconds_in_turns(calls, ROUNDS, SECONDS)
        milliseconds = ([each / 1e3 for each in taken[device]] for device in ("sim", "cpu"))
        found.append(measured(f"{name}, forward and backward", "ms", *milliseconds, MOST))
    ratios = [each.ratio or 1.0 for each in found]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    return [*found, measured("geometric mean of the models", "x", [mean], goal=MEAN)]


def _there_and_back(model: Callable[..., object], x: object) -> Callable[[], None]:
    def call() -> None:
        loss = model(x).square().mean()  # type: ignore[attr-defined]
        loss.backward()
        loss.item()

    return call


def programs() -> list[Measurement]:
    """Programs of pointwise operators and reductions on the OpenCL device."""
    opsmith.load("opencl")
    import torch
    from torch import Tensor
    from torch.nn import functional as F  # noqa: N812

    rows = torch.randn(512, 2048, device="opencl")
    row = torch.randn(2048, device="opencl")
    cosine, sine = row.cos(), row.sin()

    def done(call: Callable[[Tensor], Tensor]) -> None:
        call(rows)
        torch.accelerator.synchronize()

    def gelu_by_hand(x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))

    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "swish of swish": lambda x: (y := x * torch.sigmoid(x)) * torch.sigmoid(1.5 * y),
        "gelu by its formula": gelu_by_hand,
        "bias, relu, residual": lambda x: F.relu(x + row) * 0.5 + x,
        "rotation": lambda x: x * cosine + x.roll(1, -1) * sine,
        "RMS norm by its formula": lambda x: (
            x * torch.rsqrt(x.square().mean(-1, True) + 1e-6) * row
        ),
        "layer norm and gelu": lambda x: F.gelu(F.layer_norm(x, (2048,), row), approximate="tanh"),
        "softmax of scores": lambda x: F.softmax(x * 0.125 + row, -1),
        "squared distances": lambda x: (x - row).square().sum(-1),
    }
    found = []
    for name, function in functions.items():
        torch._dynamo.reset()
        compiled = torch.compile(function)
        torch.testing.assert_close(compiled(rows), function(rows), rtol=1e-4, atol=1e-5)

        calls = {"compiled": partial(done, compiled), "eager": partial(done, function)}
        taken = microseconds_in_turns(calls, ROUNDS, SECONDS)
        found.append(measured(f"OpenCL: {name}", "µs", taken["compiled"], taken["eager"], FUSED))
    ratios = [each.ratio or 1.0 for each in found]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    return [*found, measured("OpenCL: geometric mean", "x", [mean], goal=FUSED)]


def main() -> None:
    context = multiprocessing.get_context("spawn")  # a process loads one backend
    with context.Pool(1, maxtasksperchild=1) as process:
        found = [*process.apply(models), *process.apply(programs)]
    report(
        "compiled: models on sim, peer: Inductor on the CPU; 512 x 2048 float32 on OpenCL, peer: eager",
        found,
    )


if __name__ == "__main__":
    main()
