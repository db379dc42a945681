"""Sim's kernels give what ATen's CPU kernels give: values, dtypes, shapes, variants and errors.

Each operator is a row of a table; the same calls run on the device and on the CPU, for operands of
several layouts, and are compared with torch.testing's tolerances for the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map_only

import opsmith

DEVICE = "sim"
FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGRAL = (torch.int64, torch.int32)
NUMERIC = FLOATING + INTEGRAL
LOGICAL = (torch.bool, torch.int64, torch.int32, torch.uint8)
REAL = (*NUMERIC, torch.int16, torch.int8, torch.uint8, torch.bool)

Call = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("sim")


def on_device(call: Call, *args: Any, **kwargs: Any) -> Any:
    """The result of the call with every Tensor moved to the device, moved back."""
    moved_args, moved_kwargs = tree_map_only(Tensor, lambda tensor: moved(tensor), (args, kwargs))
    result = call(*moved_args, **moved_kwargs)
    tree_map_only(Tensor, lambda tensor: check_is_on_device(tensor), result)
    return tree_map_only(Tensor, lambda tensor: tensor.cpu(), result)


def moved(tensor: Tensor) -> Tensor:
    """The tensor on the device with the same strides, as an expanded or transposed one has them."""
    if tensor.numel() == 0:
        return tensor.to(DEVICE)
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    storage = tensor.as_strided((extent,), (1,)).to(DEVICE)
    return storage.as_strided(tensor.shape, tensor.stride())


def check_is_on_device(tensor: Tensor) -> None:
    assert tensor.device.type == DEVICE


@dataclass(frozen=True)
class Tolerance:
    """How far results may be from ATen's; both or neither, as torch.testing has it."""

    rtol: float | None = None
    atol: float | None = None


# ATen rounds to 16 bits between the steps of some operators, and then not on all of its paths: two
# units in the last place of numbers up to 4 are allowed. Other dtypes: torch.testing's own.
TOLERANCE: dict[torch.dtype, Tolerance] = {
    torch.bfloat16: Tolerance(rtol=1.6e-2, atol=3e-2),
    torch.float16: Tolerance(rtol=2e-3, atol=8e-3),
}


def compare(
    call: Call, *args: Any, reference: Call | None = None, tolerance: Tolerance | None = None
) -> None:
    """Runs the call on both devices; results and operands (written in place) must agree."""

    def with_operands(call: Call, *args: Any) -> Any:
        return call(*args), args

    expected = with_operands(reference or call, *tree_map_only(Tensor, duplicate, args))
    actual = on_device(partial(with_operands, call), *args)
    for ours, theirs in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        allowed = tolerance or TOLERANCE.get(getattr(theirs, "dtype", torch.bool), Tolerance())
        torch.testing.assert_close(
            ours, theirs, equal_nan=True, rtol=allowed.rtol, atol=allowed.atol
        )


def duplicate(tensor: Tensor) -> Tensor:
    """A copy with the same strides, also where elements share memory."""
    if tensor.numel() == 0:
        return tensor.clone()
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((extent,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def numbers(
    *shape: int, dtype: torch.dtype = torch.float32, low: float = -4, high: float = 4, seed: int = 0
) -> Tensor:
    """Numbers in [low, high], the same for the same arguments; without zeros for integers."""
    generator = torch.Generator().manual_seed(seed + 7 * len(shape))
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if dtype == torch.bool:
        return uniform > (low + high) / 2
    if dtype.is_floating_point:
        return uniform.to(dtype)
    whole = uniform.abs().round() if dtype == torch.uint8 else uniform.round()
    return torch.where(whole == 0, 1, whole).to(dtype)


def layouts(count: int, **kwargs: Any) -> Iterator[tuple[Tensor, ...]]:
    """`count` operands at a time, in each arrangement of memory that kernels tell apart."""

    def make(*shape: int) -> list[Tensor]:
        return [numbers(*shape, seed=seed, **kwargs) for seed in range(count)]

    yield tuple(make(5, 37))  # dense
    yield tuple(t.T for t in make(6, 19))  # transposed, all alike
    yield tuple(t.T if k % 2 else t for k, t in enumerate(make(9, 9)))  # one of them transposed
    yield tuple(t[:, ::2] for t in make(4, 33))  # with gaps
    yield tuple(
        t[..., :1].expand(-1, 21) if k else t for k, t in enumerate(make(3, 21))
    )  # rows repeat
    yield tuple(
        t[:1].expand(3, 21) if k else t for k, t in enumerate(make(3, 21))
    )  # columns repeat
    yield tuple(make(0, 3))  # empty
    yield tuple(make())  # 0-dim
    if count > 1:
        first, *others = make(2, 3, 17)
        yield first, *(t[0, 0] for t in others)  # a vector against a 3-D tensor
        yield first[0, 0, 0], *others  # a 0-dim tensor of the device first
        yield (*others[1:], first[:, :1], others[0][0])[:count]  # both are broadcast


@dataclass(frozen=True)
class Pointwise:
    """An operator that works element by element."""

    name: str
    call: Call
    operands: int = 1
    dtypes: tuple[torch.dtype, ...] = FLOATING
    low: float = -4
    high: float = 4
    in_place: Call | None = None
    reference: Call | None = None

    def __str__(self) -> str:
        return self.name


def torch_row(name: str, operands: int = 1, *args: Any, **kwargs: Any) -> Pointwise:
    """The row of torch.<name>, whose further arguments come after the operands."""
    fields = {key: kwargs.pop(key) for key in ("dtypes", "low", "high") if key in kwargs}
    function = getattr(torch, name)
    label = name + "".join(f"-{value}" for value in (*args, *kwargs.values()))

    def in_place(first: Tensor, *others: Any) -> Tensor:
        result: Tensor = getattr(first, name + "_")(*others, *args, **kwargs)
        assert result is first
        return result

    def call(*operands: Any, **out: Any) -> Any:
        return function(*operands, *args, **kwargs, **out)

    has_in_place = hasattr(Tensor, name + "_")
    return Pointwise(label, call, operands, in_place=in_place if has_in_place else None, **fields)


def relu(x: Tensor, out: Tensor | None = None) -> Tensor:
    """relu, whose out variant is not in Python's API."""
    result: Tensor = torch.relu(x) if out is None else torch.ops.aten.relu.out(x, out=out)
    return result


def dense_gelu_backward(gradient: Tensor, x: Tensor) -> Any:
    """gelu_backward on the CPU, where oneDNN refuses broadcast operands."""
    zero = torch.zeros_like(gradient * x)
    return torch.ops.aten.gelu_backward(gradient + zero, x + zero)


POSITIVE: dict[str, Any] = {"low": 0.1}
POINTWISE = [
    torch_row("add", 2, dtypes=REAL),
    torch_row("add", 2, alpha=3, dtypes=NUMERIC),
    torch_row("sub", 2, dtypes=REAL[:-1]),
    torch_row("sub", 2, alpha=2, dtypes=NUMERIC),
    torch_row("mul", 2, dtypes=REAL),
    torch_row("div", 2),
    torch_row("div", 2, rounding_mode="floor", dtypes=NUMERIC),
    # Not in 16 bits: ATen's CPU kernel rounds the quotient up to a whole number before it truncates.
    torch_row("div", 2, rounding_mode="trunc", dtypes=(torch.float32, torch.float64, *INTEGRAL)),
    torch_row("fmod", 2, dtypes=NUMERIC),
    torch_row("remainder", 2, dtypes=NUMERIC),
    torch_row("addcmul", 3, dtypes=NUMERIC),
    torch_row("addcmul", 3, value=2, dtypes=NUMERIC),
    torch_row("addcdiv", 3, low=0.5),
    torch_row("addcdiv", 3, value=0.25, low=0.5),
    torch_row("lerp", 2, 0.3),
    torch_row("lerp", 2, 0.9),
    torch_row("lerp", 3),
    torch_row("neg", dtypes=NUMERIC),
    torch_row("abs", dtypes=NUMERIC),
    torch_row("sign", dtypes=NUMERIC),
    torch_row("reciprocal"),
    torch_row("sqrt"),
    torch_row("rsqrt", **POSITIVE),
    torch_row("exp", low=-20, high=10),
    torch_row("exp2"),
    torch_row("expm1"),
    torch_row("log", **POSITIVE),
    torch_row("log1p", **POSITIVE),
    torch_row("log2", **POSITIVE),
    torch_row("log10", **POSITIVE),
    torch_row("sin"),
    torch_row("cos"),
    torch_row("tan", low=-1, high=1),
    torch_row("atan"),
    torch_row("tanh"),
    torch_row("erf"),
    torch_row("erfc"),
    torch_row("floor", dtypes=NUMERIC),
    torch_row("ceil", dtypes=NUMERIC),
    torch_row("trunc", dtypes=NUMERIC),
    torch_row("round", dtypes=NUMERIC),
    *(torch_row("pow", 1, exponent) for exponent in (-2, -1, -0.5, 0, 0.5, 1, 1.7)),
    *(torch_row("pow", 1, exponent, dtypes=NUMERIC) for exponent in (0, 1, 2, 3, 5)),
    torch_row("pow", 2, **POSITIVE),
    torch_row("pow", 2, dtypes=INTEGRAL, low=1),
    torch_row("maximum", 2, dtypes=NUMERIC),
    torch_row("minimum", 2, dtypes=NUMERIC),
    torch_row("clamp", 1, -1, 2, dtypes=NUMERIC),
    torch_row("clamp", 1, min=-1, dtypes=NUMERIC),
    torch_row("clamp", 1, max=1, dtypes=NUMERIC),
    torch_row("clamp_min", 1, 1, dtypes=NUMERIC),
    torch_row("clamp_max", 1, 1, dtypes=NUMERIC),
    *(torch_row(name, 2, dtypes=REAL) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(torch_row(name, 1, 1, dtypes=REAL) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    torch_row("bitwise_and", 2, dtypes=LOGICAL),
    torch_row("bitwise_or", 2, dtypes=LOGICAL),
    torch_row("bitwise_xor", 2, dtypes=LOGICAL),
    torch_row("bitwise_not", dtypes=LOGICAL),
    torch_row("logical_not", dtypes=REAL),
    Pointwise("relu", relu, dtypes=NUMERIC, in_place=torch.relu_),
    torch_row("sigmoid"),
    Pointwise("threshold", lambda x: functional.threshold(x, 0.5, 3), dtypes=FLOATING),
    Pointwise("leaky_relu", lambda x: functional.leaky_relu(x, 0.2)),
    Pointwise("silu", functional.silu),
    Pointwise("elu", lambda x: functional.elu(x, 1.3)),
    Pointwise("softplus", lambda x: functional.softplus(x, 2, 3)),
    Pointwise("gelu", functional.gelu),
    Pointwise("gelu-tanh", lambda x: functional.gelu(x, approximate="tanh")),
    Pointwise(
        "threshold_backward", lambda g, x: torch.ops.aten.threshold_backward(g, x, 0), 2, NUMERIC
    ),
    Pointwise(
        "leaky_relu_backward", lambda g, x: torch.ops.aten.leaky_relu_backward(g, x, 0.2, False), 2
    ),
    Pointwise("sigmoid_backward", torch.ops.aten.sigmoid_backward, 2),
    Pointwise("tanh_backward", torch.ops.aten.tanh_backward, 2),
    Pointwise("silu_backward", torch.ops.aten.silu_backward, 2),
    Pointwise("gelu_backward", torch.ops.aten.gelu_backward, 2, reference=dense_gelu_backward),
    Pointwise(
        "gelu_backward-tanh", lambda g, x: torch.ops.aten.gelu_backward(g, x, approximate="tanh"), 2
    ),
]
IN_PLACE = [row for row in POINTWISE if row.in_place is not None]


def each_dtype(rows: Iterable[Pointwise]) -> list[Any]:
    """The rows with each of their dtypes, named for the test's id."""
    return [
        pytest.param(row, dtype, id=f"{row}-{str(dtype).removeprefix('torch.')}")
        for row in rows
        for dtype in row.dtypes
    ]


@pytest.mark.parametrize(("row", "dtype"), each_dtype(POINTWISE))
def test_pointwise(row: Pointwise, dtype: torch.dtype) -> None:
    for operands in layouts(row.operands, dtype=dtype, low=row.low, high=row.high):
        compare(row.call, *operands, reference=row.reference)


@pytest.mark.parametrize("row", POINTWISE, ids=str)
def test_pointwise_beyond_one_thread_and_one_row(row: Pointwise) -> None:
    dtype = row.dtypes[0]
    operands = [
        numbers(70_001, dtype=dtype, low=row.low, high=row.high, seed=k)
        for k in range(row.operands)
    ]
    compare(row.call, *operands, reference=row.reference)


@pytest.mark.parametrize("row", IN_PLACE, ids=str)
def test_pointwise_in_place(row: Pointwise) -> None:
    assert row.in_place is not None
    dtype = row.dtypes[0]
    for operands in layouts(row.operands, dtype=dtype, low=row.low, high=row.high):
        first_takes_all = operands[0].shape == row.call(*operands).shape
        if first_takes_all:
            compare(row.in_place, *operands)
    same = numbers(8, 9, dtype=dtype, low=max(row.low, 0.2), high=row.high)
    in_place = row.in_place
    compare(lambda x: in_place(*[x] * row.operands), same)


@pytest.mark.parametrize("row", IN_PLACE, ids=str)
def test_pointwise_into_out(row: Pointwise) -> None:
    operands = [
        numbers(6, 7, dtype=row.dtypes[0], low=row.low, high=row.high, seed=k)
        for k in range(row.operands)
    ]
    dtype = row.call(*operands).dtype
    for shape in ((0,), (6, 7), (7, 6)):
        out = torch.zeros(shape, dtype=dtype)
        out = out.T if shape == (7, 6) else out

        def into(out: Tensor, *operands: Tensor) -> Tensor:
            is_out: bool = row.call(*operands, out=out) is out
            assert is_out
            return out

        compare(into, out, *operands)


SPECIAL = [
    math.nan,
    0.0,
    -0.0,
    1e-38,
    -1e-38,
    1.5,
    2.5,
    -3.5,
    88.7,
    -88.7,
    104.0,
    -104.0,
    1e15,
    -1e15,
]
SUBNORMAL = {1e-38, -1e-38, 1e-45}
# Left out: where ATen's vectorised CPU kernel gives NaN and its scalar one agrees with ours, and where the
# formula loses its digits to cancellation times 1e15.
NOT_SPECIAL = {
    "gelu": {math.inf, -math.inf},
    "fmod": SUBNORMAL,
    "remainder": SUBNORMAL,
    "gelu_backward": {1e15, -1e15},
    "gelu_backward-tanh": {1e15, -1e15},
}


@pytest.mark.parametrize("row", [row for row in POINTWISE if torch.float32 in row.dtypes], ids=str)
def test_pointwise_of_special_values(row: Pointwise) -> None:
    excluded = NOT_SPECIAL.get(row.name, set())
    special = torch.tensor([x for x in (*SPECIAL, math.inf, -math.inf, 1e-45) if x not in excluded])
    others = [special.roll(k).repeat(len(special)) for k in range(row.operands - 1)]
    compare(row.call, special.repeat_interleave(len(special)), *others, reference=row.reference)


PROMOTION: list[tuple[str, Call, tuple[Any, ...]]] = [
    ("float + int", torch.add, (numbers(4, 5), numbers(4, 5, dtype=torch.int64))),
    ("int + float", torch.add, (numbers(5, dtype=torch.int32), numbers(4, 5))),
    ("float + 1", lambda x: x + 1, (numbers(4, 5),)),
    ("float + 1.5", lambda x: x + 1.5, (numbers(4, 5),)),
    ("int + 1.5", lambda x: x + 1.5, (numbers(4, 5, dtype=torch.int64),)),
    ("1 - float", lambda x: 1 - x, (numbers(4, 5),)),
    ("2 / int", lambda x: 2 / x, (numbers(4, 5, dtype=torch.int64),)),
    (
        "half * double 0-dim",
        torch.mul,
        (numbers(4, dtype=torch.float16), torch.tensor(1.5).double()),
    ),
    ("float * double", torch.mul, (numbers(4, 5), numbers(4, 5, dtype=torch.float64))),
    (
        "bfloat16 + half",
        torch.add,
        (numbers(9, dtype=torch.bfloat16), numbers(9, dtype=torch.float16)),
    ),
    (
        "int / int",
        torch.div,
        (numbers(6, dtype=torch.int64), numbers(6, dtype=torch.int64, seed=1)),
    ),
    (
        "bool + bool",
        torch.add,
        (numbers(9, dtype=torch.bool), numbers(9, dtype=torch.bool, seed=1)),
    ),
    ("bool * float", torch.mul, (numbers(9, dtype=torch.bool), numbers(9))),
    ("sqrt(int)", torch.sqrt, (numbers(9, dtype=torch.int64, low=1),)),
    ("exp(bool)", torch.exp, (numbers(9, dtype=torch.bool),)),
    ("int < 1.5", lambda x: x < 1.5, (numbers(9, dtype=torch.int64),)),
    ("int == float", torch.eq, (numbers(9, dtype=torch.int64), numbers(9))),
    ("int ** 0.5", lambda x: x**0.5, (numbers(9, dtype=torch.int64, low=1),)),
    ("2 ** float", lambda x: 2**x, (numbers(9),)),
    ("clamp(int, 0.5)", lambda x: torch.clamp(x, min=0.5), (numbers(9, dtype=torch.int64),)),
    ("add_(float, int)", lambda x, y: x.add_(y), (numbers(9), numbers(9, dtype=torch.int64))),
    ("add_(double, 1)", lambda x: x.add_(1), (numbers(9, dtype=torch.float64),)),
    ("mul_(int, 2)", lambda x: x.mul_(2), (numbers(9, dtype=torch.int64),)),
    ("eq_(float)", lambda x, y: x.eq_(y), (numbers(9), numbers(9).round())),
    (
        "add into double",
        lambda out, x, y: torch.add(x, y, out=out),
        (torch.zeros(9, dtype=torch.float64), numbers(9), numbers(9, seed=1)),
    ),
    (
        "int add into float",
        lambda out, x: torch.add(x, 1, out=out),
        (torch.zeros(9), numbers(9, dtype=torch.int64)),
    ),
    (
        "lt into int",
        lambda out, x, y: torch.lt(x, y, out=out),
        (torch.zeros(9, dtype=torch.int64), numbers(9), numbers(9, seed=1)),
    ),
    (
        "logical_not into double",
        lambda out, x: torch.logical_not(x, out=out),
        (torch.zeros(9, dtype=torch.float64), numbers(9).round()),
    ),
    (
        "where",
        torch.where,
        (numbers(9, dtype=torch.bool), numbers(9), numbers(9, dtype=torch.int64)),
    ),
    (
        "where with a number",
        lambda c, x: torch.where(c, x, 0.0),
        (numbers(9, dtype=torch.bool), numbers(9)),
    ),
]


@pytest.mark.parametrize(
    ("call", "operands"), [pytest.param(c, o, id=name) for name, c, o in PROMOTION]
)
def test_type_promotion(call: Call, operands: tuple[Any, ...]) -> None:
    compare(call, *operands)


def test_relu_keeps_nan_and_int_min() -> None:
    assert math.isnan(on_device(torch.relu, torch.tensor([math.nan]))[0])
    compare(torch.relu, torch.tensor([torch.iinfo(torch.int64).min, -1, 0, 1]))


def test_integer_powers() -> None:
    base = torch.tensor([-2, -1, 1, 2, 3])
    for exponent in (torch.tensor([2]), torch.tensor([63]), torch.tensor([-1, -2, -5, -1, -2])):
        compare(torch.pow, base, exponent)


@pytest.mark.parametrize(
    "call", [torch.remainder, torch.fmod, torch.floor_divide], ids=lambda c: c.__name__
)
def test_integer_division_by_zero_raises(call: Call) -> None:
    with pytest.raises(RuntimeError, match=r"(^| refuses the call: )ZeroDivisionError$"):
        on_device(call, torch.tensor([1, 2]), torch.tensor([1, 0]))


@pytest.mark.parametrize("row", POINTWISE, ids=str)
def test_pointwise_does_not_fall_back(row: Pointwise) -> None:
    for dtype in row.dtypes:
        operands = [
            numbers(3, dtype=dtype, low=row.low, high=row.high).to(DEVICE)
            for _ in range(row.operands)
        ]
        with opsmith.count_fallbacks(callers=False) as counted:
            row.call(*operands)
        assert counted.fallbacks.counts == ()


# ---- reductions ----


@dataclass(frozen=True)
class ReductionRow:
    """A reduction: over one dimension or several, with and without keepdim, and over all."""

    name: str
    dtypes: tuple[torch.dtype, ...]
    many: bool = False
    one: bool = True
    whole: bool = True

    def __str__(self) -> str:
        return self.name


REDUCTIONS = [
    ReductionRow("sum", REAL, many=True),
    ReductionRow("mean", FLOATING, many=True),
    ReductionRow("prod", REAL, whole=False),
    ReductionRow("amax", NUMERIC, many=True),
    ReductionRow("amin", NUMERIC, many=True),
    ReductionRow("argmax", NUMERIC),
    ReductionRow("argmin", NUMERIC),
    ReductionRow("max", REAL, whole=False),
    ReductionRow("min", REAL, whole=False),
    ReductionRow("any", REAL),
    ReductionRow("all", REAL),
]
REDUCTION_CASES = [
    pytest.param(row, dtype, id=f"{row}-{str(dtype).removeprefix('torch.')}")
    for row in REDUCTIONS
    for dtype in row.dtypes
]


@pytest.mark.parametrize(("row", "dtype"), REDUCTION_CASES)
def test_reduction(row: ReductionRow, dtype: torch.dtype) -> None:
    function = getattr(torch, row.name)
    low = -2 if row.name != "prod" else 0.7
    high = 2 if row.name != "prod" else 1.2
    cube = numbers(5, 6, 35, dtype=dtype, low=low, high=high)
    operands = [
        cube,
        cube.transpose(0, 2),
        cube.permute(1, 2, 0),
        cube[:, ::2, ::3],
        cube[:1].expand(4, 6, 35),
    ]
    dims: list[Any] = ([0, 1, 2, -1] if row.one else []) + (
        [(0, 1), (0, 2), (1, -1)] if row.many else []
    )
    # Sums of 16-bit floats: ATen itself rounds between steps.
    sixteen_bits = dtype in (torch.bfloat16, torch.float16)
    tolerance = Tolerance(rtol=2e-2, atol=5e-2) if sixteen_bits else None
    for operand in operands:
        for dim in dims:
            for keepdim in (False, True):
                compare(
                    lambda x, d=dim, k=keepdim: function(x, dim=d, keepdim=k),
                    operand,
                    tolerance=tolerance,
                )
        if row.whole:
            compare(function, operand, tolerance=tolerance)
    compare(lambda x: function(x, dim=0), numbers(dtype=dtype))
    compare(lambda x: function(x, dim=1), numbers(0, 3, dtype=dtype))


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "any", "all"])
def test_reduction_of_nothing(name: str) -> None:
    compare(lambda x: getattr(torch, name)(x, dim=0), torch.empty(0, 3))
    compare(getattr(torch, name), torch.empty(0))


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin"])
def test_reduction_of_nothing_that_has_no_value_raises(name: str) -> None:
    with pytest.raises((IndexError, RuntimeError), match="Expected reduction dim"):
        on_device(lambda x: getattr(torch, name)(x, dim=0), torch.empty(0, 3))


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_first_of_equal_elements_and_nan(name: str) -> None:
    ties = torch.tensor(
        [[1.0, 3.0, 3.0, 1.0], [math.nan, 9.0, math.nan, -9.0], [-math.inf] * 4, [math.inf] * 4]
    )
    compare(lambda x: getattr(torch, name)(x, dim=1), ties)
    compare(lambda x: getattr(torch, name)(x, dim=0), ties)
    compare(lambda x: getattr(torch, name)(x, dim=0), ties[2:].T)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremum_is_nan_where_there_is_one(name: str) -> None:
    operand = numbers(3, 200)
    operand[1, 130] = math.nan
    for dim in (0, 1):
        compare(lambda x, d=dim: getattr(torch, name)(x, dim=d), operand)


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        (torch.int32, torch.int32),
        (torch.bool, torch.float32),
        (torch.float32, torch.float64),
        (torch.float16, torch.float32),
        (torch.float64, torch.float16),
        (torch.float32, torch.int64),
        (torch.int64, torch.float64),
        (torch.float32, torch.complex64),
        (torch.int8, torch.int8),
        (torch.int16, torch.uint8),
        (torch.float32, torch.int16),
        (torch.bool, torch.bool),
        (torch.int32, torch.bool),
    ],
    ids=str,
)
def test_sum_with_a_dtype(dtype: torch.dtype, result: torch.dtype) -> None:
    for name in ("sum", "prod"):
        call = getattr(torch, name)
        compare(lambda x, call=call: call(x, dim=1, dtype=result), numbers(4, 50, dtype=dtype))


def test_long_sums_are_as_accurate_as_atens() -> None:
    terms = numbers(3_000_001, low=0, high=1)
    exact = terms.double().sum()
    for call in (torch.sum, lambda x: torch.sum(x.view(-1, 1), dim=0)):
        error = (on_device(call, terms).double() - exact).abs() / exact
        assert error.item() < 2e-7


@pytest.mark.parametrize("name", ["sum", "amax", "argmax"])
def test_reduction_into_strided_out(name: str) -> None:
    operand = numbers(6, 5, 4)
    result = getattr(torch, name)(operand, dim=1)
    compare(
        lambda out, x: getattr(torch, name)(x, dim=1, out=out),
        torch.zeros(4, 6, dtype=result.dtype).T,
        operand,
    )


# ---- softmax ----


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_and_its_gradient(name: str, dtype: torch.dtype) -> None:
    backward = getattr(torch.ops.aten, f"_{name}_backward_data")
    cube = numbers(4, 5, 70, dtype=dtype)
    for operand in (cube, cube.transpose(0, 2), cube[:, :, ::2], cube[0, 0, 0], cube[:0]):
        for dim in (0, -1, 1) if operand.dim() > 1 else (0, -1):
            compare(lambda x, d=dim: getattr(torch, name)(x, dim=d), operand)
            result = getattr(torch, name)(operand, dim=dim)
            gradient = numbers(*operand.shape, dtype=dtype, seed=1)
            compare(lambda g, y, d=dim: backward(g, y, d, y.dtype), gradient, result)
    compare(
        lambda x: getattr(torch, name)(x, dim=0),
        torch.tensor([-math.inf, 500.0, 499.0], dtype=dtype),
    )


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_impossible_row_is_nan(name: str) -> None:
    compare(lambda x: getattr(torch, name)(x, dim=0), torch.tensor([-math.inf, -math.inf]))


# ---- matrix products ----


MATRIX_SHAPES = [
    *((1, 1, 1), (7, 5, 3), (1, 64, 40), (33, 1, 2), (60, 70, 300), (6, 64, 256)),
    *((0, 3, 2), (3, 0, 2), (3, 2, 0)),
]


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_matrix_products(dtype: torch.dtype) -> None:
    # Sums of 300 products, in another order; 16-bit results may be a rounding apart.
    tolerance = {
        torch.float32: Tolerance(rtol=1e-5, atol=1e-3),
        torch.float16: Tolerance(rtol=1e-2, atol=2e-1),
        torch.bfloat16: Tolerance(rtol=1e-2, atol=1.0),
    }.get(dtype)
    scaled_addmm = partial(torch.addmm, beta=2, alpha=3)
    scaled_baddbmm = partial(torch.baddbmm, beta=2, alpha=3)
    for m, n, k in MATRIX_SHAPES:
        a, b = (
            numbers(m, k, dtype=dtype, low=-2, high=2),
            numbers(k, n, dtype=dtype, low=-2, high=2, seed=1),
        )
        added = numbers(m, n, dtype=dtype, low=-2, high=2, seed=2)
        a_columns, b_columns = a.T.contiguous().T, b.T.contiguous().T
        for left, right in ((a, b), (a_columns, b), (a, b_columns), (a_columns, b_columns)):
            compare(torch.mm, left, right, tolerance=tolerance)
        compare(torch.addmm, added, a, b, tolerance=tolerance)
        compare(
            scaled_addmm, added[:1].expand(m, n) if m else added, a, b_columns, tolerance=tolerance
        )
        if n:
            compare(
                torch.addmm, added[0] if m else numbers(n, dtype=dtype), a, b, tolerance=tolerance
            )
        batch_a, batch_b = a.expand(3, m, k), torch.stack([b, -b, b + b])
        compare(torch.bmm, batch_a, batch_b, tolerance=tolerance)
        compare(scaled_baddbmm, added.expand(3, m, n), batch_a, batch_b, tolerance=tolerance)


def test_matrix_products_of_gapped_operands() -> None:
    a, b = numbers(20, 31)[::2, ::3], numbers(40, 24)[:22:2, 1::2]
    compare(torch.mm, a, b)
    compare(lambda out, a, b: torch.mm(a, b, out=out), torch.zeros(12, 10).T, a, b)
    compare(lambda x, a, b: x.addmm_(a, b, beta=0.5), numbers(10, 12), a, b)


def test_addmm_with_beta_zero_does_not_read_the_addend() -> None:
    addend = torch.full((4, 6), math.nan)
    compare(lambda x, a, b: torch.addmm(x, a, b, beta=0), addend, numbers(4, 30), numbers(30, 6))


def test_matrix_products_of_two_dtypes_raise() -> None:
    with pytest.raises(RuntimeError, match="expected m1 and m2 to have the same dtype"):
        on_device(torch.mm, numbers(2, 2), numbers(2, 2, dtype=torch.float64))


# ---- moving elements ----


@pytest.mark.parametrize("dtype", [*REAL, torch.complex64, torch.complex128], ids=str)
def test_moving_elements(dtype: torch.dtype) -> None:
    def make(*shape: int, seed: int = 0) -> Tensor:
        real = numbers(*shape, dtype=torch.float32 if dtype.is_complex else dtype, seed=seed)
        return torch.complex(real, real + 1).to(dtype) if dtype.is_complex else real

    x, y = make(4, 6), make(4, 6, seed=1)
    mask = numbers(4, 6, dtype=torch.bool, seed=2)
    compare(lambda a, b: torch.cat([a, b]), x, y)
    compare(lambda a, b: torch.cat([a, b.T], dim=-1), x, make(3, 4))
    compare(lambda a, b: torch.cat([a.new_empty(0), a[:, ::2], b[:, :1]], dim=1), x, y)
    compare(lambda out, a, b: torch.cat([a, b], out=out), make(6, 8).T, x, y)
    compare(torch.where, mask, x, y)
    compare(torch.where, mask[:1], x.T.contiguous().T, y[:, :1])
    for view in (
        lambda t: t,
        lambda t: t[:, ::2],
        lambda t: t.T,
        lambda t: t[:0],
        lambda t: t[0, 0],
    ):
        compare(lambda t, v=view: v(t).fill_(1), x)
        compare(lambda t, v=view: v(t).zero_(), x)
        compare(lambda t, m, v=view: v(t).masked_fill_(v(m), 1), x, mask)
    compare(lambda t, m: t.masked_fill(m, 0), x, mask[0])


def test_cat_promotes() -> None:
    compare(lambda a, b: torch.cat([a, b]), numbers(3), numbers(2, dtype=torch.int64))
    compare(lambda a: torch.cat([a[:0], a[:0]]), numbers(3, 2))


def test_masked_fill_refuses_masks_of_numbers() -> None:
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        on_device(lambda x, m: x.masked_fill_(m, 1), numbers(3), numbers(3))


def test_fill_of_expanded_memory_raises() -> None:
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        on_device(lambda x: x[:1].expand(4).fill_(1), numbers(3))


MATRIX = numbers(4, 4)
MASK = numbers(4, 4, dtype=torch.bool)
KERNEL_CALLS: list[tuple[str, Call, tuple[Tensor, ...]]] = [
    *((row.name, partial(getattr(torch, row.name), dim=0), (MATRIX,)) for row in REDUCTIONS),
    ("sum-all", torch.sum, (MATRIX,)),
    ("any-all", torch.any, (MATRIX,)),
    ("all-all", torch.all, (MATRIX,)),
    ("softmax", partial(torch.softmax, dim=1), (MATRIX,)),
    ("log_softmax", partial(torch.log_softmax, dim=1), (MATRIX,)),
    ("mm", torch.mm, (MATRIX, MATRIX)),
    ("addmm", torch.addmm, (MATRIX, MATRIX, MATRIX)),
    ("bmm", torch.bmm, (MATRIX[None], MATRIX[None])),
    ("baddbmm", torch.baddbmm, (MATRIX, MATRIX[None], MATRIX[None])),
    ("cat", lambda x, y: torch.cat([x, y]), (MATRIX, MATRIX)),
    ("where", torch.where, (MASK, MATRIX, MATRIX)),
    ("fill_", lambda x: x.fill_(1), (MATRIX,)),
    ("zero_", lambda x: x.zero_(), (MATRIX,)),
    ("masked_fill_", lambda x, m: x.masked_fill_(m, 1), (MATRIX, MASK)),
]


@pytest.mark.parametrize(
    ("call", "operands"), [pytest.param(c, o, id=name) for name, c, o in KERNEL_CALLS]
)
def test_others_do_not_fall_back(call: Call, operands: tuple[Tensor, ...]) -> None:
    on_its_memory = [operand.to(DEVICE) for operand in operands]
    with opsmith.count_fallbacks(callers=False) as counted:
        call(*on_its_memory)
    assert counted.fallbacks.counts == ()
