"""Compares the kernels with the CPU, and shows what runs each operator."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import opsmith

backend = opsmith.load(str(Path(__file__).with_name("backend.yaml")))

x = torch.randn(5, 300, 7)
for compute in (
    lambda x: torch.softmax(x, 1),
    lambda x: torch.softmax(x.transpose(0, 2), 0),
    lambda x: nn.functional.leaky_relu(x[:, ::2], 0.3),
    lambda x: nn.functional.leaky_relu_(x.clone(), 0.3),
    lambda x: torch.softmax(x[:0], 1),
):
    torch.testing.assert_close(compute(x.to("clchip")).cpu(), compute(x))
print("values: those of the CPU")

for name in ("_softmax", "leaky_relu_", "tanh"):
    entry = backend.plan.entry(name)
    print(f"{name}: {entry.library}, {entry.where}")


def gradient(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    torch.softmax(nn.functional.leaky_relu(x, 0.1), 1)[:, 0].sum().backward()
    return x.grad


torch.testing.assert_close(gradient(x.to("clchip")).cpu(), gradient(x))
print("gradients: those of the CPU")
