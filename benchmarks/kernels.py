"""The kernel libraries on a device beside the CPU's own kernels, and in ExecuTorch beside the wheel's.

By size, dtype and number of threads.  out= against out=: both sides pay the dispatcher, and Python in the
same way, and write to a result that is there.  Rounds take turns on the same values.  ``OPSMITH_ISA``
(baseline, avx2, avx512) measures another instruction set of ours; PyTorch's stays as it is, unless
``ATEN_CPU_CAPABILITY`` says otherwise.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from _turns import microseconds_in_turns
from torch import Tensor

import opsmith
from opsmith.build.backend import build_backend
from opsmith.description import find_backend
from opsmith.observe.benchmarks.measurements import Measurement, measured, report

_TESTS = Path(__file__).resolve().parents[1] / "tests"
# Optimized stands first in sim; quantized is alone in its tests' backend. A process loads one.
BACKEND, DEVICE = find_backend("sim"), "sim"
QUANTIZED_BACKEND, QUANTIZED_DEVICE = (
    _TESTS / "kernels" / "quantized_backend" / "backend.yaml",
    "quantsim",
)
SHORT = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
SIZES = [1_000, 10_000, 100_000, 1_000_000, 16_000_000]
# The length of rows, of what goes by rows.
ROW = 1000
THREADS = [1, 2]
ROUNDS = 9
ROUND_SECONDS = 8e-3
# The CPU's time must not be less than this part of ours, and for all together; the same in ExecuTorch, where
# XNNPACK is the peer of single ones.
EACH, TOGETHER = 0.95, 1.5
IN_EXECUTORCH, OF_XNNPACK = 5, 1.0

Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A call on the device and the CPU's; ``counts`` towards the geometric mean of its library."""

    name: str
    operator: str
    counts: bool
    ours: Call
    peer: Call


def elementwise(dtype: torch.dtype, elements: int) -> Iterator[Case]:
    """Functions of one and two operands, sums, softmax and norms."""
    rows = elements // ROW
    short = SHORT[dtype]
    is_float = dtype == torch.float32
    x, y = torch.randn(rows, ROW).to(dtype), torch.randn(rows, ROW).to(dtype)
    weight, bias = torch.randn(ROW).to(dtype), torch.randn(ROW).to(dtype)
    positive = x.abs() + 1e-3

    aten = torch.ops.aten
    like, number = torch.empty_like(x), torch.empty((), dtype=dtype)
    row, column = torch.empty(ROW, dtype=dtype), torch.empty(rows, dtype=dtype)

    def softmax(name: str, dim: int) -> Callable[..., object]:
        return lambda a, out: getattr(aten, f"_{name}").out(a, dim, False, out=out)

    # Names, the callable, its operands and `out`, and whether it counts.
    cases: list[tuple[str, str, Callable[..., object], tuple[Tensor, ...], Tensor, bool]] = [
        *((name, name, getattr(aten, name).out, (x,), like, name == "exp" and is_float)
          for name in ("exp", "sigmoid", "tanh", "silu")),
        ("gelu-erf", "gelu", partial(aten.gelu.out, approximate="none"), (x,), like, is_float),
        ("gelu-tanh", "gelu", partial(aten.gelu.out, approximate="tanh"), (x,), like, is_float),
        *((name, name, getattr(aten, name).out, (positive,), like, False)
          for name in ("log", "log1p", "sqrt", "rsqrt", "exp2", "expm1", "erf", "abs", "neg")),
        ("pow of 2", "pow.Tensor_Scalar", lambda a, out: torch.pow(a, 2, out=out), (x,), like, False),
        ("clamp", "clamp", lambda a, out: torch.clamp(a, -1, 1, out=out), (x,), like, False),
        *((name, name, call, (x,), like, False) for name, call in (
            ("leaky_relu", partial(aten.leaky_relu.out, negative_slope=0.1)),
            ("elu", aten.elu.out), ("softplus", aten.softplus.out), ("hardtanh", aten.hardtanh.out),
        )),
        *((name, f"{name}.Tensor", getattr(torch, name), (x, y), like, False) for name in ("sub", "div")),
        ("div by a number", "div.Tensor", lambda a, out: torch.div(a, 3, out=out), (x,), like, False),
        *((name, name, getattr(torch, name), (x, y), like, False) for name in ("maximum", "minimum")),
        *((f"gradient of {name}", f"{name}_backward", getattr(aten, f"{name}_backward").grad_input,
           (x, y), like, False) for name in ("gelu", "silu", "sigmoid", "tanh")),
        ("where", "where.self", torch.where, (x > 0, x, y), like, False),
        ("add", "add.Tensor", torch.add, (x, y), like, not is_float),
        ("add of a row", "add.Tensor", torch.add, (x, weight), like, False),
        ("mul", "mul.Tensor", torch.mul, (x, y), like, False),
        ("mul by a number", "mul.Tensor", lambda a, out: torch.mul(a, 2.5, out=out), (x,), like, False),
        ("sum", "sum.dim_IntList", partial(aten.sum.IntList_out, dim=None), (x,), number, False),
        ("sum of rows", "sum.dim_IntList", partial(torch.sum, dim=1), (x,), column, False),
        ("sum of columns", "sum.dim_IntList", partial(torch.sum, dim=0), (x,), row, False),
        ("mean of rows", "mean.dim", partial(torch.mean, dim=1), (x,), column, False),
        ("softmax", "_softmax", softmax("softmax", 1), (x,), like, is_float),
        ("softmax of columns", "_softmax", softmax("softmax", 0), (x,), like, False),
        ("log_softmax", "_log_softmax", softmax("log_softmax", 1), (x,), like, False),
    ]  # fmt: skip
    for name, operator, call, operands, out, counts in cases:
        there = [each.to(DEVICE) for each in (*operands, out)]
        result = "grad_input" if name.startswith("gradient") else "out"
        yield Case(
            f"{name} {short}", operator, counts,
            partial(call, *there[:-1], **{result: there[-1]}), partial(call, *operands, **{result: out}),
        )  # fmt: skip
    yield from norms(x, weight, bias, short)


def norms(x: Tensor, weight: Tensor, bias: Tensor, short: str) -> Iterator[Case]:
    """PyTorch's out= of layer_norm copies, and rms_norm has none: both sides allocate."""
    there = [each.to(DEVICE) for each in (x, weight, bias)]
    yield Case(
        f"layer_norm {short}", "native_layer_norm", True,
        lambda: torch.native_layer_norm(there[0], (ROW,), there[1], there[2], 1e-5),
        lambda: torch.native_layer_norm(x, (ROW,), weight, bias, 1e-5),
    )  # fmt: skip
    yield Case(
        f"rms_norm {short}", "rms_norm", short == "f32",
        lambda: torch.ops.optimized.rms_norm(there[0], (ROW,), there[1], 1e-5),
        lambda: torch.rms_norm(x, (ROW,), weight, 1e-5),
    )  # fmt: skip


def extrema(dtype: torch.dtype, elements: int) -> Iterator[Case]:
    """Largest elements, where they are, and variances: of rows, of columns and of all."""
    rows = elements // ROW
    short = "bf16" if dtype == torch.bfloat16 else "f32"
    x = torch.randn(rows, ROW).to(dtype)
    x_there = x.to(DEVICE)
    calls: list[tuple[str, str, Callable[..., object]]] = [
        ("amax of rows", "amax", lambda a: torch.amax(a, 1)),
        ("amax of columns", "amax", lambda a: torch.amax(a, 0)),
        ("max", "max", torch.max),
        ("max of rows and places", "max.dim", lambda a: torch.max(a, 1)),
        ("max of columns and places", "max.dim", lambda a: torch.max(a, 0)),
        ("argmax of rows", "argmax", lambda a: torch.argmax(a, 1)),
        ("argmax", "argmax", torch.argmax),
        ("var of rows", "var.correction", lambda a: torch.var(a, 1, correction=0)),
        ("var of columns", "var.correction", lambda a: torch.var(a, 0, correction=0)),
        ("var", "var.correction", torch.var),
        ("var_mean of rows", "var_mean.correction", lambda a: torch.var_mean(a, 1)),
    ]
    for name, operator, call in calls:
        yield Case(f"{name} {short}", operator, True, partial(call, x_there), partial(call, x))


# Batch, channels, height and width, of 1,000 to 16 million elements.
IMAGES = {
    1_000: (1, 16, 8, 8),
    10_000: (2, 24, 14, 14),
    100_000: (4, 32, 28, 28),
    1_000_000: (8, 40, 56, 56),
    16_000_000: (16, 80, 112, 112),
}


def images(dtype: torch.dtype, elements: int) -> Iterator[Case]:
    """Norms of channels with their gradients, and averages over pixels, in both layouts."""
    aten = torch.ops.aten
    short = "bf16" if dtype == torch.bfloat16 else "f32"
    sizes = IMAGES[elements]
    batch, channels, height, width = sizes
    weight, bias, mean = (torch.randn(channels).to(dtype) for _ in range(3))
    variance = (torch.rand(channels) + 1).to(dtype)
    how = (batch, channels, height * width, 8)
    for layout, order in (("", torch.contiguous_format), (", channels-last", torch.channels_last)):
        x, grad = (torch.randn(sizes).to(dtype).contiguous(memory_format=order) for _ in range(2))
        _, *saved = aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
        _, *of_groups = aten.native_group_norm(x, weight, bias, *how, 1e-5)
        norm = (x, weight, bias, mean, variance)
        batch_gradient = (grad, x, weight, mean, variance, *saved)
        calls: list[tuple[str, str, Callable[..., object], tuple[Tensor, ...]]] = [
            ("batch_norm", "native_batch_norm",
             lambda *a: aten.native_batch_norm(*a, False, 0.1, 1e-5), norm),
            ("batch_norm in training", "native_batch_norm",
             lambda *a: aten.native_batch_norm(*a, True, 0.1, 1e-5), norm),
            ("gradients of batch_norm", "native_batch_norm_backward",
             lambda *a: aten.native_batch_norm_backward(*a, True, 1e-5, [True] * 3), batch_gradient),
            ("group_norm", "native_group_norm",
             lambda *a: aten.native_group_norm(*a, *how, 1e-5), (x, weight, bias)),
            ("gradients of group_norm", "native_group_norm_backward",
             lambda *a: aten.native_group_norm_backward(*a, *how, [True] * 3),
             (grad, x, *of_groups, weight)),
            ("avg_pool 2x2", "avg_pool2d", lambda a: torch.nn.functional.avg_pool2d(a, 2), (x,)),
            ("avg_pool 3x3, stride 1", "avg_pool2d",
             lambda a: torch.nn.functional.avg_pool2d(a, 3, 1, 1), (x,)),
            ("adaptive_avg_pool to 7x7", "_adaptive_avg_pool2d",
             lambda a: aten._adaptive_avg_pool2d(a, [7, 7]), (x,)),
            ("mean over pixels", "mean.dim", lambda a: a.mean((2, 3)), (x,)),
        ]  # fmt: skip
        for name, operator, call, operands in calls:
            there = [each.to(DEVICE) for each in operands]
            yield Case(
                f"{name} {short}{layout}", operator, True,
                partial(call, *there), partial(call, *operands),
            )  # fmt: skip


def movements(dtype: torch.dtype, elements: int) -> Iterator[Case]:
    """Elements that are moved, by their width, and looked up."""
    aten = torch.ops.aten
    short = "bf16" if dtype == torch.bfloat16 else "f32"
    rows = elements // ROW
    x, image = torch.randn(rows, ROW).to(dtype), torch.randn(IMAGES[elements]).to(dtype)
    heads = torch.randn(4, max(1, elements // 1024), 8, 32).to(dtype)
    table, flat = torch.randn(10_000, 64).to(dtype), torch.randn(100_000).to(dtype)
    of_table = torch.randint(10_000, (max(1, elements // 64),))
    of_flat = torch.randint(100_000, (elements,))
    of_rows, of_columns = torch.randint(rows, (rows, ROW)), torch.randint(ROW, (rows, ROW))
    some_columns = torch.randint(ROW, (ROW,))
    last = image.contiguous(memory_format=torch.channels_last)
    calls: list[tuple[str, str, Callable[..., object], tuple[Tensor, ...]]] = [
        ("transpose_copy", "transpose_copy.int", lambda a: aten.transpose_copy(a, 0, 1), (x,)),
        ("permute_copy of heads", "permute_copy", lambda a: aten.permute_copy(a, [0, 2, 1, 3]), (heads,)),
        ("permute_copy to channels last", "permute_copy",
         lambda a: aten.permute_copy(a, [0, 2, 3, 1]), (image,)),
        ("cat of rows", "cat", lambda a: torch.cat([a, a], 0), (x,)),
        ("cat of columns", "cat", lambda a: torch.cat([a, a], 1), (x,)),
        ("cat of channels, channels-last", "cat", lambda a: torch.cat([a, a], 1), (last,)),
        ("stack", "stack", lambda a: torch.stack([a, a], 1), (x,)),
        ("expand_copy", "expand_copy", lambda a: torch.expand_copy(a, (rows, ROW)), (x[:1].clone(),)),
        ("slice_copy", "slice_copy.Tensor", lambda a: torch.slice_copy(a, 1, 0, ROW // 2), (x,)),
        ("embedding", "embedding", torch.embedding, (table, of_table)),
        ("index_select of rows", "index_select", lambda a, i: a.index_select(0, i), (table, of_table)),
        ("index_select of columns", "index_select", lambda a, i: a.index_select(1, i), (x, some_columns)),
        ("index of rows", "index.Tensor", lambda a, i: a[i], (table, of_table)),
        ("index of elements", "index.Tensor", lambda a, i: a[i], (flat, of_flat)),
        ("gather of rows", "gather", lambda a, i: a.gather(1, i), (x, of_columns)),
        ("gather of columns", "gather", lambda a, i: a.gather(0, i), (x, of_rows)),
    ]  # fmt: skip
    for name, operator, call, operands in calls:
        there = [each.to(DEVICE) for each in operands]
        yield Case(
            f"{name} {short}", operator, True, partial(call, *there), partial(call, *operands)
        )


# Batch, channels, output channels, height and width, kernel, groups.
CONVOLUTIONS = {
    "3×3 16→32, 64 of 8×8": (64, 16, 32, 8, 3, 1),
    "3×3 32→64, 64 of 8×8": (64, 32, 64, 8, 3, 1),
    "1×1 64→256, 4 of 56×56": (4, 64, 256, 56, 1, 1),
    "depthwise 3×3 64, 4 of 56×56": (4, 64, 64, 56, 3, 64),
    "3×3 64→64, 64 of 56×56": (64, 64, 64, 56, 3, 1),
}


def convolutions(dtype: torch.dtype) -> Iterator[Case]:
    """Forward and backward, which allocate on both sides: ATen's out= of them copies."""
    short = SHORT[dtype]
    aten = torch.ops.aten
    for name, (batch, channels, out_channels, size, kernel, groups) in CONVOLUTIONS.items():
        x = torch.randn(batch, channels, size, size).to(dtype)
        weight = torch.randn(out_channels, channels // groups, kernel, kernel).to(dtype)
        padding = kernel // 2
        how = ([1, 1], [padding, padding], [1, 1], False, [0, 0], groups)
        grad = torch.randn(batch, out_channels, size, size).to(dtype)
        here = (x, weight, grad)

        def forward(x: Tensor, weight: Tensor, _: Tensor, how: tuple[object, ...] = how) -> object:
            return aten.convolution(x, weight, None, *how)

        def backward(
            x: Tensor, weight: Tensor, grad: Tensor, how: tuple[object, ...] = how
        ) -> object:
            return aten.convolution_backward(grad, x, weight, None, *how, [True, True, False])

        for operator, call in (("convolution", forward), ("convolution_backward", backward)):
            there = [each.to(DEVICE) for each in here]
            yield Case(
                f"{operator} {short} {name}", operator, False,
                lambda call=call, there=there: call(*there),
                lambda call=call, here=here: call(*here),
            )  # fmt: skip


def products(dtype: torch.dtype) -> Iterator[Case]:
    """Linear with weights packed ahead, and products of matrices as they are."""
    short = SHORT[dtype]
    for features, depth in ((64, 64), (1024, 1024), (1024, 4096)):
        weight, bias = torch.randn(features, depth).to(dtype), torch.randn(features).to(dtype)
        packed = torch.ops.optimized.pack_linear_weight(weight.to(DEVICE))
        there, transposed = [each.to(DEVICE) for each in (weight, bias)], weight.t().contiguous()
        transposed_there = transposed.to(DEVICE)
        for rows in (1, 4, 16, 128):
            x, out = torch.randn(rows, depth).to(dtype), torch.empty(rows, features, dtype=dtype)
            x_there, out_there = x.to(DEVICE), out.to(DEVICE)
            size = f"{rows}×{depth}×{features}"

            def packed_linear(
                x: Tensor = x_there,
                out: Tensor = out_there,
                packed: Tensor = packed,
                bias: Tensor = there[1],
            ) -> None:
                torch.ops.optimized.linear_packed.out(x, packed, bias, bias.numel(), out=out)

            def linear(
                x: Tensor = x, out: Tensor = out, weight: Tensor = weight, bias: Tensor = bias
            ) -> None:
                torch.ops.aten.linear.out(x, weight, bias, out=out)

            def addmm(
                x: Tensor = x, out: Tensor = out, weight: Tensor = weight, bias: Tensor = bias
            ) -> None:
                torch.addmm(bias, x, weight.t(), out=out)

            def there_addmm(
                x: Tensor = x_there,
                out: Tensor = out_there,
                weight: Tensor = there[0],
                bias: Tensor = there[1],
            ) -> None:
                torch.addmm(bias, x, weight.t(), out=out)

            def mm(x: Tensor = x, out: Tensor = out, b: Tensor = transposed) -> None:
                torch.mm(x, b, out=out)

            def there_mm(
                x: Tensor = x_there, out: Tensor = out_there, b: Tensor = transposed_there
            ) -> None:
                torch.mm(x, b, out=out)

            yield Case(f"packed linear {short} {size}", "linear", rows <= 16, packed_linear, linear)
            yield Case(f"addmm {short} {size}", "addmm", False, there_addmm, addmm)
            yield Case(f"mm {short} {size}", "mm", False, there_mm, mm)
    yield from batched_products(dtype, short)


def batched_products(dtype: torch.dtype, short: str) -> Iterator[Case]:
    """Those of attention, whose second operand is transposed."""
    for batch, rows, columns, depth in ((8, 64, 64, 64), (12, 128, 128, 64)):
        a, b = (
            torch.randn(batch, rows, depth).to(dtype),
            torch.randn(batch, columns, depth).to(dtype),
        )
        out = torch.empty(batch, rows, columns, dtype=dtype)
        a_there, b_there, out_there = (each.to(DEVICE) for each in (a, b, out))

        def bmm(a: Tensor = a, b: Tensor = b, out: Tensor = out) -> None:
            torch.bmm(a, b.transpose(1, 2), out=out)

        def there_bmm(a: Tensor = a_there, b: Tensor = b_there, out: Tensor = out_there) -> None:
            torch.bmm(a, b.transpose(1, 2), out=out)

        yield Case(f"bmm {short} {batch}×{rows}×{depth}×{columns}", "bmm", False, there_bmm, bmm)


# Batch, heads, length, dim.
ATTENTIONS = [(8, 4, 64, 32), (8, 8, 128, 64), (4, 8, 512, 64), (1, 12, 1024, 64)]


def attentions(dtype: torch.dtype) -> Iterator[Case]:
    """Attention of the heads that layers have, and its gradients, beside the CPU's flash attention."""
    short = SHORT[dtype]
    forward = torch.nn.functional.scaled_dot_product_attention
    for sizes, is_causal in itertools.product(ATTENTIONS, (False, True)):
        batch, heads, length, dim = sizes
        given = [torch.randn(batch, length, heads, dim).to(dtype).transpose(1, 2) for _ in range(4)]
        calls: dict[str, tuple[Call, Call]] = {}
        for device in (DEVICE, "cpu"):
            *operands, gradient = (each.to(device) for each in given)
            leaves = [each.clone().requires_grad_() for each in operands]
            result = forward(*leaves, is_causal=is_causal)
            calls[device] = (
                partial(forward, *operands, is_causal=is_causal),
                partial(torch.autograd.grad, result, leaves, gradient, retain_graph=True),
            )
        name = f"{short} {'×'.join(map(str, sizes))}{', causal' if is_causal else ''}"
        operator = "scaled_dot_product_attention"
        for what, ours, peer in zip(
            ("attention", "gradients of attention"), calls[DEVICE], calls["cpu"], strict=True
        ):
            yield Case(f"{what} {name}", operator, False, ours, peer)


def quantized() -> Iterator[Case]:
    """Quantization, and linear of int8, which oneDNN multiplies for PyTorch.

    Both sides allocate: PyTorch's results are Tensors with their scales.
    """
    pt2e, aten = torch.ops.quantized_decomposed, torch.ops.aten
    limits = (-128, 127, torch.int8)
    for elements in SIZES:
        rows = elements // ROW
        x = torch.randn(rows, ROW)
        scales, zeros = torch.rand(rows) * 0.1 + 0.01, torch.zeros(rows, dtype=torch.int64)
        x_there, scales_there, zeros_there = (
            each.to(QUANTIZED_DEVICE) for each in (x, scales, zeros)
        )
        what = f"f32, {elements:.0e}"
        yield Case(
            f"quantize per tensor {what}", "quantize_per_tensor", False,
            lambda x=x_there: pt2e.quantize_per_tensor.default(x, 0.1, 0, *limits),
            lambda x=x: aten.quantize_per_tensor.default(x, 0.1, 0, torch.qint8),
        )  # fmt: skip
        yield Case(
            f"quantize per channel {what}", "quantize_per_channel", True,
            lambda x=x_there, s=scales_there, z=zeros_there: pt2e.quantize_per_channel.default(
                x, s, z, 0, *limits
            ),
            lambda x=x, s=scales, z=zeros: aten.quantize_per_channel.default(
                x, s, z, 0, torch.qint8
            ),
        )  # fmt: skip
    yield from int8_linear()


def int8_linear() -> Iterator[Case]:
    for rows in (1, 4, 16, 128):
        x = torch.randint(0, 128, (rows, 1024)).to(torch.uint8)
        weight = torch.randint(-128, 128, (1024, 1024)).to(torch.int8)
        scales, bias, zeros = (
            torch.rand(1024) + 0.01,
            torch.randn(1024),
            torch.zeros(1024, dtype=torch.int64),
        )
        packed = torch.ops.onednn.qlinear_prepack(weight, list(x.shape))
        x_there, weight_there, scales_there, bias_there = (
            each.to(QUANTIZED_DEVICE) for each in (x, weight, scales, bias)
        )
        yield Case(
            f"int8 linear {rows}×1024×1024", "linear_int8", True,
            lambda x=x_there, w=weight_there, s=scales_there, b=bias_there: (
                torch.ops.opsmith_quantized.linear_int8.default(x, 0.05, 3, w, s, b)
            ),
            lambda x=x, w=packed, s=scales, z=zeros, b=bias: torch.ops.onednn.qlinear_pointwise.default(
                x, 0.05, 3, w, s, z, b, 1.0, 0, torch.float32, "none", [], ""
            ),
        )  # fmt: skip


@dataclass
class Timed:
    """Microseconds of a call in each round."""

    name: str
    operator: str
    counts: bool
    ours: list[float]
    peer: list[float]


def timed(case: Case, what: str) -> Timed:
    name = f"{case.name}, {what}" if what else case.name
    calls = {"ours": case.ours, "peer": case.peer}
    return Timed(
        name, case.operator, case.counts, **microseconds_in_turns(calls, ROUNDS, ROUND_SECONDS)
    )


def time_all(threads: int) -> None:
    """Prints what every call on the library optimized takes with ``threads`` threads, as JSON."""
    opsmith.load(str(BACKEND))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        for elements in SIZES:
            for cases in (elementwise, extrema, images, movements):
                results += [timed(case, f"{elements:.0e}") for case in cases(dtype, elements)]
        results += [timed(case, "") for case in products(dtype)]
        results += [timed(case, "") for case in convolutions(dtype)]
        results += [timed(case, "") for case in attentions(dtype)]
    for elements in SIZES[1::2]:
        results += [timed(case, f"{elements:.0e}") for case in elementwise(torch.float16, elements)]
    results += [timed(case, "") for case in products(torch.float16)]
    print(json.dumps([vars(each) for each in results]))


def time_quantized(threads: int) -> None:
    """The same of the library quantized."""
    opsmith.load(str(QUANTIZED_BACKEND))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    print(json.dumps([vars(timed(case, "")) for case in quantized()]))


def in_process(call: str, threads: int) -> list[Timed]:
    """The times that ``call`` prints, in a process of its own: the threads are there from its begin."""
    printed = subprocess.run(
        [sys.executable, "-c", f"import {call.partition('.')[0]}; {call}({threads})"],
        cwd=Path(__file__).parent,
        # A call takes what its kernel takes, also where that would be queued.
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "OPSMITH_LAUNCH_BLOCKING": "1"},
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return [Timed(**each) for each in json.loads(printed.splitlines()[-1])]


def speedup(each: Timed) -> float:
    """How many times the CPU's call takes ours."""
    return statistics.median(each.peer) / statistics.median(each.ours)


def together(results: list[Timed], what: str, peer: str, goal: float) -> Measurement:
    """The geometric mean of ours by the peer's, of all that counts."""
    ratios = [1 / speedup(each) for each in results if each.counts]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    return measured(
        f"{what}: geometric mean of {len(ratios)} calls", f"of {peer}'s", [mean], goal=1 / goal
    )


def each_of(
    results: list[Timed], what: str, least: Callable[[Timed], float | None]
) -> list[Measurement]:
    """The results, the slowest beside their peers first; the peer has to take ours ``least`` times."""
    found = []
    for each in sorted(results, key=speedup):
        wanted = least(each)
        goal = None if wanted is None else 1 / wanted
        found.append(
            measured(
                f"{what}: {each.name}", "µs", each.ours, each.peer, goal, operator=each.operator
            )
        )
    return found


def main() -> None:
    for backend in (BACKEND, QUANTIZED_BACKEND):
        build_backend(backend, progress=lambda step: print(step, file=sys.stderr))
    on_device, in_executorch = [], []
    for threads in THREADS:
        what = f"{threads} thread{'s' if threads > 1 else ''}"
        results = in_process("kernels.time_all", threads)
        results += in_process("kernels.time_quantized", threads)
        on_device.append(together(results, what, "the CPU", TOGETHER))
        on_device += each_of(results, what, lambda each: EACH)
        results = in_process("_kernels_in_executorch.time_all", threads)
        in_executorch.append(together(results, f"ExecuTorch, {what}", "the wheel", IN_EXECUTORCH))
        in_executorch += each_of(
            results,
            f"ExecuTorch, {what}",
            lambda each: OF_XNNPACK if "XNNPACK" in each.name else None,
        )
    report(
        "kernels on a device, peer: the CPU's; in ExecuTorch, peer: the wheel's",
        on_device + in_executorch,
    )


if __name__ == "__main__":
    main()
