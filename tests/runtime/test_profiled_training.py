"""A training step of sim in ``torch.profiler``: the kernels of the shipped libraries, and Python kernels."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import profile

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend


def work_of(profiled: profile) -> list[str]:
    return [event.name for event in profiled.events() if event.device_type != DeviceType.CPU]


def test_a_training_step_is_made_of_kernels(sim: LoadedBackend) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(
        "sim"
    )
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.rand(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(data.to("sim")).square().mean().backward()
        optimizer.step()

    step()
    with profile() as profiled:  # all that there is
        step()
    work = work_of(profiled)
    assert work.count("Memcpy HtoD") == 1
    assert not any(event.name.startswith("fallback of ") for event in profiled.events())
    operators = {
        event.key: event for event in profiled.key_averages() if event.key.startswith("aten::")
    }
    for name in ("aten::addmm", "aten::relu", "aten::mean", "aten::mm", "aten::threshold_backward"):
        assert operators[name].device_time_total > 0, name
        assert name in {kernel.partition(".")[0] for kernel in work}, name


@pytest.mark.needs("Python.h")
def test_a_python_kernel_is_an_event(sim: LoadedBackend) -> None:
    def softplus(self: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
        return torch.log1p(torch.exp(self * beta)) / beta

    x = torch.rand(8, device="sim")
    with sim.kernel("softplus")(softplus), profile() as profiled:
        torch.nn.functional.softplus(x)
    assert work_of(profiled) == ["aten::softplus"]
