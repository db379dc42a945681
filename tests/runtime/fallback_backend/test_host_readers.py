"""Composites of PyTorch that read host memory: one call on the CPU instead of the end of the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from loaded import DEVICE
from torch import Tensor

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"))


def floats(*shape: int) -> Tensor:
    return torch.linspace(-0.9, 0.9, torch.Size(shape).numel()).reshape(shape)


def draw_sobol(device: str) -> tuple[Tensor, Tensor]:
    state = torch.ones(2, 30, dtype=torch.int64, device=device)
    quasi = torch.zeros(2, dtype=torch.int64, device=device)
    return torch._sobol_engine_draw(quasi, 3, state, 2, 0, torch.float32)


def forward_sobol(device: str) -> Tensor:
    state = torch.ones(2, 30, dtype=torch.int64, device=device)
    return torch._sobol_engine_ff_(torch.zeros(2, dtype=torch.int64, device=device), 3, state, 2, 0)


def sample_grid(device: str) -> Tensor:
    image, grid = floats(1, 2, 4, 4).to(device), floats(1, 3, 3, 2).to(device)
    return torch._grid_sampler_2d_cpu_fallback(image, grid, 0, 0, False)


def saturate(device: str) -> Tensor:
    return torch._saturate_weight_to_fp16((1e5 * floats(3, 3)).to(device))


def choose(device: str) -> tuple[Tensor, Tensor]:
    return torch.choose_qparams_optimized(floats(64).to(device), 64, 200, 0.16, 8)


def count(device: str) -> Tensor:
    return torch.ops.aten.range.out_(2, 6, out=torch.empty(0, device=device))


def norm(device: str) -> tuple[Tensor, ...]:
    mean, variance = torch.zeros(3, device=device), torch.ones(3, device=device)
    image = floats(2, 3, 2, 2).to(device)
    return torch.ops.aten._batch_norm_no_update(image, None, None, mean, variance, 0.1, 1e-5)


CALLS = [norm, draw_sobol, forward_sobol, sample_grid, saturate, choose, count]


@pytest.mark.parametrize("call", CALLS)
def test_values_are_those_of_the_cpu(call: Callable[[str], object]) -> None:
    torch.testing.assert_close(call(DEVICE), call("cpu"), check_device=False)


def test_what_would_lose_its_gradient_is_refused() -> None:
    shape = torch.tensor([3, 2], device=DEVICE)
    with pytest.raises(
        NotImplementedError, match="reads its arguments as host memory, and one call on"
    ):
        torch._reshape_from_tensor(floats(2, 3).to(DEVICE), shape)
