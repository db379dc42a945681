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
    "fold, kernel": lambda d: functional.fold(
        torch.ones(1, 9, 1, device=d), (8, 8), 2**32, padding=2**32, stride=2**33
    ),
    "unfold, kernel": lambda d: functional.unfold(
        torch.ones(1, 1, 8, 8, device=d), 2**32, padding=2**32, stride=2**33
    ),
    "group_norm": lambda d: torch.native_group_norm(
        torch.ones(0, 4, device=d), None, None, 2**62, 4, 1, 1, 1e-5
    ),
    "repeat": lambda d: torch.ones(4, device=d).repeat(2**62),
    "pad": lambda d: functional.pad(torch.ones(1, 4, device=d), (-(2**63), -(2**63))),
    "reflection_pad2d": lambda d: functional.pad(
        torch.ones(1, 4, 4, device=d), (-(2**63), -(2**63), 1, 1), "reflect"
    ),
    "view": lambda d: torch.view_copy(torch.ones(0, device=d), (2**32, 2**32)),
    "convolution_packed, stride": lambda d: torch.ops.optimized.convolution_packed(
        torch.ones(1, 1, 8, 8, device=d),
        torch.ones(1, 9, 64, device=d),
        None,
        None,
        1,
        [3],
        [0],
        [0],
        [1],
        1,
        "none",
    ),
    "fold": lambda d: functional.fold(
        torch.ones(1, 9, 4, device=d), (8, 8), 3, dilation=2**62, padding=2**62
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_wrap_are_refused(sim: LoadedBackend, name: str) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        REFUSED[name]("sim")


def test_shifts_that_wrap_together(sim: LoadedBackend) -> None:
    matrix = torch.arange(1.0, 13).view(3, 4)
    shifted = torch.roll(matrix.to("sim"), (1 - 2**62, LAST, LAST), (1, 0, 0))
    assert torch.equal(shifted.cpu(), matrix.roll((1, 1, 1), (1, 0, 0)))


@pytest.mark.parametrize("diagonal", [-(2**63), 1 - 2**63, -4, 5, LAST - 1, LAST])
@pytest.mark.parametrize("triangle", [torch.tril, torch.triu])
def test_diagonals_beyond_a_matrix(
    sim: LoadedBackend, triangle: Callable[..., torch.Tensor], diagonal: int
) -> None:
    matrix = torch.arange(1.0, 13).view(3, 4)
    lower = triangle is torch.tril
    expected = matrix if (diagonal > 0) == lower else torch.zeros(3, 4)
    assert torch.equal(triangle(matrix.to("sim"), diagonal).cpu(), expected)
