"""Arguments near the ends of int64, whose sums and products with sizes do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

LAST = 2**63 - 1

REFUSED: dict[str, Callable[[str], object]] = {
    "storage": lambda d: torch.empty(4, device=d).untyped_storage().resize_(-1),
    "conv1d, dilation": lambda d: functional.conv1d(
        torch.ones(1, 1, 8, device=d), torch.ones(1, 1, 3, device=d), dilation=LAST
    ),
    "conv1d, padding": lambda d: functional.conv1d(
        torch.ones(1, 1, 8, device=d), torch.ones(1, 1, 3, device=d), padding=2**62
    ),
    "conv2d, both": lambda d: functional.conv2d(
        torch.ones(1, 1, 8, 8, device=d),
        torch.ones(1, 1, 3, 3, device=d),
        padding=2**61,
        dilation=2**61,
    ),
    "conv_transpose2d": lambda d: functional.conv_transpose2d(
        torch.ones(1, 1, 8, 8, device=d),
        torch.ones(1, 1, 3, 3, device=d),
        padding=2**61,
        dilation=2**61,
    ),
    "pixel_shuffle, square": lambda d: torch.pixel_shuffle(torch.ones(1, 4, 2, 2, device=d), 2**32),
    "pixel_shuffle, side": lambda d: torch.pixel_shuffle(torch.ones(1, 0, 2, 2, device=d), 2**62),
    "max_pool2d": lambda d: functional.max_pool2d(
        torch.ones(1, 1, 8, 8, device=d), 3, dilation=LAST
    ),
    "avg_pool2d": lambda d: functional.avg_pool2d(torch.ones(1, 1, 8, 8, device=d), LAST),
    "unfold": lambda d: functional.unfold(torch.ones(1, 1, 8, 8, device=d), 3, dilation=2**62),
    "fold": lambda d: functional.fold(
        torch.ones(1, 9, 4, device=d), (8, 8), 3, dilation=2**62, padding=2**62
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_wrap_are_refused(sim: LoadedBackend, name: str) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        REFUSED[name]("sim")


@pytest.mark.parametrize("diagonal", [-(2**63), 1 - 2**63, -4, 5, LAST - 1, LAST])
@pytest.mark.parametrize("triangle", [torch.tril, torch.triu])
def test_diagonals_beyond_a_matrix(
    sim: LoadedBackend, triangle: Callable[..., torch.Tensor], diagonal: int
) -> None:
    matrix = torch.arange(1.0, 13).view(3, 4)
    lower = triangle is torch.tril
    expected = matrix if (diagonal > 0) == lower else torch.zeros(3, 4)
    assert torch.equal(triangle(matrix.to("sim"), diagonal).cpu(), expected)
