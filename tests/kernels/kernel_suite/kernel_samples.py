"""The calls that every kernel library must serve as ATen does: OpInfo's samples, and edges picked by hand.

All are Python that runs on the CPU; ``aten_calls.Recorder`` keeps what it comes down to.  A library is asked
only for what its manifest says that it takes, so samples are written once, for whatever operator they reach.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from aten_calls import OperatorCall, Recorder, directly
from torch import Tensor
from torch.nn import functional

from opsmith.conformance.boundary_values import boundary_values, divisors
from opsmith.conformance.database import FOREACH, entries, samples_of

# Of an entry and a dtype so many samples run, and so many calls of an operator with the same dtypes are kept.
_SAMPLES = 5
_SAME_DTYPES = 6
_GRADIENTS = (torch.float32, torch.bfloat16, torch.float16)

FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGRAL = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
EVERY = (*FLOATING, *INTEGRAL, torch.bool)

aten = torch.ops.aten
Call = Callable[[], object]


def recorded(operators: Collection[str]) -> list[OperatorCall]:
    """The calls of the ``operators``, ATen's out variants, that the samples come down to."""
    torch.manual_seed(0)
    by_hand = Recorder(operators)
    for origin, call in edges():
        by_hand.record(origin, call)
    by_opinfo = Recorder(operators, most=_SAME_DTYPES)
    for origin, call in opinfo():
        by_opinfo.record(origin, call)
    return [
        *by_hand.calls,
        *by_opinfo.calls,
        *(each for each in direct() if each.operator in operators),
    ]


# ---- PyTorch's database


def opinfo() -> Iterator[tuple[str, Call]]:
    """Each of OpInfo's entries with some of its samples, and for real dtypes their gradients."""
    for name, info in entries().items():
        if name.startswith(FOREACH):
            continue
        for dtype in EVERY:
            if dtype in info.dtypes:
                yield from _samples(name, info, dtype, gradient=False)
            if dtype in _GRADIENTS and info.supports_autograd and dtype in info.backward_dtypes:
                yield from _samples(name, info, dtype, gradient=True)


def _samples(
    name: str, info: Any, dtype: torch.dtype, *, gradient: bool
) -> Iterator[tuple[str, Call]]:
    origin = f"OpInfo {name}, {dtype}" + (", gradient" if gradient else "")
    try:
        samples = list(itertools.islice(samples_of(info, dtype, gradient), _SAMPLES))
    except Exception:  # some generators fail for some dtypes: nothing to ask then
        return
    for sample in samples:
        yield origin, (lambda sample=sample: _run(info, sample, gradient))  # type: ignore[misc]


def _run(info: Any, sample: Any, gradient: bool) -> None:
    result = info(sample.input, *sample.args, **sample.kwargs)
    if gradient:
        result = sample.output_process_fn_grad(result)
        results = [each for each in _tensors(result) if each.requires_grad]
        torch.autograd.backward(results, [torch.randn_like(each) for each in results])


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


# ---- edges

NAN, INF = math.nan, math.inf
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 3e38, -3e38, 88.7, -103.9, 0.5, 2.5]

ONE_OPERAND = (
    "acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 reciprocal rsqrt "
    "sigmoid sin sinh sqrt tan tanh sign isinf isnan logical_not abs ceil floor neg round trunc relu"
).split()
TWO_OPERANDS = (
    "add sub mul div atan2 eq ne lt le gt ge maximum minimum logical_and logical_or logical_xor fmod "
    "remainder pow bitwise_and bitwise_or bitwise_xor"
).split()
ONE_DIM = "sum mean prod amax amin argmax argmin any all cumsum cumprod softmax log_softmax".split()


def numbers(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same numbers between -3 and 3 in every run; integers are not 0, unsigned ones not negative."""
    count = math.prod(sizes)
    values = torch.sin(torch.arange(count, dtype=torch.float64) * 1.7 + 0.3) * 3
    if dtype == torch.bool:
        return (values > 0).reshape(sizes)
    if not dtype.is_floating_point:
        values = values.abs() if dtype == torch.uint8 else values
        values = torch.where(values.round() == 0, 1.0, values.round())
    return values.to(dtype).reshape(sizes)


def layouts(dtype: torch.dtype) -> list[Tensor]:
    """Tensors as memory holds them: dense, transposed, channels-last, with gaps, empty, 0-dim, long."""
    image = numbers(2, 3, 4, 5, dtype=dtype)
    return [
        numbers(5, 37, dtype=dtype),
        numbers(6, 19, dtype=dtype).t(),
        image.contiguous(memory_format=torch.channels_last),
        image.permute(3, 0, 2, 1),
        numbers(7, 22, dtype=dtype)[:, ::2],
        torch.empty(0, 3, dtype=dtype),
        numbers(1, dtype=dtype).reshape(()),
        # More than one thread's; those have threads that are calculated with most.
        numbers(40_001 if dtype in _GRADIENTS else 401, dtype=dtype),
    ]


def edges() -> Iterator[tuple[str, Call]]:
    """Calls that are easily wrong, by what is tried."""
    for family in (_pointwise, _promotion, _boundaries, _reductions, _places, _products, _models):
        for call in family():
            yield f"edges: {family.__name__[1:]}", call


def _pointwise() -> Iterator[Call]:
    special = torch.tensor(SPECIAL)
    functions = [getattr(torch, name) for name in ONE_OPERAND]
    functions += [
        functional.silu,
        functional.elu,
        functional.softplus,
        functional.leaky_relu,
        torch.square,
    ]
    functions += [lambda x: functional.gelu(x, approximate="tanh"), functional.hardtanh]
    for function, dtype in itertools.product(functions, EVERY):
        for x in layouts(dtype):
            yield lambda function=function, x=x: function(x)
    for function in functions:
        for dtype in FLOATING:
            yield lambda function=function, dtype=dtype: function(special.to(dtype))
    lengths = [numbers(n) for n in (*range(1, 36), 63, 64, 65, 127, 1000)]
    for x in lengths:  # around the widths of vectors
        for function in (torch.exp, torch.sigmoid, torch.tanh, functional.silu, functional.gelu):
            yield lambda function=function, x=x: (
                function(x),
                function(x.bfloat16()),
                function(x.half()),
            )
        for dtype in _GRADIENTS:
            y = x.to(dtype)
            yield lambda y=y: (y + y, y * y)
    for name, dtype in itertools.product(TWO_OPERANDS, EVERY):
        function = getattr(torch, name)
        for x in layouts(dtype):
            yield lambda function=function, x=x: function(x, x)
        row, column, plane = (numbers(*n, dtype=dtype) for n in ((5,), (4, 1), (3, 4, 5)))
        for a, b in (
            (row, column),
            (plane, row),
            (column, plane),
            (plane, plane[0, 0, 0]),
            (plane.mT, row[:4]),
        ):
            yield lambda function=function, a=a, b=b: function(a, b)
        yield lambda function=function, a=plane: function(a, 2)
        if dtype in FLOATING:
            a = special.to(dtype)
            yield lambda function=function, a=a: function(a[:, None].repeat(1, len(a)), a)
    yield lambda: torch.add(torch.tensor([2049, 3]), 0.5)
    least = torch.tensor([torch.iinfo(torch.int64).min + 1, -7, 7, 5])
    for other in (-1, 2, -2):
        divisor = torch.full_like(least, other)
        for mode in ("trunc", "floor"):
            yield lambda a=least, b=divisor, mode=mode: torch.div(a, b, rounding_mode=mode)
        yield lambda a=least, b=divisor: (torch.remainder(a, b), torch.fmod(a, b))


def _promotion() -> Iterator[Call]:
    """Every pair of dtypes, Tensors without dimensions and Python's numbers among them."""
    for first, second in itertools.product(EVERY, EVERY):
        for shapes in (((3, 4), (3, 4)), ((3, 4), ()), ((), (4,))):
            a, b = numbers(*shapes[0], dtype=first), numbers(*shapes[1], dtype=second)
            for function in (
                torch.add,
                torch.div,
                torch.eq,
                torch.maximum,
                torch.logical_and,
                torch.pow,
            ):
                yield lambda function=function, a=a, b=b: function(a, b)
            yield lambda a=a, b=b: torch.where(a > 1, a, b)
    for dtype, number in itertools.product(EVERY, (2, -1, 200, 0.3, True)):
        x = numbers(4, 5, dtype=dtype)
        for function in (torch.add, torch.mul, torch.div, torch.lt, torch.ge):
            yield lambda function=function, x=x, number=number: function(x, number)
        yield lambda x=x: x.to(torch.float16)


def _boundaries() -> Iterator[Call]:
    """Values at the ends of each dtype: what wraps, what loses whole numbers, the extremes."""
    for dtype in (*FLOATING, *INTEGRAL):
        values = torch.tensor(boundary_values(dtype), dtype=dtype)
        by = torch.tensor(divisors(boundary_values(dtype), dtype), dtype=dtype)
        for name in TWO_OPERANDS:
            given = by if name in {"fmod", "remainder"} else values
            function = getattr(torch, name)
            yield lambda function=function, a=given: function(a[:, None], a)
        for mode in ("trunc", "floor"):
            yield lambda a=by, mode=mode: torch.div(a[:, None], a, rounding_mode=mode)
        for name in (*ONE_OPERAND, "square", "signbit", "bitwise_not"):
            function = getattr(torch, name)
            yield lambda function=function, a=values: function(a)
        square = torch.stack([values.roll(step) for step in range(len(values))])
        yield lambda a=values, s=square: (a.clamp(-129, 257), torch.where(s > 0, s, a), s.sort(1))
        for name in ("amax", "amin", "argmax", "argmin", "any", "all", "logical_not"):
            function = getattr(torch, name)
            yield lambda function=function, s=square: function(s)
        for other in (*FLOATING, *INTEGRAL, torch.bool):
            if not dtype.is_floating_point or other.is_floating_point or other is torch.bool:
                yield lambda a=values, other=other: a.to(other)
        if not dtype.is_floating_point:
            yield lambda s=square: (s.sum(), s.sum(0), s.prod(0), s.cumsum(1), s.cumprod(1))
            yield lambda s=square: (torch.mm(s, s), torch.bmm(s[None], s[None]))
            yield lambda a=values, s=square: (torch.addmm(a, s, s, alpha=3), a + 2**30, a * 7)
            yield lambda a=values, s=square: (a - 129, torch.sub(s, a, alpha=5), torch.rsub(a, 3))


def _reductions() -> Iterator[Call]:
    ties = torch.tensor([[1, 3, 3, 1], [2, 2, 2, 2]])
    with_nan = torch.tensor([[1.0, NAN, INF, NAN], [2.0, -INF, 1.0, INF]])
    for name in ONE_DIM:
        function = getattr(torch, name)
        for x in (ties, with_nan, with_nan.T):
            for dim in (0, 1, -1):
                yield lambda function=function, x=x, dim=dim: function(x, dim)
        for dtype in EVERY:
            for x in layouts(dtype):
                short = x[..., :5] / 2 if x.dim() and dtype in FLOATING and "prod" in name else x
                yield lambda function=function, x=short: function(x, -1)
                yield lambda function=function, x=short: function(x, 0)
        yield lambda function=function: function(torch.empty(3, 0), 1)
        yield lambda function=function: function(torch.empty(0, 3), 1)
    for x in (ties, with_nan, with_nan.T):
        for dim in (0, -1):
            yield lambda x=x, dim=dim: (torch.max(x, dim), torch.min(x, dim, keepdim=True))
    for function, dtype in itertools.product(
        (torch.sum, torch.amax, torch.any, torch.mean, torch.amin, torch.var), EVERY
    ):
        x = numbers(3, 4, 5, dtype=dtype)
        for dims in ((0, 2), (-1, 0), (0, 1, 2), ()):
            yield lambda function=function, x=x, dims=dims: function(x, dims)
            yield lambda function=function, x=x, dims=dims: function(x.mT, dims, keepdim=True)
    for function, dtype in itertools.product((torch.var, torch.std, torch.var_mean), FLOATING):
        for x in (
            numbers(3, 4, 5, dtype=dtype),
            numbers(4, 3, dtype=dtype).t(),
            numbers(1, dtype=dtype),
        ):
            yield lambda function=function, x=x: (function(x, -1), function(x, correction=0))
    for target in (torch.float64, torch.int64, torch.float32):
        for dtype in EVERY:
            x = numbers(4, 9, dtype=dtype)
            yield lambda x=x, t=target: (torch.sum(x, 1, dtype=t), torch.prod(x, 1, dtype=t))
            yield lambda x=x, t=target: torch.cumsum(x, 1, dtype=t)


def _places() -> Iterator[Call]:
    """Elements that are moved, looked up and ordered."""
    for dtype in EVERY:
        whole = numbers(4, 5, 6, 8, dtype=dtype)
        for x in (
            whole,
            whole.permute(3, 2, 1, 0),
            whole.contiguous(memory_format=torch.channels_last),
        ):
            x = x.reshape(4, 5, 6, 8) if x.shape[0] != 4 else x
            yield lambda x=x: (aten.permute_copy(x, [2, -1, 0, 1]), aten.transpose_copy(x, -3, 3))
            yield lambda x=x: (aten.slice_copy(x, -2, -5, 100, 3), aten.slice_copy(x, 1, 4, 2))
            yield lambda x=x: (aten.select_copy(x, 2, -1), aten.unsqueeze_copy(x, -5))
            yield lambda x=x: (aten.diagonal_copy(x, -2, 3, 1), aten.diagonal_copy(x, 50))
            yield lambda x=x: (
                aten.squeeze_copy.dims(x[:1, :, :1], [0, -2]),
                aten.unfold_copy(x, 3, 3, 2),
            )
            yield lambda x=x: aten.split_with_sizes_copy(x, [1, 0, 4], 1)
            yield lambda x=x: (
                torch.flip(x, [0, -1]),
                torch.roll(x, [1, -9], [2, 1]),
                x.repeat(2, 1, 3, 0, 2),
            )
            yield lambda x=x: (
                torch.cat([x, x], -1),
                torch.stack([x, x], -2),
                torch.cat([torch.empty(0), x]),
            )
            yield lambda x=x: (torch.tril(x, 1), torch.triu(x, -3))
            yield lambda x=x: torch.index_select(x, -1, torch.tensor([7, 0, 7]))
            yield lambda x=x: torch.gather(x, -2, torch.zeros(1, 2, 3, 4, dtype=torch.int64))
            yield lambda x=x: x[torch.tensor([2, -1, 0, 2])]
            yield lambda x=x: x[:, torch.tensor([1, 2]), :, torch.tensor([-1, 3])]
            yield lambda x=x: torch.sort(x, -2, descending=True, stable=True)
            yield lambda x=x: torch.topk(x, 3, -1)
        # Of several blocks, in both directions.
        matrix, places = numbers(40, 37, dtype=dtype), torch.arange(40) % 37
        yield lambda x=matrix: (
            aten.transpose_copy(x, 0, 1),
            aten.permute_copy(x[:, None], [2, 1, 0]),
        )
        yield lambda x=matrix, i=places: (x[i[:7]], x[:, i], x.flatten()[i * 30], x.t()[i])
        yield lambda x=matrix, i=places: (x.index_select(0, i), x.index_select(1, i.int()))
        yield lambda x=matrix, i=places: x.flatten().index_select(0, i * 30)
        yield lambda x=matrix, i=places: (
            torch.gather(x, 0, i[:30, None].expand(30, 37).contiguous()),
            torch.gather(x.t(), 0, i[None].expand(5, 40).contiguous()),
        )
    odd = torch.tensor([1.0, NAN, -INF, INF, NAN, 0.0])
    for descending in (False, True):
        yield lambda d=descending: (
            torch.sort(odd, stable=True, descending=d),
            torch.topk(odd, 3, largest=d),
        )
    yield lambda: torch.scatter_reduce(
        torch.zeros(2), 0, torch.tensor([0, 0, 1]), torch.tensor([1.0, NAN, 5.0]), "amax"
    )
    yield lambda: (torch.sort(torch.tensor(3.0)), torch.topk(torch.empty(3, 0), 0))
    yield lambda: torch.topk(torch.tensor(3.0), 0)
    yield lambda: torch.gather(torch.tensor(5.0), 0, torch.tensor(0))


def _products() -> Iterator[Call]:
    shapes = ((3, 4, 5), (1, 7, 300), (300, 7, 1), (70, 90, 65), (0, 3, 4), (3, 0, 4), (16, 64, 64))
    for dtype, (m, k, n) in itertools.product((*FLOATING, *INTEGRAL), shapes):
        a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype)
        yield lambda a=a, b=b: (torch.mm(a, b), torch.bmm(a[None], b[None]))
        yield lambda a=a, b=b: torch.mm(a.t().contiguous().t(), b.t().contiguous().t())
        row = numbers(n, dtype=dtype)
        yield lambda a=a, b=b, row=row: torch.addmm(row, a, b, beta=2, alpha=3)
    nan = torch.full((3, 5), NAN)
    yield lambda: torch.addmm(nan, numbers(3, 4), numbers(4, 5), beta=0)
    yield lambda: torch.baddbmm(nan.expand(2, 3, 5), numbers(2, 3, 4), numbers(2, 4, 5), beta=0)
    yield lambda: torch.mm(
        torch.full((2, 3), INF), torch.tensor([[1.0, NAN], [0.0, 1.0], [1.0, -1.0]])
    )


def _models() -> Iterator[Call]:
    for dtype in FLOATING:
        x, w = numbers(3, 6, 5, 7, dtype=dtype), numbers(6, dtype=dtype)
        yield lambda x=x, w=w: functional.layer_norm(x, (5, 7), x[0, 0], x[0, 1])
        yield lambda x=x: (functional.layer_norm(x, (7,)), functional.layer_norm(x[:0], (7,)))
        yield lambda x=x, w=w: functional.group_norm(x, 3, w, w)
        yield lambda x=x, w=w: functional.batch_norm(x, w, w.abs() + 1, w, w, False)
        yield lambda x=x, w=w: functional.batch_norm(x, w.clone(), w.abs() + 1, w, w, True)
        yield from _channel_norms_and_pools(x, w)
        for groups, channels in ((1, 6), (2, 3), (6, 1)):
            kernel = numbers(12, channels, 3, 2, dtype=dtype)
            image = x.contiguous(memory_format=torch.channels_last)
            for given in (x, image):
                yield lambda x=given, k=kernel, g=groups: functional.conv2d(x, k, None, 2, 1, 1, g)
        # Between the pixels of a transposed convolution there is nothing to multiply these with.
        rare = numbers(6, 2, 3, 2, dtype=dtype).flatten()
        rare[[5, 40]] = torch.tensor([INF, NAN], dtype=dtype)
        rare = rare.view(6, 2, 3, 2)
        if dtype in (torch.float32, torch.float64):  # else the CPU multiplies zeros there
            for groups, stride in ((1, 2), (2, 1), (3, 2)):
                for value in (1.0, -INF, NAN):
                    given = x.clone()
                    given[1, :, 2, 3] = value
                    yield lambda x=given, k=rare, g=groups, s=stride: functional.conv_transpose2d(
                        x, k, None, s, 1, 0, g
                    )
            back = numbers(3, 6, 3, 4, dtype=dtype)
            yield lambda x=x[:, :2], k=rare, g=back: aten.convolution_backward(
                g, x, k, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, False, False]
            )
        for ceil_mode in (False, True):
            yield lambda x=x, c=ceil_mode: aten.max_pool2d_with_indices(
                x, [3, 2], [2, 2], [1, 0], [1, 2], c
            )
            yield lambda x=x, c=ceil_mode: functional.avg_pool2d(
                x, (3, 2), (2, 3), (1, 1), c, False
            )
        # Rows of results that are narrow, and wide; and windows that dilation takes beyond both edges.
        for sizes, window in (
            ((2, 3, 8, 10), ([2, 2],)),
            ((1, 2, 9, 70), ([3, 3], [2, 2], [1, 1])),
            ((1, 2, 9, 1), ([4, 2], [3, 3], [0, 1], [1, 2])),
        ):
            image = numbers(*sizes, dtype=dtype)
            yield lambda x=image, w=window: aten.max_pool2d_with_indices(x, *w)
    yield lambda: functional.layer_norm(numbers(4, 1000) + 1e4, (1000,))
    extremes = torch.tensor([[0.0, INF, 1.0], [-INF] * 3, [NAN, 1.0, 2.0], [1e4, -1e4, 0.0]])
    yield lambda: (torch.softmax(extremes, 1), torch.log_softmax(extremes, 1))
    for n in (1, 15, 16, 17, 33, 129):
        x = numbers(3, n)
        yield lambda x=x: (
            torch.softmax(x, -1),
            torch.log_softmax(x.bfloat16(), -1),
            x.sum(-1),
            x.mean(0),
        )
        yield lambda x=x, n=n: (
            functional.layer_norm(x, (n,)),
            functional.layer_norm(x.bfloat16(), (n,)),
        )


def _channel_norms_and_pools(x: Tensor, w: Tensor) -> Iterator[Call]:
    """Norms and pools by channels, in both layouts, with pixels and without, and narrow and wide."""
    row = numbers(50, 6, dtype=w.dtype)
    few = numbers(9, 6, 2, dtype=w.dtype)
    for given in (x, x.contiguous(memory_format=torch.channels_last), row, few):
        for training in (True, False):
            yield lambda x=given, t=training: functional.batch_norm(
                x, w.clone(), w.abs() + 1, w, w, t
            )
        if w.dtype in (torch.float16, torch.bfloat16):  # parameters may be wider than elements
            v = w.float()
            yield lambda x=given, v=v: functional.batch_norm(x, v, v.abs() + 1, v, v)
            yield lambda x=given, v=v: functional.group_norm(x, 2, v, v)
        for groups in (1, 2, 6):
            yield lambda x=given, g=groups: functional.group_norm(x, g, w, w)
        if given.dim() == 4:
            for size in ((1, 1), (2, 3), (7, 7)):
                yield lambda x=given, s=size: aten._adaptive_avg_pool2d(x, s)
            yield lambda x=given: (functional.avg_pool2d(x, 2), functional.avg_pool2d(x, 3, 1, 1))
            yield lambda x=given: functional.avg_pool2d(x, (2, 3), (2, 1), (1, 0), True, True, 5)


# ---- operators that PyTorch takes apart before a recorder sees them


def direct() -> Iterator[OperatorCall]:
    """Calls of out variants that no function comes down to."""
    for dtype in (*FLOATING, torch.int64):
        x, w, image = (numbers(*n, dtype=dtype) for n in ((3, 5, 7), (4, 7), (2, 3, 9, 11)))
        for given in (x, x[0], x[:0], x[0, 0]):
            yield directly("aten::linear.out", given, w, w[:, 0].contiguous())
            yield directly("aten::linear.out", given, w, None)
        yield from _direct_scalars(dtype)
        yield from _direct_moves(dtype)
        if dtype in (torch.float32, torch.float64):
            yield from _direct_transforms(dtype)
            yield from _direct_resizing(image)
        if dtype != torch.int64:
            yield from _direct_bags(dtype)
            for eps in (None, 0.1):
                yield directly("aten::logit.out", x.sigmoid(), eps)
            for dim in (0, -1):
                yield directly("aten::glu.out", numbers(4, 6, dtype=dtype), dim)
            yield directly("aten::avg_pool1d.out", x, [3], [2], [1], False, True)
            yield directly("aten::adaptive_avg_pool1d.out", x, [4])
            yield directly("aten::var.out", x, [0, -1], False, True)
            yield directly("aten::std.out", x, [1], True, False)
            yield directly("aten::upsample_nearest2d.vec_out", image, [5, 20], None)
            yield directly("aten::upsample_bilinear2d.vec_out", image, None, True, [1.7, 0.6])
            for order in (torch.contiguous_format, torch.channels_last):
                laid = image.contiguous(memory_format=order)
                yield directly("aten::reflection_pad2d.out", laid, [1, 2, 3, 0])
                yield directly("aten::replication_pad2d.out", laid, [1, 2, -3, 0])
            yield directly("aten::reflection_pad3d.out", image[None], [1, 2, 3, 0, 1, 1])
            yield directly("aten::replication_pad3d.out", image[None], [1, 2, 3, 0, 1, 1])
            w3, b3 = numbers(3, dtype=dtype), numbers(3, dtype=dtype)
            yield directly(
                "aten::_native_batch_norm_legit_no_training.out",
                image,
                w3,
                b3,
                w3,
                b3.abs() + 1,
                0.1,
                1e-5,
            )
            yield directly(
                "aten::_native_batch_norm_legit.no_stats_out", image, w3, b3, True, 0.1, 1e-5
            )
    yield from _direct_resizing((numbers(2, 3, 9, 11).abs() * 80).to(torch.uint8))


def _direct_moves(dtype: torch.dtype) -> Iterator[OperatorCall]:
    x = numbers(4, 5, dtype=dtype)
    for given in (x, x.t(), x[:0], x[0, 0]):
        yield directly("aten::lift_fresh_copy.out", given)
        yield directly("aten::masked_select.out", given, given > 0)
    yield directly("aten::masked_select.out", x, x[0] > 0)
    yield directly("aten::masked_select.out", x[0], x > 0)
    for dim, start, length in ((0, 1, 2), (-1, -3, 3), (1, 5, 0)):
        yield directly("aten::narrow_copy.out", x, dim, start, length)
    for counts in ([2, 0, 3], [], [1]):
        for places in (torch.int64, torch.int32):
            yield directly(
                "aten::repeat_interleave.Tensor_out", torch.tensor(counts, dtype=places), None
            )
    some = torch.tensor([3, 1, 0, 3])
    for accumulate in (False, True):
        yield directly("aten::_index_put_impl.out", x, [None, some], x[:, 1:], accumulate, True)
        yield directly("aten::_index_put_impl.out", x, [some[:3], None], x[1], accumulate, False)
    yield directly("aten::floor_divide.out", x, x[0])
    for other, alpha in ((2, 1), (-3, 2)):
        yield directly("aten::rsub.Scalar_out", x, other, alpha)
    if dtype == torch.float32:
        for complex_dtype in (torch.complex64, torch.complex128, torch.complex32):
            wide = torch.complex(x.double(), numbers(4, 5, dtype=torch.float64) + 1)
            z = wide.to(complex_dtype)
            for given in (z, z.t(), z[0, 0], z[:0]):
                yield directly("aten::view_as_real_copy.out", given)
                yield directly("aten::_conj_physical.out", given)
            yield from _complex_arithmetic(wide, complex_dtype)


def _complex_arithmetic(wide: Tensor, dtype: torch.dtype) -> Iterator[OperatorCall]:
    """Complex arithmetic of ExecuTorch's kernels, of a matrix of complex128 without zeros."""
    z, rows = wide.to(dtype), wide.flip(0).to(dtype)
    image = torch.stack([wide, wide.flip(0), wide.flip(1)])[None].to(dtype)
    last = image.contiguous(memory_format=torch.channels_last)
    pairs = ((z, rows), (z, rows[0]), (z, rows[:, :1]), (z.t(), rows.t()), (last, last))
    for a, b in (*pairs, (z[:0], rows[0])):
        for name in ("add", "sub"):
            for alpha in (1,) if dtype == torch.complex32 else (1, 2.5):  # ATen rounds on the way
                yield directly(f"aten::{name}.out", a, b, alpha)
        yield directly("aten::mul.out", a, b)
        if (
            dtype != torch.complex32
        ):  # of which ATen has no quotients, sums and products of matrices
            yield directly("aten::div.out", a, b)
    for given in (z, z.t(), image, last, z[0, 0], z[:0]):
        yield directly("aten::abs.out", given)
    yield directly("aten::cat.out", [z, rows[:1]], 0)
    if dtype != torch.complex32:
        for given in (z, z.t(), image, last, z[:0]):
            for dims, keepdim in (([0], False), ([-1], True), (None, False)):
                yield directly("aten::sum.IntList_out", given, dims, keepdim, None)
        yield directly("aten::bmm.out", image[0], image[0].transpose(1, 2).contiguous())
        yield directly("aten::bmm.out", image[0], image[0].transpose(1, 2))


def _direct_resizing(image: torch.Tensor) -> Iterator[OperatorCall]:
    for size, scales in (
        ([5, 20], (None, None)),
        ([4, 22], (0.45, 2.0)),
        ([1, 11], (None, None)),
    ):
        for aligned in (False, True):
            for order in (torch.contiguous_format, torch.channels_last):
                given = image.contiguous(memory_format=order)
                yield directly("aten::_upsample_bilinear2d_aa.out", given, size, aligned, *scales)


def _direct_bags(dtype: torch.dtype) -> Iterator[OperatorCall]:
    table, factors = numbers(10, 6, dtype=dtype), numbers(7, dtype=dtype)
    for places in (torch.int64, torch.int32):
        indices = torch.tensor([1, 9, 1, 4, 0, 1, 3], dtype=places)
        for offsets, ends in (([0, 2, 2, 5], False), ([0, 3, 7], True), ([0], False)):
            names = ("_embedding_bag.out", "_embedding_bag_forward_only.out")
            ways = ((0, None), (0, factors), (1, None), (2, None))
            for name, (mode, weights), padding in itertools.product(names, ways, (-1, 1)):
                yield directly(
                    f"aten::{name}",
                    table,
                    indices,
                    torch.tensor(offsets, dtype=places),
                    False,
                    mode,
                    False,
                    weights,
                    ends,
                    padding,
                )


def _direct_transforms(dtype: torch.dtype) -> Iterator[OperatorCall]:
    # Products of small factors, and primes that are larger.
    for length in (1, 2, 7, 8, 60, 31, 37, 74):
        # Sums of about the operands' size: ATen adds up in their dtype.
        x, y = (numbers(2, 3, length, dtype=dtype) / length for _ in range(2))
        for dims, norm, onesided in (([2], 0, True), ([2], 1, False), ([1, 2], 2, True)):
            yield directly("aten::_fft_r2c.out", x, dims, norm, onesided)
        z = torch.complex(x, y + 1 / length)
        for dims, norm, forward in (([2], 0, True), ([1, 2], 1, False), ([0, 1, 2], 2, True)):
            yield directly("aten::_fft_c2c.out", z, dims, norm, forward)
        for dims, norm, width in (([2], 0, 2 * length - 2), ([1, 2], 2, 2 * length - 1)):
            if width > 0:
                yield directly("aten::_fft_c2r.out", z, dims, norm, width)


def _direct_scalars(dtype: torch.dtype) -> Iterator[OperatorCall]:
    x = numbers(4, 5, dtype=dtype)
    for name in ("fmod.Scalar_out", "gt.Scalar_out", "clamp_max.out", "clamp_min.out"):
        for number in (2, -1):
            yield directly(f"aten::{name}", x, number)
    yield directly("aten::div.Scalar_mode_out", x, 2, "floor")
    yield directly("aten::remainder.Scalar_Tensor_out", 5, x)
    yield directly("aten::pow.Scalar_out", 2, x)
    yield directly("aten::fill.Tensor_out", x, x[0, 0])
    places = torch.tensor([[0, 3, 1, 2, 0], [0, 1, 1, 2, 3]])
    for reduce in ("add", "multiply"):
        yield directly("aten::scatter.value_reduce_out", x, 0, places, 2, reduce)
    for width in INTEGRAL if dtype == torch.int64 else ():
        a = numbers(4, 5, dtype=width)
        for name in ("bitwise_left_shift", "bitwise_right_shift"):
            a[0] = torch.iinfo(width).max
            for bits in (0, 1, 7, 40):
                yield directly(f"aten::{name}.Tensor_Scalar_out", a, bits)
                yield directly(f"aten::{name}.Tensor_out", a, torch.full_like(a[0], bits))
    if dtype == torch.int64:
        for name in ("bitwise_and.Scalar_out", "bitwise_or.Scalar_out", "bitwise_xor.Scalar_out"):
            yield directly(f"aten::{name}", x, 6)
