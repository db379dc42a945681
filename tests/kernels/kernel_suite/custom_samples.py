"""Calls of operators that are not ATen's: quantized, packed products, attention, ``rms_norm``, dim orders.

What they have to give comes from PyTorch's reference of ``quantized_decomposed``, which is written in
Python, or from the definition, in ATen's operators.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # defines quantized_decomposed
from aten_calls import OperatorCall
from llm_samples import llm
from torch import Tensor
from torch.nn import functional

from opsmith.executorch.transforms.grouped_linear import packed_grouped_weight
from opsmith.executorch.transforms.int8_packing import packed_int8_kernel, packed_int8_weight
from opsmith.executorch.transforms.packed_convolution import packed_convolution_weight
from opsmith.executorch.transforms.packed_linear import packed_weight

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_COPIED = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool)
_FORMATS = (torch.contiguous_format, torch.channels_last)
_REFERENCE = torch.ops.quantized_decomposed

# NaN, infinities, halves that go to the even neighbour, what does not fit, numbers without a fraction.
_EDGES = torch.tensor(
    [
        *(0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, math.inf, -math.inf, math.nan),
        *(8388607.5, 4194304.5, -4194303.5, 1e-40),
    ]
)


def custom() -> Iterator[OperatorCall]:
    """All of them."""
    torch.manual_seed(0)
    yield from _quantize()
    yield from _dequantize()
    yield from _choose()
    yield from _linear_int8()
    yield from _linear_8da4w()
    yield from _linear_requantized()
    yield from _conv2d_int8()
    yield from _max_pool2d_int8()
    yield from _add_int8()
    yield from _packed()
    yield from _activated_linear()
    yield from _packed_convolutions()
    yield from _rms_norm()
    yield from _add_norm()
    yield from _bias_gelu()
    yield from _rope()
    yield from _add_bytes()
    yield from _attention()
    yield from _safe_softmax()
    yield from _dim_orders()
    yield from llm()


def _images() -> list[Tensor]:
    x = torch.randn(2, 3, 5, 7) * 40
    return [
        x,
        x.to(memory_format=torch.channels_last),
        x.permute(3, 0, 2, 1).contiguous().permute(1, 3, 2, 0),
    ]


def _inputs() -> list[Tensor]:
    shapes = ((), (0,), (7,), (3, 5), (4, 600), (2, 0, 3))
    return [*(torch.randn(shape) * 40 for shape in shapes), *_images(), _EDGES]


def _limits(dtype: torch.dtype) -> tuple[int, int]:
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


def _call(name: str, reference: Any, *arguments: Any) -> OperatorCall:
    """A call of ``quantized_decomposed::name`` and what its ``reference`` gives."""
    result = reference(*arguments)
    results = tuple(result) if isinstance(result, tuple) else (result,)
    copies = tuple(each.clone() if isinstance(each, Tensor) else each for each in arguments)
    return OperatorCall(
        f"quantized_decomposed::{name}", copies, results, origin="by PyTorch's reference"
    )


def _quantize() -> Iterator[OperatorCall]:
    for source, target in itertools.product(FLOATS, INTEGERS):
        low, high = _limits(target)
        for x in _inputs():
            for scale, zero_point in ((0.1, 0), (0.5, 7)):
                rest = (low, high, target)
                of_tensor = _REFERENCE.quantize_per_tensor.default
                yield _call(
                    "quantize_per_tensor.out", of_tensor, x.to(source), scale, zero_point, *rest
                )
                tensors = torch.tensor([scale], dtype=torch.float64), torch.tensor([zero_point])
                of_tensor = _REFERENCE.quantize_per_tensor.tensor
                yield _call(
                    "quantize_per_tensor.Tensor_out", of_tensor, x.to(source), *tensors, *rest
                )
        for x, axis in ((torch.randn(64, 3, 3, 3) * 40, 0), *((image, 1) for image in _images())):
            for scales, zeros in ((torch.float32, torch.int64), (torch.float64, torch.int32)):
                count = x.shape[axis]
                parameters = (
                    (torch.rand(count) + 0.01).to(scales),
                    torch.randint(0, 9, (count,)).to(zeros),
                )
                yield _call(
                    "quantize_per_channel.out", _REFERENCE.quantize_per_channel.default, x.to(source),
                    *parameters, axis, low, high, target,
                )  # fmt: skip
        for shape in ((4, 9), (2, 3, 70), (0, 4)):
            parameters = torch.rand(*shape[:-1], 1) + 0.01, torch.randint(0, 9, (*shape[:-1], 1))
            yield _call(
                "quantize_per_token.out", _REFERENCE.quantize_per_token.default,
                (torch.randn(shape) * 40).to(source), *parameters, low, high, target,
            )  # fmt: skip


def _dequantize() -> Iterator[OperatorCall]:
    def integers(like: Tensor, dtype: torch.dtype) -> Tensor:
        low, high = _limits(dtype)
        return torch.empty_like(like, dtype=dtype).copy_(torch.randint(low, high + 1, like.shape))

    for source, target in itertools.product(INTEGERS, (torch.float64, *FLOATS)):
        limits = _limits(source)
        for like in _inputs():
            x = integers(like, source)

            def of_tensor(*arguments: Any) -> Tensor:
                return _REFERENCE.dequantize_per_tensor(*arguments[:-1], out_dtype=arguments[-1])

            yield _call(
                "dequantize_per_tensor.out", of_tensor, x, 3.7e-3, -5, *limits, source, target
            )
            tensors = torch.tensor([0.1]), torch.tensor([7])
            yield _call(
                "dequantize_per_tensor.Tensor_out", of_tensor, x, *tensors, *limits, source, target
            )
        if source == torch.uint16:
            continue  # the reference subtracts in it
        for image, axis in itertools.product(_images(), (0, -1)):
            count = image.shape[axis]
            zeros = torch.randint(0, 9, (count,))

            def of_channels(*arguments: Any) -> Tensor:
                return _REFERENCE.dequantize_per_channel(*arguments[:-1], out_dtype=arguments[-1])

            for zero_points in (None, zeros, zeros.float()):
                yield _call(
                    "dequantize_per_channel.out", of_channels, integers(image, source),
                    torch.rand(count) + 0.01, zero_points, axis, *limits, source, target,
                )  # fmt: skip
        for shape in ((4, 9), (0, 4)):
            tokens = (*shape[:-1], 1)
            yield _call(
                "dequantize_per_token.out", _REFERENCE.dequantize_per_token.default,
                integers(torch.empty(shape), source), torch.rand(tokens) + 0.01, torch.randint(-4, 9, tokens),
                *limits, source, target,
            )  # fmt: skip


def _choose() -> Iterator[OperatorCall]:
    for source in FLOATS:
        for x in (*(torch.randn(n) * 3 + 1 for n in ((), (17,), (5, 100))), _EDGES, _EDGES[:11]):
            for dtype in (torch.int8, torch.uint8):
                rest = (*_limits(dtype), 1e-10, dtype)
                yield _call(
                    "choose_qparams.Tensor_out",
                    _REFERENCE.choose_qparams.tensor,
                    x.to(source),
                    *rest,
                )
            if x.dim():
                yield _call(
                    "choose_qparams_per_token_asymmetric.out",
                    _REFERENCE.choose_qparams_per_token_asymmetric.default, x.to(source), torch.int8,
                )  # fmt: skip


def _defined(operator: str, result: Tensor | tuple[Tensor, ...], *arguments: Any) -> OperatorCall:
    results = result if isinstance(result, tuple) else (result,)
    return OperatorCall(operator, arguments, results, origin="by definition")


def _linear_int8() -> Iterator[OperatorCall]:
    name = "opsmith_quantized::linear_int8"
    sizes = itertools.product((1, 3, 16, 33), (1, 4, 17, 70), (1, 63, 64, 65, 200))
    for (rows, columns, length), dtype in itertools.product(sizes, (torch.int8, torch.uint8)):
        low, high = _limits(dtype)
        x = torch.randint(low, high + 1, (rows, length)).to(dtype)
        weight = torch.randint(-128, 128, (columns, length)).to(torch.int8)
        scales, bias = torch.rand(columns) * 0.1 + 0.01, torch.randn(columns)
        sums = ((x.long() - 3) @ weight.long().T).float()
        yield _defined(
            f"{name}.out", sums * (0.05 * scales) + bias, x, 0.05, 3, weight, scales, bias
        )
        zeros, row_scales = torch.randint(low, high + 1, (rows, 1)), torch.rand(rows, 1)
        sums = ((x.long() - zeros) @ weight.long().T).float()
        given: tuple[Any, ...] = (x, row_scales, zeros, weight, scales[:1].clone(), None)
        yield _defined(f"{name}.per_token_out", sums * (row_scales * scales[:1]), *given)
        zero, scale = torch.tensor([3]), torch.tensor([0.05], dtype=torch.float64)
        sums = ((x.long() - 3) @ weight.long().T).float()
        shared = x, scale, zero, weight, scales, bias
        yield _defined(f"{name}.per_token_out", sums * (0.05 * scales) + bias, *shared)
    x, weight = torch.zeros(2, 3, 8, dtype=torch.int8), torch.ones(6, 8, dtype=torch.int8)
    bias = torch.arange(6.0)
    yield _defined(
        f"{name}.out", bias.expand(2, 3, 6).clone(), x, 0.1, 0, weight, torch.ones(1), bias
    )


# Powers of two, by which results are exact before they are rounded; the range is that of an activation.
_RESULTS = ((0.25, 3, -128, 127), (2.0, -128, -128, 127), (0.5, 5, 5, 90))


def _bytes(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    low, high = _limits(dtype)
    return torch.randint(low, high + 1, shape).to(dtype)


def _results(dtype: torch.dtype) -> Iterator[tuple[float, int, int, int]]:
    """Scales, zero points and ranges of results of ``dtype``."""
    shift = 128 if dtype == torch.uint8 else 0
    for scale, *integers in _RESULTS:
        zero, low, high = (each + shift for each in integers)
        yield scale, zero, low, high


def _requantized(
    values: Tensor, quantization: tuple[float, int, int, int], dtype: torch.dtype
) -> Tensor:
    scale, zero, low, high = quantization
    return (torch.round(values.double() / scale) + zero).clamp(low, high).to(dtype)


def _scales_and_bias(columns: int) -> tuple[Tensor, Tensor]:
    return 2.0 ** torch.randint(-9, -4, (columns,)), torch.randint(-40, 40, (columns,)) / 8


def _linear_requantized() -> Iterator[OperatorCall]:
    name = "opsmith_quantized::linear_int8.requantized_out"
    sizes = itertools.product((1, 3, 8, 33), (1, 16, 40, 70), (1, 4, 63, 300))
    for (rows, columns, length), dtype in itertools.product(sizes, (torch.int8, torch.uint8)):
        x, weight = _bytes((rows, length), dtype), _bytes((columns, length), torch.int8)
        scales, bias = _scales_and_bias(columns)
        packed, zero = packed_int8_weight(weight), 7
        sums = (x.double() - zero) @ weight.double().T * (0.125 * scales)
        for quantization in _results(dtype):
            result = _requantized(sums + bias, quantization, dtype)
            given = x, 0.125, zero, packed, scales, bias, columns, *quantization
            yield _defined(name, result, *given)
        result = _requantized(sums, quantization, dtype)
        bare = x[None], 0.125, zero, packed, scales, None, columns, *quantization
        yield _defined(name, result[None], *bare)


def _conv2d_int8() -> Iterator[OperatorCall]:
    # Channels, those of the result, groups, size, kernel, stride, padding, dilation.
    shapes = (
        (3, 8, 1, (7, 9), (3, 3), [1, 1], [1, 1], [1, 1]),
        (3, 70, 1, (12, 11), (7, 5), [2, 2], [3, 2], [1, 1]),
        (8, 20, 1, (9, 9), (1, 1), [2, 1], [0, 0], [1, 1]),
        (6, 10, 2, (8, 8), (3, 2), [1, 2], [2, 0], [2, 3]),
        (70, 70, 70, (6, 5), (3, 3), [1, 1], [1, 1], [1, 1]),  # depthwise
        (5, 10, 5, (6, 5), (3, 3), [2, 2], [1, 1], [1, 1]),  # two channels of each
        (1, 1, 1, (3, 3), (3, 3), [1], [0], [1]),
        (16, 33, 1, (40, 40), (3, 3), [1, 1], [1, 1], [1, 1]),
        (128, 17, 1, (34, 30), (3, 3), [1, 1], [1, 1], [1, 1]),  # more than is gathered at once
    )
    for (channels, outside, groups, size, kernel, *window), dtype in itertools.product(
        shapes, (torch.int8, torch.uint8)
    ):
        stride, padding, dilation = window
        x = _bytes((2, channels, *size), dtype)
        weight = _bytes((outside, channels // groups, *kernel), torch.int8)
        scales, bias = _scales_and_bias(outside)
        sums = functional.conv2d(
            x.double() - 7, weight.double(), None, stride, padding, dilation, groups
        )
        values = sums * (0.0625 * scales).view(-1, 1, 1)
        packed = packed_int8_kernel(weight, groups)
        window = [list(kernel), stride, padding, dilation, groups]
        for place, quantization in enumerate(_results(dtype)):
            added = None if place == 1 else bias
            total = values if added is None else values + added.view(-1, 1, 1)
            result = _requantized(total, quantization, dtype)
            for layout in _FORMATS[: 1 + (place == 0)]:
                given = x.contiguous(memory_format=layout), 0.0625, 7, packed, scales, added
                yield _defined(
                    "opsmith_quantized::conv2d_int8.out",
                    result.contiguous(memory_format=torch.channels_last),
                    *given, outside, *window, *quantization,
                )  # fmt: skip


def _max_pool2d_int8() -> Iterator[OperatorCall]:
    windows: tuple[tuple[Any, ...], ...] = (
        ([3, 3], [2, 2], [1, 1], [1, 1], False),
        ([2], [2], [0], [1], False),
        ([3, 2], [2, 3], [1, 0], [2, 1], True),
        ([2, 2], [], [0, 0], [1, 1], True),
    )
    for window, dtype, layout in itertools.product(windows, (torch.int8, torch.uint8), _FORMATS):
        x = _bytes((2, 70, 9, 8), dtype).contiguous(memory_format=layout)
        kernel, stride, padding, dilation, ceil_mode = window
        result = functional.max_pool2d(
            x.float(), kernel, stride or None, padding, dilation, ceil_mode
        ).to(dtype)
        yield _defined(
            "opsmith_quantized::max_pool2d_int8.out",
            result.contiguous(memory_format=torch.channels_last),
            x,
            *window,
        )


def _add_int8() -> Iterator[OperatorCall]:
    shapes = ((), (1,), (70,), (3, 5), (2, 3, 5, 7), (0, 3))
    for shape, dtype in itertools.product(shapes, (torch.int8, torch.uint8)):
        a, b = _bytes(shape, dtype), _bytes(shape, dtype)
        values = (a.double() - 4) * 0.25 + (b.double() - 9) * 0.0625
        for quantization in _results(dtype):
            given = a, 0.25, 4, b, 0.0625, 9, *quantization
            result = _requantized(values, quantization, dtype)
            yield _defined("opsmith_quantized::add_int8.out", result, *given)
            if len(shape) == 4:
                laid = (each.contiguous(memory_format=torch.channels_last) for each in (a, result))
                first, result = laid
                given = first, 0.25, 4, b, 0.0625, 9, *quantization
                yield _defined("opsmith_quantized::add_int8.out", result, *given)


def _quantized_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """By torchao's rule for asymmetric int8: the integers less their row's zero point, and its scale."""
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).smallest_normal)
    zero = (-128 - torch.round(low / scale)).clamp(-128, 127)
    return (torch.round(x * (1 / scale)) + zero).clamp(-128, 127) - zero, scale


def _linear_8da4w() -> Iterator[OperatorCall]:
    # Sums of several blocks of unpacked columns, and groups that are no whole steps.
    groups = ((1, 1), (1, 7), (2, 8), (3, 32), (1, 300), (5, 20))
    for rows, features, (count, group) in itertools.product((1, 2, 7, 33), (1, 16, 40, 70), groups):
        weight = torch.randint(-8, 8, (features, count * group), dtype=torch.int8)
        scales, bias = torch.rand(features, count) * 0.1 + 0.01, torch.randn(features)
        x = torch.randn(rows, count * group) * 3
        packed = packed_grouped_weight(weight, scales)
        values, row_scales = _quantized_rows(x)
        wide = weight.double() * scales.double().repeat_interleave(group, 1)
        sums = (values.double() @ wide.T) * row_scales
        name = "opsmith_quantized::linear_8da4w.out"
        yield _defined(name, (sums + bias).float(), x, *packed, bias, features)
        yield _defined(name, sums.float()[None], x[None], *packed, None, features)
    packed = packed_grouped_weight(torch.ones(3, 8, dtype=torch.int8), torch.ones(3, 2))
    for edge, filled in ((0.0, 0.0), (1e-42, 0.0), (math.nan, math.nan), (math.inf, math.nan)):
        x = torch.zeros(2, 8)
        x[1, 3] = edge
        result = torch.zeros(2, 3)
        result[1] = filled
        yield _defined("opsmith_quantized::linear_8da4w.out", result, x, *packed, None, 3)


def _packed() -> Iterator[OperatorCall]:
    for dtype in FLOATS:
        sizes = itertools.product((1, 2, 5, 16, 33), (1, 7, 64), (1, 15, 16, 17, 64, 100))
        for rows, depth, features in sizes:
            x, weight, bias = (
                torch.randn(n).to(dtype) for n in ((rows, depth), (features, depth), features)
            )
            packed = packed_weight(weight).contiguous()
            yield _defined("optimized::pack_linear_weight.out", packed, weight)
            result = functional.linear(x.double(), weight.double(), bias.double()).to(dtype)
            plain = features, None, "none"
            yield _defined("optimized::linear_packed.out", result, x, packed, bias, *plain)
            result = functional.linear(x.double(), weight.double()).to(dtype)
            yield _defined(
                "optimized::linear_packed.out", result[None], x[None], packed, None, *plain
            )


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": functional.relu,
    "relu6": functional.relu6,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def _activated_linear() -> Iterator[OperatorCall]:
    """The addend and the activation come after the product has been rounded."""
    for dtype, (name, activation) in itertools.product(FLOATS, _ACTIVATIONS.items()):
        x, weight, other = (torch.randn(n).to(dtype) for n in ((5, 7), (70, 7), (5, 70)))
        packed = packed_weight(weight).contiguous()
        product = functional.linear(x.double(), weight.double()).to(dtype)
        for added in (None, other):
            result = activation(product if added is None else product + added)
            yield _defined("optimized::linear_packed.out", result, x, packed, None, 70, added, name)


# Batch, channels, image, output channels, kernel, stride, padding, dilation, groups.
_CONVOLVED = (
    (1, 3, (19, 23), 16, (3, 3), (2, 2), (1, 1), (1, 1), 1),  # few channels: rows of the kernel
    (2, 20, (9, 7), 33, (3, 2), (1, 2), (2, 0), (1, 2), 1),
    (1, 17, (12, 12), 70, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (3, 576, (1, 1), 40, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (1, 300, (7, 7), 64, (3, 3), (1, 1), (1, 1), (1, 1), 1),  # a weight in parts
    (2, 37, (9, 8), 37, (5, 5), (2, 1), (2, 2), (1, 1), 37),  # depthwise
    (1, 72, (14, 14), 72, (3, 3), (1, 1), (1, 1), (2, 2), 72),
    (2, 12, (6, 6), 32, (2, 3), (1, 1), (0, 1), (1, 1), 4),
    (0, 3, (8, 8), 8, (3, 3), (1, 1), (1, 1), (1, 1), 1),
)


def _packed_convolutions() -> Iterator[OperatorCall]:
    activations = itertools.cycle(_ACTIVATIONS.items())
    for batch, channels, size, features, kernel, stride, padding, dilation, groups in _CONVOLVED:
        image = torch.randn(batch, channels, *size)
        weight, bias = torch.randn(features, channels // groups, *kernel), torch.randn(features)
        weight /= math.sqrt(weight[0].numel())  # results are about as large as the image
        packed = packed_convolution_weight(weight, groups)
        settings = (stride, padding, dilation, groups)
        # Strides of an image without elements do not tell its layout.
        for has_bias, adds in itertools.product((False, True), (False, True)[: 1 + (batch > 0)]):
            sums = functional.conv2d(
                image.double(), weight.double(), bias.double() if has_bias else None, *settings
            ).to(memory_format=torch.channels_last)
            other = torch.randn_like(sums).float() if adds else None
            name, activation = next(activations)
            result = activation(sums if other is None else sums + other).float()
            yield _defined(
                "optimized::convolution_packed.out", result,
                image.to(memory_format=torch.channels_last) if adds else image, packed,
                bias if has_bias else None, other, features, [*kernel],
                *([*each] for each in (stride, padding, dilation)), groups, name,
            )  # fmt: skip


def _rms_norm() -> Iterator[OperatorCall]:
    for dtype, n in itertools.product(FLOATS, (1, 7, 16, 33, 1000)):
        x, weight = torch.randn(3, 2, n).to(dtype), torch.randn(n).to(dtype)
        for given, eps in ((weight, 1e-6), (None, None), (weight, 0.5)):
            least = torch.finfo(torch.float32).eps if eps is None else eps  # what ATen computes in
            wide = functional.rms_norm(
                x.double(), (n,), None if given is None else given.double(), least
            )
            yield _defined("optimized::rms_norm.out", wide.to(dtype), x, [n], given, eps)


def _add_norm() -> Iterator[OperatorCall]:
    for dtype, n in itertools.product(FLOATS, (1, 7, 33, 1000)):
        x, residual = (torch.randn(3, 2, n).to(dtype) for _ in range(2))
        total = x + residual
        for weights in (dtype, torch.float32):
            weight, bias = (torch.randn(n).to(weights) for _ in range(2))
            for given, eps in ((weight, 1e-6), (None, None)):
                wide = None if given is None else given.double()
                least = torch.finfo(torch.float32).eps if eps is None else eps
                normed = functional.rms_norm(total.double(), (n,), wide, least).to(dtype)
                results = (normed, total)
                yield _defined("optimized::add_rms_norm.out", results, x, residual, [n], given, eps)
            for given in (weight, None):
                wide = None if given is None else given.double()
                normed = functional.layer_norm(total.double(), (n,), wide, bias.double(), 1e-3)
                results = (normed.to(dtype), total)
                rest = (given, bias, 1e-3)
                yield _defined("optimized::add_layer_norm.out", results, x, residual, [n], *rest)


def _bias_gelu() -> Iterator[OperatorCall]:
    for dtype, n in itertools.product(FLOATS, (0, 1, 7, 33, 1000)):
        x, bias = torch.randn(3, 2, n).to(dtype) * 4, torch.randn(n).to(dtype)
        for how in ("none", "tanh"):
            result = functional.gelu(x.double() + bias.double(), approximate=how).to(dtype)
            yield _defined("optimized::bias_gelu.out", result, x, bias, how)


def turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Rotary embedding in ATen's operators."""
    pairs = cos.shape[-1]
    x, rest = x.split((2 * pairs, x.shape[-1] - 2 * pairs), -1)
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else x.chunk(2, -1)
    both = (first * cos - second * sin, second * cos + first * sin)
    whole = torch.stack(both, -1).flatten(-2) if interleaved else torch.cat(both, -1)
    return torch.cat([whole, rest], -1)


def _rope() -> Iterator[OperatorCall]:
    sizes = (
        ((2, 5, 3, 64), (5, 1, 32)),  # [batch, positions, heads, dim]
        ((2, 3, 5, 66), (2, 1, 5, 33)),  # [batch, heads, positions, dim]
        ((4, 20), (4, 7)),  # the rest is not turned
        ((3, 4), (1,)),
        ((7, 2), (7, 1)),
        ((0, 8), (4,)),
    )
    types = (*((each, each) for each in FLOATS), *((each, torch.float32) for each in FLOATS[1:]))
    for (size, own), (dtype, angles), interleaved in itertools.product(sizes, types, (False, True)):
        x, angle = torch.randn(size).to(dtype), torch.randn(own)
        cos, sin = angle.cos().to(angles), angle.sin().to(angles)
        wide = turned(x.double(), cos.double(), sin.double(), interleaved)
        yield _defined("optimized::rope.out", wide.to(dtype), x, cos, sin, interleaved)


def _add_bytes() -> Iterator[OperatorCall]:
    for shape, low, high in (((), 0, 255), ((0,), 0, 255), ((3, 1000), 0, 255), ((70,), 20, 200)):
        a, b = (torch.randint(0, 256, shape).to(torch.uint8) for _ in range(2))
        total = (a.float() - 3) * 0.1 + (b.float() - 250) * 0.2
        result = _REFERENCE.quantize_per_tensor(total, 0.3, 7, low, high, torch.uint8)
        given = (a, 0.1, 3, 0, 255, b, 0.2, 250, 0, 255, 0.3, 7, low, high)
        yield _defined("quantized_decomposed::add.out", result, *given)


def _attention() -> Iterator[OperatorCall]:
    sizes = (
        (1, 1, 1, 1, 1, 1, 3, 3),
        (2, 3, 3, 5, 9, 16, 16, 0),
        (1, 4, 2, 100, 270, 20, 20, 2),  # more than a block of queries, and of keys
        (2, 2, 1, 33, 17, 8, 40, 4),
        (1, 1, 1, 3, 0, 4, 4, 0),
    )
    for (
        batch,
        heads,
        shared,
        queries,
        keys,
        dim,
        value_dim,
        bias_dims,
    ), causal in itertools.product(sizes, (False, True)):
        query = torch.randn(batch, heads, queries, dim)
        key = torch.randn(batch, keys, shared, dim).transpose(1, 2)
        value = torch.randn(batch, shared, keys, value_dim)
        bias = torch.randn(1, heads, queries, keys)[(0,) * (4 - bias_dims)] if bias_dims else None
        if bias is not None and queries > 4:
            bias[..., 4, :] = -math.inf  # sees nothing
        for dtype in FLOATS:
            given = query.to(dtype), key.to(dtype), value.to(dtype)
            mask = None if bias is None else bias.to(dtype)
            yield from _attention_of(*given, mask, causal, 0.3)


def _attention_of(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> Iterator[OperatorCall]:
    dtype, heads = query.dtype, key.shape[:2]
    each_head = query.shape[1] // key.shape[1]
    q = query.double()
    k, v = (each.double().repeat_interleave(each_head, 1) for each in (key, value))
    scores = q @ k.mT * scale
    if bias is not None:
        scores = scores + bias.double()
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
    seen = (scores > -math.inf).any(-1, keepdim=True)
    sums = torch.where(seen, scores, 0).logsumexp(-1, keepdim=True).where(seen, 0)
    weights = (scores - sums).exp()
    out, sums = (weights @ v).to(dtype), sums.squeeze(-1).float()
    given = (query, key, value, bias)
    yield _defined("opsmith_fused::attention.out", (out, sums), *given, causal, scale)
    gradient = torch.randn(out.shape).to(dtype)
    # Of the result as it is given, which has been rounded.
    shifts = (gradient.double() * out.double()).sum(-1, keepdim=True)
    of_scores = weights * (gradient.double() @ v.mT - shifts) * scale
    of_keys, of_values = (
        each.unflatten(1, (heads[1], each_head)).sum(2)
        for each in (of_scores.mT @ q, weights.mT @ gradient.double())
    )
    results = tuple(each.to(dtype) for each in (of_scores @ k, of_keys, of_values))
    rest = (out, sums, causal, scale)
    yield _defined("opsmith_fused::attention_backward.out", results, gradient, *given, *rest)


def _safe_softmax() -> Iterator[OperatorCall]:
    for shape, dim in (((), 0), ((3, 70), -1), ((4, 5, 33), 1), ((70, 3), 0), ((0, 4), 1)):
        x = torch.randn(shape)
        if x.dim() > 1 and x.numel():
            x.select(dim - 1, 1).fill_(-math.inf)
            x.select(dim - 1, 2).select(-1, 0).fill_(math.nan)
        for dtype in FLOATS:
            result = torch.ops.aten._safe_softmax(x.to(dtype).double(), dim)
            yield _defined("opsmith_fused::safe_softmax.out", result.to(dtype), x.to(dtype), dim)


def _dim_orders() -> Iterator[OperatorCall]:
    name, origin = "dim_order_ops::", "by definition"
    last = (0, 2, 3, 1)
    image = torch.randn(2, 3, 4, 5) * 40
    inputs = [torch.randn(shape) * 40 for shape in ((), (7,), (3, 5), (0, 3, 2, 2))]
    for x in (*inputs, image, image.to(memory_format=torch.channels_last)):
        orders = [tuple(range(x.dim())), *([last] if x.dim() == 4 and x.numel() else [])]
        for source, target in itertools.product(_COPIED, _COPIED):
            given = x.abs().to(source)
            results = [(None, given.to(target))]
            results += [
                (list(order), given.to(target, memory_format=_FORMATS[order == last]))
                for order in orders
            ]
            for order, result in results:
                arguments = (given, False, order)
                yield OperatorCall(
                    f"{name}_to_dim_order_copy.out", arguments, (result,), {}, origin
                )
                if source == target:
                    yield OperatorCall(
                        f"{name}_clone_dim_order.out", arguments, (result,), {}, origin
                    )
    # Its values may be anything, so there are none.
    for sizes in ([0], [2, 0, 3]):
        for order in (None, list(range(len(sizes)))):
            nothing = (torch.empty(sizes),)
            yield OperatorCall(f"{name}_empty_dim_order.out", (sizes, order), nothing, {}, origin)
