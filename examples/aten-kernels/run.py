"""Compares the kernels with the CPU, and shows what runs each operator."""

from __future__ import annotations

from pathlib import Path

import torch

import opsmith

backend = opsmith.load(str(Path(__file__).with_name("backend.yaml")))

x, y = torch.randn(2, 5, 300).unbind()
x[1, 2] = float("nan")
for compute in (
    torch.relu,
    lambda x: x[:, ::2].clone().relu_(),
    lambda x: torch.lerp(x, y.to(x), 0.3),
    lambda x: torch.lerp(x, y.to(x), y.to(x)[0]),
    lambda x: x.amax(1),
    lambda x: x.t().amax((0, 1), keepdim=True),
    lambda x: torch.empty_like(x).fill_(2.5),
    lambda x: x.long().amax(0),
):
    for dtype in (torch.float32, torch.bfloat16):
        expected = compute(x.to(dtype))
        torch.testing.assert_close(compute(x.to("atenchip", dtype)).cpu(), expected, equal_nan=True)
print("values: those of the CPU")

for name in ("relu", "relu_", "fill_.Scalar", "lerp.Tensor", "amax", "tanh"):
    entry = backend.plan.entry(name)
    print(f"{name}: {entry.library or 'fallback'}")
