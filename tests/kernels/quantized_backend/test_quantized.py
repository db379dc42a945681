"""The quantized library on a PyTorch device, against PyTorch's reference on the CPU: bit for bit.

In ExecuTorch: ``test_kernels_in_executorch.py``, and whole models in ``test_executorch_end_to_end.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from fell_back import fell_back
from instruction_sets import skip_unsupported

# In the default run the widest; the others compute the same calls in ``test_kernels_in_executorch.py``.
pytestmark = pytest.mark.isolated(
    OPSMITH_ISA=("", "baseline", "avx2"), nightly=("baseline", "avx2")
)
skip_unsupported()

LOADED = opsmith.load(str(Path(__file__).with_name("backend.yaml")))
DEVICE = "quantsim"

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
EDGES = torch.tensor(
    [
        *(0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, math.inf, -math.inf, math.nan),
        *(8388607.5, 4194304.5, -4194303.5, 1e-40),
    ]
)
SHAPES = ((), (0,), (1,), (7,), (3, 5), (4, 600), (2, 3, 5, 5), (2, 0, 3))

pt2e = torch.ops.quantized_decomposed


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def fallbacks() -> Iterator[Callable[[], set[str]]]:
    """The operators that ran on the CPU since the test began."""
    start = opsmith.fallbacks()
    yield lambda: fell_back(opsmith.fallbacks(since=start))


def there(value: Any) -> Any:
    return value.to(DEVICE) if isinstance(value, Tensor) else value


def agree(operator: Any, *args: Any, **kwargs: Any) -> None:
    """The operator gives on the device what it gives on the CPU, bit for bit."""
    theirs = operator(*args, **kwargs)
    ours = operator(*map(there, args), **kwargs)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    for mine, reference in pairs:
        assert mine.device.type == DEVICE
        assert mine.dtype == reference.dtype
        torch.testing.assert_close(mine.cpu(), reference, rtol=0, atol=0, equal_nan=True)


def limits(dtype: torch.dtype) -> tuple[int, int]:
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


def integers(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    low, high = limits(dtype)
    return torch.randint(low, high + 1, shape).to(dtype)


def images() -> tuple[Tensor, ...]:
    """One image in several layouts, dense and not."""
    x = torch.randn(2, 3, 5, 7) * 40
    return (
        x,
        x.to(memory_format=torch.channels_last),
        x.transpose(1, 3),
        x[:, :, ::2],
        x.permute(3, 0, 2, 1),
    )


# ---- quantize


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
def test_quantize_per_tensor(source: torch.dtype, target: torch.dtype) -> None:
    low, high = limits(target)
    for shape in SHAPES:
        x = (torch.randn(shape) * 40).to(source)
        for scale, zero_point in ((0.1, 0), (0.033, 7), (3.7, 5)):
            agree(pt2e.quantize_per_tensor.default, x, scale, zero_point, low, high, target)
            agree(pt2e.quantize_per_tensor.default, x, scale, zero_point, 0, 10, target)
            tensors = torch.tensor([scale], dtype=torch.float64), torch.tensor(zero_point)
            agree(pt2e.quantize_per_tensor.tensor, x, *tensors, low, high, target)
    for scale in (1.0, 0.5, 0.1):  # halves to even, NaN, infinities, what does not fit
        agree(pt2e.quantize_per_tensor.default, EDGES.to(source), scale, 3, low, high, target)
    for image in images():
        agree(pt2e.quantize_per_tensor.default, image.to(source), 0.1, 1, low, high, target)


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("scales", [torch.float32, torch.float64])
def test_quantize_per_channel(scales: torch.dtype, target: torch.dtype) -> None:
    low, high = limits(target)
    shaped = [(image, axis) for image in images() for axis in (0, 1, 2, 3, -1, -2)]
    for shape, axis in (
        *(((300,), 0), ((5, 1000), 0), ((5, 1000), 1), ((64, 3, 3, 3), 0), ((2, 20000), 1)),
        *(((0, 3), 0), ((0, 3), 1), ((3, 0), 0), ((1, 5), 0)),
    ):
        shaped.append((torch.randn(shape) * 40, axis))
    for source in FLOATS:
        for x, axis in shaped:
            count = x.shape[axis]
            for zeros in (torch.int64, torch.int32, torch.float32):
                agree(
                    pt2e.quantize_per_channel.default,
                    x.to(source),
                    (torch.rand(count) * 0.2 + 0.01).to(scales),
                    torch.randint(0, 9, (count,)).to(zeros),
                    axis,
                    low,
                    high,
                    target,
                )


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("scales", [torch.float32, torch.float64])
def test_quantize_per_token(scales: torch.dtype, target: torch.dtype) -> None:
    low, high = limits(target)
    for shape in ((4, 9), (2, 3, 700), (1, 5), (5, 1), (0, 4), (3, 0)):
        tokens = (*shape[:-1], 1)
        for source in FLOATS:
            agree(
                pt2e.quantize_per_token.default,
                (torch.randn(shape) * 40).to(source),
                (torch.rand(tokens) * 0.2 + 0.01).to(scales),
                torch.randint(0, 9, tokens),
                low,
                high,
                target,
            )


# ---- dequantize


@pytest.mark.parametrize("target", [None, torch.float64, *FLOATS])
@pytest.mark.parametrize("source", INTEGERS)
def test_dequantize_per_tensor(source: torch.dtype, target: torch.dtype | None) -> None:
    low, high = limits(source)
    for shape in SHAPES:
        x = integers(shape, source)
        for scale, zero_point in ((0.1, 0), (0.033, 7), (3.7e-3, -5), (1e-3, 100000)):
            rest = (low, high, source)
            agree(pt2e.dequantize_per_tensor.default, x, scale, zero_point, *rest, out_dtype=target)
            tensors = torch.tensor(scale), torch.tensor([zero_point])
            agree(pt2e.dequantize_per_tensor.tensor, x, *tensors, *rest, out_dtype=target)


@pytest.mark.parametrize("target", [None, torch.float64, *FLOATS])
@pytest.mark.parametrize("source", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_dequantize_per_channel_and_token(source: torch.dtype, target: torch.dtype | None) -> None:
    low, high = limits(source)
    for image in images():
        x = torch.empty_like(image, dtype=source).copy_(integers(tuple(image.shape), source))
        for axis in (0, 1, 2, 3, -1):
            count = x.shape[axis]
            zeros = torch.randint(0, 9, (count,))
            far = torch.randint(-(2**31), 2**31, (count,))  # what no float holds exactly
            for zero_points in (None, zeros, zeros.int(), zeros.float(), far):
                for dtype in (torch.float32, torch.float64):
                    scales = (torch.rand(count) * 0.2 + 0.01).to(dtype)
                    agree(
                        pt2e.dequantize_per_channel.default,
                        *(x, scales, zero_points, axis, low, high, source),
                        out_dtype=target,
                    )
    for shape in ((4, 9), (2, 3, 700), (5, 1), (0, 4)):
        tokens = (*shape[:-1], 1)
        for dtype in (torch.float32, torch.float64):
            agree(
                pt2e.dequantize_per_token.default,
                integers(shape, source),
                (torch.rand(tokens) * 0.2 + 0.01).to(dtype),
                torch.randint(-4, 9, tokens),
                low,
                high,
                source,
                target or torch.float32,
            )


# ---- parameters


@pytest.mark.parametrize("source", FLOATS)
def test_choose_qparams(source: torch.dtype) -> None:
    for shape in ((), (1,), (17,), (5, 1000), (2, 3, 33)):
        for magnitude in (1e-9, 0.001, 1.0, 100.0):
            for offset in (0.0, 3.0, -3.0):
                x = ((torch.randn(shape) + offset) * magnitude).to(source)
                for dtype in (torch.int8, torch.uint8, torch.int16):
                    agree(pt2e.choose_qparams.tensor, x, *limits(dtype), 1e-10, dtype)
                if shape:
                    agree(pt2e.choose_qparams_per_token_asymmetric.default, x, torch.int8)
    for edges in (EDGES.to(source), EDGES[:11].to(source)):  # with NaN, and with infinity
        agree(pt2e.choose_qparams.tensor, edges, -128, 127, 1e-10, torch.int8)
        agree(pt2e.choose_qparams.tensor, edges, 0, 255, 1e-10, torch.uint8)
    agree(
        pt2e.choose_qparams_per_token_asymmetric.default, EDGES.reshape(4, 4).to(source), torch.int8
    )


# ---- other dtypes


X, FLOAT_ZEROS = torch.linspace(-3, 3, 12).reshape(3, 4), torch.ones(3, dtype=torch.float64)
SHORT_ZERO, HALF_SCALES = torch.tensor(1, dtype=torch.int16), torch.full((3, 1), 0.5).half()
INT8 = (-128, 127, torch.int8)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (pt2e.quantize_per_tensor.tensor, (X, torch.tensor(0.5), SHORT_ZERO, *INT8)),
        (pt2e.quantize_per_channel.default, (X, torch.ones(3), FLOAT_ZEROS, 0, *INT8)),
        (pt2e.quantize_per_token.default, (X, HALF_SCALES, torch.ones(3, 1), *INT8)),
        (pt2e.dequantize_per_tensor.tensor, (X.char(), torch.tensor(0.5), SHORT_ZERO, *INT8)),
        (pt2e.dequantize_per_channel.default, (X.char(), torch.ones(3), FLOAT_ZEROS, 0, *INT8)),
        (pt2e.choose_qparams_per_token_asymmetric.default, (X.double(), torch.int8)),
    ],
    ids=str,
)
def test_other_dtypes_are_computed_on_the_cpu(
    operator: Any, arguments: tuple[Any, ...], fallbacks: Callable[[], set[str]]
) -> None:
    agree(operator, *arguments)
    assert operator.name() in fallbacks()


# ---- what is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: pt2e.quantize_per_tensor(x, 0.1, 0, -129, 127, torch.int8),
            "quant_min -129 and quant_max 127 are not within -128…127, which Char holds",
        ),
        (
            lambda x: pt2e.quantize_per_channel(
                x, there(torch.ones(2)), there(torch.zeros(2)), 0, 0, 255, torch.uint8
            ),
            "`scales` has 2 elements in 1 dimensions, and has to have 1 dimension of 3, one for each channel",
        ),
        (
            lambda x: pt2e.dequantize_per_tensor(x.to(torch.int8), 0.1, 0, 0, 255, torch.uint8),
            "`input` is Char and has to be Byte",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        call(torch.ones(3, device=DEVICE))
    assert message in str(raised.value)
    assert "(library quantized)" in str(raised.value)


# ---- int8 linear


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_linear_int8(dtype: torch.dtype) -> None:
    linear = torch.ops.opsmith_quantized.linear_int8
    low, high = limits(dtype)
    for rows in (1, 2, 3, 5, 16, 33):
        for columns in (1, 3, 4, 17, 64):
            for length in (1, 3, 63, 64, 65, 200, 1000):
                x = integers((rows, length), dtype)
                weight = integers((columns, length), torch.int8)
                scales, bias = torch.rand(columns) * 0.1 + 0.01, torch.randn(columns)
                zero_point = int(torch.randint(low, high + 1, ()))
                sums = ((x.long() - zero_point) @ weight.long().T).float()
                ours = linear.default(
                    *map(there, (x, 0.05, zero_point, weight, scales, bias))
                ).cpu()
                torch.testing.assert_close(
                    ours, sums * (0.05 * scales) + bias, rtol=1e-6, atol=1e-4
                )
                zero_points = torch.randint(low, high + 1, (rows, 1))
                row_scales = torch.rand(rows, 1)
                sums = ((x.long() - zero_points) @ weight.long().T).float()
                ours = linear.per_token(
                    *map(there, (x, row_scales, zero_points, weight, scales[:1]))
                ).cpu()
                torch.testing.assert_close(
                    ours, sums * (row_scales * scales[:1]), rtol=1e-6, atol=0
                )


@pytest.mark.parametrize("shape", [(0, 5), (2, 3, 8), (5,), (2, 0)])
def test_linear_int8_of_other_shapes(shape: tuple[int, ...]) -> None:
    x, weight = torch.zeros(shape, dtype=torch.int8), torch.ones(6, shape[-1], dtype=torch.int8)
    bias = torch.arange(6.0)
    ours = torch.ops.opsmith_quantized.linear_int8(
        *map(there, (x, 0.1, 0, weight, torch.ones(1), bias))
    )
    assert torch.equal(ours.cpu(), bias.expand(*shape[:-1], 6))
