"""Sim's kernels in place, into ``out``, and of operands with gaps or repeated elements, as ATen's on the CPU.

``kernel_suite`` asks for all dtypes, special values and promotion, ``portable_backend`` for the other layouts
of operands and for what is refused.  Here each operator is a row of a table; the same calls run on the device
and on the CPU, and are compared with torch.testing's tolerances for the dtype.
"""

from __future__ import annotations

import itertools
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
from fell_back import fell_back
from refusal import outcome

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


def layouts(count: int, **kwargs: Any) -> Iterator[tuple[Tensor, ...]]:
    """`count` operands at a time, in arrangements of memory that are rarely met."""

    def make(*shape: int) -> list[Tensor]:
        return [numbers(*shape, seed=seed, **kwargs) for seed in range(count)]

    yield tuple(t[:, ::2] for t in make(4, 33))  # with gaps
    yield tuple(t[..., :1].expand(-1, 21) if k else t for k, t in enumerate(make(3, 21)))
    yield tuple(t[:1].expand(3, 21) if k else t for k, t in enumerate(make(3, 21)))
    if count > 1:
        first, *others = make(2, 3, 17)
        yield first[0, 0, 0], *others  # a 0-dim tensor of the device first


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


def into(call: Call) -> Call:
    """The call with its result's place as the first argument."""
    return lambda out, *operands: call(*operands, out=out)


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


PROMOTION: dict[str, tuple[Any, ...]] = {
    "1 - float": (lambda x: 1 - x, numbers(4, 5)),
    "clamp(int, 0.5)": (partial(torch.clamp, min=0.5), numbers(9, dtype=torch.int64)),
    "add_(float, int)": (Tensor.add_, numbers(9), numbers(9, dtype=torch.int64)),
    "add_(double, 1)": (Tensor.add_, numbers(9, dtype=torch.float64), 1),
    "mul_(int, 2)": (Tensor.mul_, numbers(9, dtype=torch.int64), 2),
    "eq_(float)": (Tensor.eq_, numbers(9), numbers(9).round()),
    "add into double": (into(torch.add), torch.zeros(9).double(), numbers(9), numbers(9, seed=1)),
    "int add into float": (into(torch.add), torch.zeros(9), numbers(9, dtype=torch.int64), 1),
    "lt into int": (into(torch.lt), torch.zeros(9).long(), numbers(9), numbers(9, seed=1)),
    "logical_not into double": (
        into(torch.logical_not),
        torch.zeros(9).double(),
        numbers(9).round(),
    ),
}


@pytest.mark.parametrize("name", PROMOTION)
def test_type_promotion(name: str) -> None:
    compare(*PROMOTION[name])


def test_relu_keeps_nan_and_int_min() -> None:
    assert math.isnan(on_device(torch.relu, torch.tensor([math.nan]))[0])
    compare(torch.relu, torch.tensor([torch.iinfo(torch.int64).min, -1, 0, 1]))


@pytest.mark.parametrize("row", POINTWISE, ids=str)
def test_pointwise_does_not_fall_back(row: Pointwise) -> None:
    for dtype in row.dtypes:
        operands = [
            numbers(3, dtype=dtype, low=row.low, high=row.high).to(DEVICE)
            for _ in range(row.operands)
        ]
        with opsmith.count_fallbacks(callers=False) as counted:
            row.call(*operands)
        assert fell_back(counted.fallbacks) == set()


def test_integer_division_by_zero_raises() -> None:
    with pytest.raises(RuntimeError, match=r"(^| refuses the call: )ZeroDivisionError$"):
        on_device(torch.floor_divide, torch.tensor([1, 2]), torch.tensor([1, 0]))


# ---- reductions ----


REDUCTIONS = "sum mean prod amax amin argmax argmin max min any all".split()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str) -> None:
    for dtype in (torch.float32, torch.int32)[: 1 if name == "mean" else 2]:
        near_one = {"low": 0.7, "high": 1.2} if dtype.is_floating_point else {}
        cube = numbers(5, 6, 35, dtype=dtype, **near_one)
        for operand in (cube.permute(1, 2, 0), cube[:, ::2, ::3], cube[:1].expand(4, 6, 35)):
            for dim, keepdim in itertools.product((0, 1, 2, -1), (False, True)):
                compare(partial(getattr(torch, name), dim=dim, keepdim=keepdim), operand)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "any", "all"])
def test_reduction_of_nothing(name: str) -> None:
    compare(getattr(torch, name), torch.empty(0))


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        (torch.float32, torch.complex64),
        (torch.int8, torch.int8),
        (torch.float32, torch.int16),
        (torch.bool, torch.bool),
    ],
    ids=str,
)
def test_sum_with_a_dtype(dtype: torch.dtype, result: torch.dtype) -> None:
    for call in (torch.sum, torch.prod):
        compare(partial(call, dim=1, dtype=result), numbers(4, 50, dtype=dtype))


@pytest.mark.parametrize("name", ["sum", "amax", "argmax"])
def test_reduction_into_strided_out(name: str) -> None:
    operand = numbers(6, 5, 4)
    result = getattr(torch, name)(operand, dim=1)
    compare(
        lambda out, x: getattr(torch, name)(x, dim=1, out=out),
        torch.zeros(4, 6, dtype=result.dtype).T,
        operand,
    )


# ---- matrix products ----


def test_matrix_products_of_gapped_operands() -> None:
    a, b = numbers(20, 31)[::2, ::3], numbers(40, 24)[:22:2, 1::2]
    compare(torch.mm, a, b)
    compare(into(torch.mm), torch.zeros(12, 10).T, a, b)
    compare(lambda x, a, b: x.addmm_(a, b, beta=0.5), numbers(10, 12), a, b)
    batches = numbers(10, 12).expand(3, 10, 12), a.expand(3, 10, 11), torch.stack([b, -b, b + b])
    scaled = partial(torch.baddbmm, beta=2, alpha=3)
    compare(scaled, *batches, tolerance=Tolerance(rtol=1e-5, atol=1e-3))


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


FIRST_AND_LAST = torch.tensor([True, False, False, True])
WRITES: dict[str, Call] = {
    "fill_": lambda x, m: x.fill_(2),
    "fill_.Tensor": lambda x, m: x.fill_(torch.tensor(2.0, device=x.device)),
    "fill_.Tensor of the CPU": lambda x, m: x.fill_(torch.tensor(2.0)),
    "zero_": lambda x, m: x.zero_(),
    "masked_fill_": lambda x, m: x.masked_fill_(m, 3),
    "threshold_": lambda x, m: torch.threshold_(x, 0.5, 0.25),
    "index_put_": lambda x, m: x.index_put_((m,), torch.tensor(5.0, device=x.device)),
    "index_fill_": lambda x, m: x.index_fill_(0, m.nonzero()[:, 0], 5),
    "nan_to_num_": lambda x, m: x.nan_to_num_(),
    "add_": lambda x, m: x.add_(1),
    "relu_": lambda x, m: x.relu_(),
    "masked_scatter_": lambda x, m: x.masked_scatter_(m, x.clone()),
    "copy_": lambda x, m: x.copy_(x.clone()),
    "clamp_": lambda x, m: x.clamp_(0, 1),
    "tril_": lambda x, m: x.view(1, 4).tril_(),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_elements_that_share_memory(name: str) -> None:
    """PyTorch fills such elements, and refuses to compute with them."""

    def call(x: Tensor, mask: Tensor) -> Tensor:
        return WRITES[name](x[:1].expand(4), mask)

    theirs = outcome(call, numbers(3), FIRST_AND_LAST)
    if isinstance(theirs, Tensor):
        compare(call, numbers(3), FIRST_AND_LAST)
    else:
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            on_device(call, numbers(3), FIRST_AND_LAST)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + x,
        lambda x: x.exp(),
        lambda x: x.sum(),
        lambda x: x.amax(1, keepdim=True),
        lambda x: x.flip(1),
        lambda x: torch.cat([x, x]),
        lambda x: torch.where(x > 0, x, -x),
        lambda x: x.masked_fill_(x > 0, 3),
        lambda x: x.softmax(1),
        lambda x: x[..., :1].contiguous(),
    ],
)
def test_more_dimensions_than_lean_tensors_have(call: Call) -> None:
    compare(call, numbers(2, 3, *[1] * 15, 2))


MATRIX = numbers(4, 4)
MASK = numbers(4, 4, dtype=torch.bool)
KERNEL_CALLS: list[tuple[str, Call, tuple[Tensor, ...]]] = [
    *((name, partial(getattr(torch, name), dim=0), (MATRIX,)) for name in REDUCTIONS),
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
    assert fell_back(counted.fallbacks) == set()


@pytest.mark.usefixtures("no_fallback")
@pytest.mark.parametrize("sizes", [(4, 3), (2, 3, 4, 5)])
def test_batch_norm_updates_running_statistics_whatever_their_strides(
    sizes: tuple[int, ...],
) -> None:
    statistics = {}
    for device in ("cpu", "sim"):
        x = torch.arange(float(torch.Size(sizes).numel())).reshape(sizes).to(device)
        dense, gaps = torch.ones(3, device=device), torch.zeros(3, 2, device=device)
        torch.nn.functional.batch_norm(x, gaps[:, 0], dense, training=True)
        torch.nn.functional.batch_norm(x, dense, gaps[:, 1], training=True)
        statistics[device] = torch.cat([dense, gaps.flatten()]).cpu()
    torch.testing.assert_close(statistics["sim"], statistics["cpu"])
    assert statistics["sim"].count_nonzero() == 9
