"""Portable kernels of neural networks on a device, against the CPU: products, convolutions, pools, norms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from beside_the_cpu import FLOATING, REAL, agree, channels_last, no_fallback, numbers, on_device
from torch import Tensor
from torch.nn import functional

# See ``device.py``.
pytestmark = pytest.mark.isolated(OPSMITH_PORTABLE_BACKEND=("sim", "portsim"), nightly=("portsim",))

aten = torch.ops.aten


# ---- products


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize(
    "sizes", [(3, 4, 5), (1, 7, 300), (300, 7, 1), (70, 90, 600), (0, 3, 4), (3, 0, 4)]
)
def test_products_of_matrices(dtype: torch.dtype, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype)
    tolerance = (
        {"rtol": 2e-2, "atol": 2e-1} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}
    )
    with no_fallback("aten::mm", "aten::mm.out", "aten::addmm.out", "aten::bmm"):
        agree(torch.mm, a, b, **tolerance)
        agree(torch.mm, numbers(k, m, dtype=dtype).t(), numbers(n, k, dtype=dtype).t(), **tolerance)
        agree(torch.addmm, numbers(n, dtype=dtype), a, b, beta=2, alpha=3, **tolerance)
        agree(torch.bmm, a.expand(3, m, k), b.expand(3, k, n), **tolerance)


def test_a_factor_of_zero_leaves_the_addend_unread() -> None:
    addend = torch.full((3, 5), math.nan)
    agree(torch.addmm, addend, numbers(3, 4), numbers(4, 5), beta=0)
    agree(torch.baddbmm, addend.expand(2, 3, 5), numbers(2, 3, 4), numbers(2, 4, 5), beta=0)


def test_a_product_of_nothing_is_zero() -> None:
    agree(torch.mm, torch.empty(3, 0), torch.empty(0, 4))
    agree(torch.addmm, numbers(4), torch.empty(3, 0), torch.empty(0, 4), beta=0.5)


def test_integers_wrap_as_they_do_in_aten() -> None:
    a = torch.full((2, 300), 120, dtype=torch.int8)
    agree(torch.mm, a, a.t())


# ---- convolutions


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 11), (4, 3, 3), {}),
    ((2, 6, 9, 10), (4, 3, 3, 2), {"stride": (2, 1), "padding": (1, 0), "groups": 2}),
    ((2, 8, 9, 9), (8, 1, 3, 3), {"padding": 1, "groups": 8}),
    ((1, 3, 12, 12), (5, 3, 3, 3), {"dilation": (2, 3), "padding": 4}),
    ((2, 3, 7, 6, 5), (4, 3, 2, 3, 2), {"stride": 2, "padding": (1, 1, 0)}),
    ((2, 16, 8, 8), (24, 16, 1, 1), {}),
    ((0, 3, 8, 8), (4, 3, 3, 3), {"padding": 1}),
]


def convolve(x: Tensor, w: Tensor, bias: Tensor | None = None, **how: Any) -> Tensor:
    kind = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}[x.dim()]
    return kind(x, w, bias, **how)


@pytest.mark.parametrize(("image", "weight", "how"), CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_convolutions(
    image: tuple[int, ...], weight: tuple[int, ...], how: dict[str, Any], dtype: torch.dtype
) -> None:
    x, w, bias = (
        numbers(*image, dtype=dtype),
        numbers(*weight, dtype=dtype),
        numbers(weight[0], dtype=dtype),
    )
    agree(convolve, x, w, bias, **how, rtol=1e-4, atol=1e-4)
    if x.dim() == 4:
        last = (channels_last(x), channels_last(w), bias)
        agree(convolve, *last, **how, rtol=1e-4, atol=1e-4, laid_out_as_on_the_cpu=True)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions(stride: int, groups: int) -> None:
    x, w = numbers(2, 4, 5, 6), numbers(4, 3, 3, 2)
    how = {"stride": stride, "padding": 1, "output_padding": stride - 1, "groups": groups}
    agree(functional.conv_transpose2d, x, w, numbers(3 * groups), **how, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("image", "weight", "how"), CONVOLUTIONS[:-1])
def test_gradients_of_convolutions(
    image: tuple[int, ...], weight: tuple[int, ...], how: dict[str, Any]
) -> None:
    def gradients(x: Tensor, w: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        operands = [each.clone().requires_grad_() for each in (x, w, bias)]
        return torch.autograd.grad(convolve(*operands, **how).square().sum(), operands)

    agree(gradients, numbers(*image), numbers(*weight), numbers(weight[0]), rtol=2e-4, atol=2e-3)


def test_gradients_that_nothing_asks_for_are_left_out() -> None:
    def gradients(x: Tensor, w: Tensor) -> list[Tensor]:
        x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = functional.conv2d(x, w, padding=1)
        z = functional.layer_norm(x, (6,))
        return [torch.autograd.grad(each.square().sum(), x)[0] for each in (y, z)]

    agree(gradients, numbers(2, 3, 5, 6), numbers(4, 3, 3, 3), rtol=1e-4, atol=1e-4)


# ---- pools


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pools(ceil_mode: bool, layout: torch.memory_format) -> None:
    x = numbers(2, 3, 9, 11).contiguous(memory_format=layout)
    agree(aten.max_pool2d_with_indices, x, [3, 2], [2, 2], [1, 0], [1, 2], ceil_mode)
    agree(functional.avg_pool2d, x, (3, 2), (2, 3), (1, 1), ceil_mode, False)
    agree(functional.avg_pool2d, x, (3, 2), (2, 3), (1, 1), ceil_mode, True)
    agree(functional.avg_pool2d, x, 3, divisor_override=2, ceil_mode=ceil_mode)


@pytest.mark.parametrize("dtype", FLOATING)
def test_adaptive_pools(dtype: torch.dtype) -> None:
    agree(functional.adaptive_avg_pool1d, numbers(2, 3, 13, dtype=dtype), 5)
    agree(functional.adaptive_avg_pool2d, numbers(2, 3, 13, 7, dtype=dtype), (4, 9))
    # In three dimensions ATen adds Half and BFloat16 up as such.
    rough = {"rtol": 2e-2, "atol": 5e-3} if dtype.itemsize == 2 else {}
    agree(functional.adaptive_avg_pool3d, numbers(2, 5, 4, 7, dtype=dtype), (2, 3, 1), **rough)


def test_the_largest_of_nan_is_nan_and_where_it_stands() -> None:
    x = numbers(1, 1, 4, 4)
    x[0, 0, 1, 1] = math.nan
    agree(aten.max_pool2d_with_indices, x, [2, 2])
    agree(aten.max_pool2d_with_indices, torch.full((1, 2, 4, 4), -math.inf), [2, 2])


def test_gradients_of_pools() -> None:
    def gradients(x: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        pools = (
            functional.max_pool2d(x, 3, 2, 1),
            functional.max_pool2d(x, 2, 1, dilation=2),
            functional.avg_pool2d(x, 3, 2, 1, True, False),
            functional.adaptive_avg_pool2d(x, (3, 2)),
        )
        return [torch.autograd.grad(y.square().sum(), x, retain_graph=True)[0] for y in pools]

    agree(gradients, numbers(2, 3, 8, 9))
    agree(gradients, channels_last(numbers(2, 3, 8, 9)))


# ---- softmax and norms


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dtype: torch.dtype, dim: int) -> None:
    for x in (
        numbers(5, 40, 33, dtype=dtype),
        numbers(33, 40, 5, dtype=dtype).transpose(0, 2),
        numbers(3, 0, 4, dtype=dtype),
    ):
        agree(torch.softmax, x, dim)
        agree(torch.log_softmax, x, dim)


def test_softmax_of_extremes() -> None:
    x = torch.tensor(
        [[0.0, math.inf, 1.0], [-math.inf] * 3, [math.nan, 1.0, 2.0], [1e4, -1e4, 0.0]]
    )
    agree(torch.softmax, x, 1)
    agree(torch.log_softmax, x, 1)
    agree(torch.softmax, torch.tensor(3.0), 0)


@pytest.mark.parametrize("dtype", FLOATING)
def test_norms(dtype: torch.dtype) -> None:
    x = numbers(3, 6, 5, 7, dtype=dtype)
    w, b = numbers(6, dtype=dtype), numbers(6, dtype=dtype)
    agree(functional.layer_norm, x, (5, 7), numbers(5, 7, dtype=dtype), numbers(5, 7, dtype=dtype))
    agree(functional.layer_norm, x, (7,))
    agree(functional.group_norm, x, 3, w, b)
    agree(functional.group_norm, channels_last(x), 2, laid_out_as_on_the_cpu=True)
    statistics = (numbers(6, dtype=dtype), numbers(6, dtype=dtype).abs() + 1)
    agree(functional.batch_norm, x, *statistics, w, b, False)
    agree(functional.layer_norm, x[:0], (7,))


def test_a_norm_of_large_numbers_does_not_cancel() -> None:
    agree(functional.layer_norm, numbers(4, 1000) + 1e4, (1000,), rtol=1e-3, atol=1e-3)
    agree(functional.group_norm, numbers(2, 4, 300) + 1e3, 2, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_with_gaps(dtype: torch.dtype, training: bool) -> None:
    def normed(x: Tensor, statistics: Tensor) -> tuple[Tensor, ...]:
        weight, bias, mean, variance = statistics.unbind(1)
        y = aten._native_batch_norm_legit(x, weight, bias, mean, variance, training, 0.3, 1e-5)
        z = torch.native_batch_norm(x, weight, bias, mean, variance, training, 0.3, 1e-5)
        return y[0], z[0], statistics

    given = numbers(6, 5, 4, dtype=dtype), numbers(5, 4, dtype=dtype).abs() + 1
    with no_fallback("aten::_native_batch_norm_legit"):
        ours, theirs = on_device(normed, *given), normed(*given)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.cpu(), other, rtol=5e-2, atol=5e-2)
    assert training == (not torch.equal(theirs[2], numbers(5, 4, dtype=dtype).abs() + 1))


# ---- transforms


@pytest.mark.parametrize("length", [1, 8, 12, 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transforms(length: int, dtype: torch.dtype) -> None:
    x, y = numbers(3, 4, length, dtype=dtype), numbers(length, 4, 3, dtype=dtype).permute(2, 1, 0)
    tolerance = 1e-4 if dtype is torch.float32 else 1e-12
    with no_fallback():
        for real in (x, y, x.transpose(0, 1), y[:, 0], x[:1].expand(3, -1, -1)):
            rank = real.dim()
            for dims in ([rank - 1], [0, rank - 1], [rank - 1, 0], list(range(rank))):
                how: dict[str, Any] = {
                    "laid_out_as_on_the_cpu": True,
                    "rtol": tolerance,
                    "atol": tolerance,
                }
                agree(aten._fft_r2c, real, dims, 0, True, **how)
                agree(aten._fft_r2c, real, dims, 1, False, **how)
                z = torch.complex(real, real.flip(0))
                agree(aten._fft_c2c, z, dims, 2, True, **how)
                agree(aten._fft_c2c, z, dims, 0, False, **how)
                agree(aten._fft_c2r, z, dims, 2, 2 * z.shape[dims[-1]] - 1, **how)


def test_an_out_that_a_transform_resizes_is_contiguous() -> None:
    x = torch.rand(2, 3, 4)
    for given in (x, on_device(torch.clone, x)):
        out = torch.empty(0, dtype=torch.complex64, device=given.device)
        assert aten._fft_r2c.out(given, [1, 0], 0, True, out=out).is_contiguous()
        assert aten._fft_c2c.out(given + 0j, [1, 0], 0, True, out=out).is_contiguous()


def test_quarters_of_a_turn_are_exact() -> None:
    waves = torch.tensor([[1.0, 0, -1, 0], [0, 1, 0, -1]], dtype=torch.float64)
    found = on_device(torch.fft.fft, waves).cpu()
    assert found.real.count_nonzero() == found.imag.count_nonzero() == 2


def test_gradients_of_norms() -> None:
    def gradients(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
        operands = [each.clone().requires_grad_() for each in (x, w, b)]
        norms = (
            functional.layer_norm(operands[0], (5, 6), operands[1], operands[2]),
            functional.group_norm(operands[0], 2, operands[1][:, 0][:4], operands[2][:, 0][:4]),
        )
        return [
            each
            for y in norms
            for each in torch.autograd.grad(
                (y * y.detach().cos()).sum(), operands, retain_graph=True
            )
        ]

    agree(gradients, numbers(3, 4, 5, 6), numbers(5, 6), numbers(5, 6), rtol=1e-4, atol=1e-4)


# ---- images


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images_of_another_size(align_corners: bool, layout: torch.memory_format) -> None:
    x = numbers(2, 3, 5, 7).contiguous(memory_format=layout)
    how = {"mode": "bilinear", "align_corners": align_corners}
    agree(functional.interpolate, x, size=(9, 4), **how)
    agree(functional.interpolate, x, scale_factor=1.7, recompute_scale_factor=False, **how)
    agree(functional.interpolate, x, size=(9, 4), mode="nearest")
    agree(functional.interpolate, x, scale_factor=(0.6, 2.3), mode="nearest")


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_images_at_the_places_of_a_grid(mode: str, padding_mode: str, align_corners: bool) -> None:
    image, grid = numbers(2, 3, 6, 5), numbers(2, 4, 7, 2) / 2
    grid[0, 0, 0] = torch.tensor([50.0, -70.0])
    how = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    agree(functional.grid_sample, image, grid, **how, rtol=1e-4, atol=1e-4)


def test_windows_as_columns_and_back() -> None:
    how = {"dilation": (1, 2), "padding": (1, 0), "stride": (2, 1)}
    agree(functional.unfold, numbers(2, 3, 6, 7), (3, 2), **how)
    agree(functional.fold, numbers(2, 3 * 6, 15), (6, 7), (3, 2), **how)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, math.inf])
def test_distances(p: float) -> None:
    how = {"rtol": 1e-4, "atol": 1e-4}
    agree(torch.cdist, numbers(2, 1, 5, 3), numbers(4, 6, 3) / 2, p, **how)
    agree(functional.pdist, numbers(6, 4), p, **how)


# ---- what is refused


def test_errors_say_the_operator_and_the_cause() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        on_device(torch.mm, numbers(2, 3), numbers(2, 3))
    x = numbers(1, 1, 4, 4)
    with pytest.raises(
        RuntimeError,
        match=r"max_pool2d_with_indices_backward.*found an invalid max index: 99 \(input of 16 elements",
    ):
        grad, places = numbers(1, 1, 2, 2), torch.full((1, 1, 2, 2), 99)
        on_device(
            aten.max_pool2d_with_indices_backward,
            grad,
            x,
            [2, 2],
            [2, 2],
            [0, 0],
            [1, 1],
            False,
            places,
        )
