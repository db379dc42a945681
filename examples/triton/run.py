"""Shows what runs the operators, compares them with the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import opsmith

described = sys.argv[1] if sys.argv[1:] else "backend.yaml"
backend = opsmith.load(str(Path(__file__).with_name(described)))

for name in ("_softmax.out", "leaky_relu.out", "deg2rad.out"):
    entry = backend.plan.entry(name)
    print(f"{name}: {entry.library}, {entry.where}")

x = torch.randn(4, 6)
for compute in (
    lambda x: torch.softmax(x, 1),
    lambda x: torch.softmax(x.t(), 1),
    lambda x: nn.functional.leaky_relu(x[:, ::2], 0.2),
    lambda x: torch.deg2rad(x),
    lambda x: torch.deg2rad_(x.clone()),
):
    torch.testing.assert_close(compute(x.to("sim")).cpu(), compute(x))
print("values: those of the CPU")


def gradient(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    torch.softmax(nn.functional.leaky_relu(x, 0.1), 1)[:, 0].sum().backward()
    return x.grad


torch.testing.assert_close(gradient(x.to("sim")).cpu(), gradient(x))
print("gradients: those of the CPU")
