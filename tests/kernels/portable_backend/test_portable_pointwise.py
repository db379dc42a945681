"""The portable library's pointwise families and reductions on a PyTorch device, against the CPU.

Every operator is a row of a table; the same calls run on both devices for operands of several
layouts, and nothing may fall back.  Dtypes, special values and promotion are ``kernel_suite``'s; here
functions are called, whose results are shaped and laid out for them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from device import ALONE, DEVICE, LOADED
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map_only

import opsmith
from fell_back import fell_back
from host_window import HAS_HOST_WINDOW

# See ``device.py``.
pytestmark = pytest.mark.isolated(OPSMITH_PORTABLE_BACKEND=("sim", "portsim"), nightly=("portsim",))

ATEN = torch.ops.aten

FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGRAL = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
REAL = FLOATING + INTEGRAL
EVERY = (*REAL, torch.bool)
# One of each kind of kernel: calculated in itself, calculated in float, whole numbers.
SOME = (torch.float32, torch.bfloat16, torch.int64)

Call = Callable[..., Any]

# ATen rounds to 16 bits between the steps of some operators: two units in the last place of numbers
# up to 4 are allowed. Other dtypes: torch.testing's own.
TOLERANCE = {torch.bfloat16: (1.6e-2, 3e-2), torch.float16: (2e-3, 8e-3)}


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    """Every test runs on the library's kernels alone."""
    start = opsmith.fallbacks()
    yield
    fallen = fell_back(opsmith.fallbacks(since=start))
    # Without a host window the host copies between layouts.
    assert fallen <= (set() if HAS_HOST_WINDOW else {"_copy_from"})


def on_device(value: Any) -> Any:
    """The value with every Tensor on the device, in the same layout."""

    def moved(tensor: Tensor) -> Tensor:
        if tensor.numel() == 0:
            return tensor.to(DEVICE)
        extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        return (
            tensor.as_strided((extent,), (1,)).to(DEVICE).as_strided(tensor.shape, tensor.stride())
        )

    return tree_map_only(Tensor, moved, value)


def compare(
    call: Call, *args: Any, tolerance: tuple[float, float] | None = None, **kwargs: Any
) -> None:
    """Runs the call on both devices: values, dtypes, shapes and strides must agree."""
    theirs = tree_leaves(call(*args, **kwargs))
    ours = tree_leaves(call(*on_device(args), **on_device(kwargs)))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.device.type == DEVICE
        assert (mine.dtype, mine.shape, mine.stride()) == (other.dtype, other.shape, other.stride())
        rtol, atol = tolerance or TOLERANCE.get(other.dtype, (None, None))
        torch.testing.assert_close(mine.cpu(), other, equal_nan=True, rtol=rtol, atol=atol)


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Numbers in [-4, 4], the same for the same arguments; no zeros among integers."""
    generator = torch.Generator().manual_seed(seed + 7 * len(shape))
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64) * 8 - 4
    if dtype == torch.bool:
        return uniform > 0
    if dtype.is_floating_point:
        return uniform.to(dtype)
    whole = uniform.abs().round() if dtype == torch.uint8 else uniform.round()
    return torch.where(whole == 0, 1, whole).to(dtype)


def layouts(count: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """`count` operands at a time, in each arrangement of memory that kernels tell apart."""

    def make(*shape: int) -> list[Tensor]:
        return [numbers(*shape, dtype=dtype, seed=seed) for seed in range(count)]

    yield tuple(make(5, 37))  # dense
    yield tuple(t.T for t in make(6, 19))  # transposed, all alike: passed by dim order
    yield tuple(t.contiguous(memory_format=torch.channels_last) for t in make(2, 3, 4, 5))
    yield tuple(make(0, 3))
    yield tuple(make())
    yield tuple(make(40_000))  # more than one thread's
    if count > 1:
        yield tuple(t.T if k % 2 else t for k, t in enumerate(make(9, 9)))
        first, *others = make(2, 3, 17)
        yield first, *(t[0, 0] for t in others)
        yield first, *(t[0, 0, 0] for t in others)
        yield (*others[1:], first[:, :1], others[0][0])[:count]


def with_dtypes(rows: Sequence[Row | Reduction]) -> pytest.MarkDecorator:
    """Each row with those of ``SOME`` that it takes."""
    cases = [(row, dtype) for row in rows for dtype in SOME if dtype in row.dtypes]
    return pytest.mark.parametrize(("row", "dtype"), cases, ids=str)


@dataclass(frozen=True)
class Row:
    """An operator: how it is called, and for which dtypes of its operands."""

    name: str
    call: Call
    operands: int
    dtypes: tuple[torch.dtype, ...] = EVERY

    def __str__(self) -> str:
        return self.name


def rows(names: str, operands: int, dtypes: tuple[torch.dtype, ...] = EVERY) -> list[Row]:
    return [Row(name, getattr(torch, name), operands, dtypes) for name in names.split()]


def given(
    name: str, call: Call, operands: int, dtypes: tuple[torch.dtype, ...], *args: Any, **kwargs: Any
) -> Row:
    """A row whose call has arguments after its operands."""
    return Row(name, lambda *tensors: call(*tensors, *args, **kwargs), operands, dtypes)


def gelu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    """Of dense operands of one shape: the CPU's kernel raises for others."""
    gradient, x = (each.contiguous() for each in torch.broadcast_tensors(gradient, x))
    return ATEN.gelu_backward(gradient, x)


FAMILIES = (
    "add.out sub.Scalar_out mul.out div.out_mode fmod.Tensor_out atan2.out exp.out abs.out eq.Tensor_out "
    "bitwise_and.Scalar_out logical_or.out clamp.Tensor_out pow.Tensor_Scalar_out gelu.out where.self_out "
    "lerp.Scalar_out sum.IntList_out mean.out prod.int_out amax.out argmin.out max.dim_max any.dims_out "
    "var.correction_out cumsum.out copy.out fill.Scalar_out"
)


@pytest.mark.parametrize("name", FAMILIES.split())
def test_the_portable_library_is_asked(name: str) -> None:
    layers = LOADED.plan.entry(name).chain
    libraries = [layer.kernel.library for layer in layers if layer.kernel is not None]
    assert "portable" in (libraries[:1] if ALONE else libraries)


POINTWISE = [
    *rows("acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 log log10 log1p log2", 1),
    *rows("reciprocal rsqrt sigmoid sin sinh sqrt tan tanh sign isinf isnan logical_not", 1),
    *rows("abs ceil floor neg round trunc relu", 1, REAL),
    *rows("bitwise_not", 1, (*INTEGRAL, torch.bool)),
    *rows("add mul div atan2 eq ne lt le gt ge maximum minimum", 2),
    *rows("logical_and logical_or logical_xor", 2),
    *rows("sub fmod remainder pow", 2, REAL),
    *rows("bitwise_and bitwise_or bitwise_xor", 2, (*INTEGRAL, torch.bool)),
    *rows("addcmul", 3, REAL),
    *rows("addcdiv lerp", 3, FLOATING),
    given("round decimals", torch.round, 1, FLOATING, decimals=1),
    given("div floor", torch.div, 2, REAL, rounding_mode="floor"),
    given("div trunc", torch.div, 2, REAL, rounding_mode="trunc"),
    given("add alpha", torch.add, 2, REAL, alpha=3),
    given("sub alpha", torch.sub, 2, REAL, alpha=3),
    given("clamp", torch.clamp, 1, REAL, 1, 3),
    given("clamp max", torch.clamp, 1, REAL, max=2),
    Row("clamp Tensor", torch.clamp, 3, REAL),
    Row("clamp_min Tensor", torch.clamp_min, 2, REAL),
    Row("clamp_max Tensor", torch.clamp_max, 2, REAL),
    given("hardtanh", functional.hardtanh, 1, REAL, 0, 3),
    given("threshold", functional.threshold, 1, REAL, 1, 7),
    given("leaky_relu", functional.leaky_relu, 1, FLOATING, 0.2),
    given("elu", functional.elu, 1, FLOATING, 0.7),
    given("softplus", functional.softplus, 1, FLOATING, 2, 5),
    given("gelu", functional.gelu, 1, FLOATING),
    given("gelu tanh", functional.gelu, 1, FLOATING, approximate="tanh"),
    Row("silu", functional.silu, 1, FLOATING),
    given("lerp number", torch.lerp, 2, FLOATING, 0.3),
    Row("where", lambda a, b: torch.where(a > b, a, b), 2),
    Row("masked_fill", lambda a, b: torch.masked_fill(a, b.bool(), 1), 2),
    Row("threshold_backward", lambda a, b: ATEN.threshold_backward(a, b, 1), 2, REAL),
    Row("sigmoid_backward", ATEN.sigmoid_backward, 2, FLOATING),
    Row("tanh_backward", ATEN.tanh_backward, 2, FLOATING),
    Row("silu_backward", ATEN.silu_backward, 2, FLOATING),
    Row("gelu_backward", gelu_backward, 2, FLOATING),
    Row("leaky_relu_backward", lambda a, b: ATEN.leaky_relu_backward(a, b, 0.1, False), 2, FLOATING),
]  # fmt: skip


@with_dtypes(POINTWISE)
def test_pointwise(row: Row, dtype: torch.dtype) -> None:
    for operands in layouts(row.operands, dtype):
        compare(row.call, *operands)


def test_integers_and_python_floats_promote_to_the_default_dtype() -> None:
    compare(torch.add, torch.tensor([2049, 3]), 0.5)
    compare(torch.add, torch.tensor([2049, 3]), torch.tensor(0.5, dtype=torch.float16))
    compare(torch.mul, torch.tensor([2049, 3]), torch.tensor([1.0, 2.0], dtype=torch.float16))


def test_integers_are_calculated_in_the_default_dtype() -> None:
    x, y = torch.tensor([2**31 - 1, 1234567891]), torch.tensor([3, 7])
    torch.set_default_dtype(torch.float64)
    try:
        for function in (
            torch.sqrt,
            torch.sin,
            torch.log,
            torch.rsqrt,
            torch.reciprocal,
            torch.logit,
        ):
            compare(function, x)
        for binary in (torch.div, torch.atan2):
            compare(binary, x, y)
        for with_number in (torch.add, torch.mul, torch.pow, torch.fmod, torch.clamp_min):
            compare(with_number, x, 0.1)
        compare(torch.pow, 1.1, y)
    finally:
        torch.set_default_dtype(torch.float32)


def test_integers_wrap_and_divide_as_atens() -> None:
    least = torch.tensor([torch.iinfo(torch.int64).min, -7, 7, 5])
    for other in (-1, 2, -2):
        divisor = torch.full_like(least, other)
        for mode in ("trunc", "floor"):
            compare(partial(torch.div, rounding_mode=mode), least[1:], divisor[1:])
        compare(torch.remainder, least[1:], divisor[1:])
        compare(torch.fmod, least[1:], divisor[1:])
    compare(torch.add, least, least)
    compare(
        torch.mul,
        torch.tensor([200, 3], dtype=torch.uint8),
        torch.tensor([2, 100], dtype=torch.uint8),
    )
    compare(torch.pow, torch.tensor([-2, -1, 1, 2, 3]), torch.tensor([63, -3, -1, 62, 2]))


@pytest.mark.parametrize(
    ("call", "operator", "kernel"),
    [
        (torch.remainder, "aten::remainder.Tensor", "remainder_out"),
        (torch.fmod, "aten::fmod.Tensor", "fmod_out"),
        (partial(torch.div, rounding_mode="trunc"), "aten::div.Tensor_mode", "div_mode_out"),
    ],
)
def test_integer_division_by_zero_is_refused(call: Call, operator: str, kernel: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        call(torch.tensor([1, 2]).to(DEVICE), torch.tensor([1, 0]).to(DEVICE))
    assert str(caught.value).splitlines()[0] == (
        f"{operator}: its kernel `opsmith::portable::native::{kernel}` (library portable) refuses the call: "
        "ZeroDivisionError"
    )


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            lambda x: torch.masked_fill(x.to(torch.uint8), x > 2, 300.5),
            "value cannot be converted to type uint8_t without overflow",
        ),
        (
            lambda x: functional.gelu(x.double(), approximate="sine"),
            "approximate argument must be either none or tanh.",
        ),
    ],
)
def test_refusals_say_what_aten_says(call: Call, reason: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        call(torch.ones(3).to(DEVICE))
    assert str(caught.value).splitlines()[0].endswith(reason)


@pytest.mark.parametrize("name", ["add", "mul", "eq", "exp"])
def test_out_of_another_dtype_and_layout(name: str) -> None:
    call = getattr(torch, name)
    operands = [numbers(5, 6, seed=seed) for seed in range(1 if name == "exp" else 2)]
    for out in (
        torch.empty(5, 6, dtype=torch.float64),
        torch.empty(0),
        torch.empty(6, 5).T,
        torch.empty(5, 12)[:, ::2],
    ):
        theirs = call(*operands, out=out.clone())
        ours = call(*on_device(operands), out=on_device(out))
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        torch.testing.assert_close(ours.cpu(), theirs)


def test_in_place() -> None:
    for call in (Tensor.add_, Tensor.mul_, Tensor.clamp_min_):
        compare(lambda x, call=call: call(x.clone(), 2), numbers(5, 6))
    compare(lambda x: x.clone().eq_(1), numbers(5, 6))
    compare(lambda x: x.clone().div_(x + 9), numbers(5, 6))


@dataclass(frozen=True)
class Reduction:
    """A reduction, with the dtypes that it takes and whether it takes several dimensions."""

    name: str
    call: Call
    dtypes: tuple[torch.dtype, ...] = EVERY
    many: bool = True

    def __str__(self) -> str:
        return self.name


def halved_product(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Small enough for every dtype."""
    return torch.prod(x / 2 if x.is_floating_point() else x, dim, keepdim)


def short_cumprod(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Small enough for every dtype."""
    return torch.cumprod(x[..., :5] if x.dim() else x, dim)


REDUCTIONS = [
    Reduction("sum", torch.sum),
    Reduction("mean", torch.mean, FLOATING),
    Reduction("var", torch.var, FLOATING),
    Reduction("var of all", partial(torch.var, correction=0), FLOATING),
    Reduction("std", torch.std, FLOATING),
    Reduction("var_mean", torch.var_mean, FLOATING),
    Reduction("amax", torch.amax),
    Reduction("amin", torch.amin),
    Reduction("any", torch.any),
    Reduction("all", torch.all),
    Reduction("prod", halved_product, (torch.float32, torch.float64, *INTEGRAL, torch.bool), many=False),
    Reduction("argmax", torch.argmax, REAL, many=False),
    Reduction("argmin", torch.argmin, REAL, many=False),
    Reduction("max", lambda x, dim, keepdim: tuple(torch.max(x, dim, keepdim)), many=False),
    Reduction("min", lambda x, dim, keepdim: tuple(torch.min(x, dim, keepdim)), many=False),
    Reduction("cumsum", lambda x, dim, keepdim: torch.cumsum(x, dim), many=False),
    Reduction("cumprod", short_cumprod, many=False),
]  # fmt: skip


@with_dtypes(REDUCTIONS)
def test_reduction(row: Reduction, dtype: torch.dtype) -> None:
    for (operand,) in layouts(1, dtype):
        if operand.numel() == 0:
            continue
        dims: list[Any] = [0, -1]
        if row.many and operand.dim() > 1:
            dims += [(0, 1), (-1, 0)]
        for dim, keepdim in itertools.product(dims, (False, True)):
            # ATen's sums of many floats are the less accurate ones.
            long = operand.numel() > 10_000 and dtype in (torch.float32, torch.float64)
            compare(
                row.call, operand, dim, keepdim=keepdim, tolerance=(1e-4, 1e-3) if long else None
            )


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "any", "all", "var"])
def test_reduction_of_nothing(name: str) -> None:
    for dim in (0, 1):
        compare(getattr(torch, name), torch.empty(0, 3), dim)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "max"])
def test_reduction_of_nothing_that_has_no_value_is_refused(name: str) -> None:
    with pytest.raises(IndexError, match="dim"):
        getattr(torch, name)(torch.empty(0, 3).to(DEVICE), 0)


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        (torch.int32, torch.int32),
        (torch.bool, torch.float32),
        (torch.float32, torch.float64),
        (torch.float16, torch.float32),
        (torch.float64, torch.float16),
        (torch.float32, torch.int64),
        (torch.int16, torch.uint8),
        (torch.int32, torch.bool),
    ],
    ids=str,
)
def test_sums_and_products_in_a_dtype(dtype: torch.dtype, result: torch.dtype) -> None:
    for call in (torch.sum, torch.prod, *((torch.cumsum,) if result != torch.bool else ())):
        compare(partial(call, dim=1, dtype=result), numbers(4, 9, dtype=dtype))


def test_long_sums_are_as_accurate_as_atens() -> None:
    terms = torch.rand(1_000_001, generator=torch.Generator().manual_seed(0))
    exact = terms.double().sum().item()
    for dim in (0, 1):
        ours = terms.reshape((-1, 1) if dim == 0 else (1, -1)).to(DEVICE).sum(dim).cpu()
        assert abs(ours.double().item() - exact) <= max(
            abs(terms.sum().double().item() - exact), 1e-7 * exact
        )
    wide = terms.double()
    assert abs(wide.to(DEVICE).sum().cpu().item() - math.fsum(wide.tolist())) <= 1e-9


def test_copies_and_fills() -> None:
    def copied(x: Tensor, y: Tensor) -> Tensor:
        return ATEN.copy.out(x, y, out=torch.empty_like(x))

    for dtype, other in itertools.product(EVERY, EVERY):
        compare(copied, numbers(4, 5, dtype=dtype), numbers(5, dtype=other))
    for dtype in EVERY:
        compare(lambda x: x.clone().fill_(3), numbers(4, 5, dtype=dtype))
