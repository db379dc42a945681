"""The library ``optimized`` on a device, against the CPU: one instruction set at a time.

No test lets a call fall back to the CPU: what is seen is the library's, or for dtypes that it does not
take the next library's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opsmith
from fell_back import fell_back
from instruction_sets import skip_unsupported
from opsmith.executorch.transforms.packed_linear import pack_linear_layers, packed_weight
from refusal import refusal

# In the default run the widest; the others compute the same calls in ``test_kernels_in_executorch.py``.
pytestmark = pytest.mark.isolated(
    OPSMITH_ISA=("", "baseline", "avx2"), nightly=("baseline", "avx2")
)
skip_unsupported()

opsmith.load("sim")  # where the library stands first
DEVICE = "sim"
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# The relative difference that results rounded to them may have.
ROUNDED = {torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
# Around the widths of vectors: 4, 8, 16 lanes, several of them, and many.
LENGTHS = [*range(0, 20), 31, 32, 33, 63, 64, 65, 127, 1000, 40001]
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    -1e-40,
    88.7,
    89.5,
    -87.5,
    -103.9,
]
SPECIAL += [-104.5, 200.0, -200.0, 3e37, -3e37, 5.4, -5.4, -5.7, 9.0, -9.1, 1e-3, -1e3]
GENERATOR = torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    start = opsmith.fallbacks()
    yield
    assert fell_back(opsmith.fallbacks(since=start)) == set()


def random(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=GENERATOR) * scale).to(dtype)


def agree(call: Callable[..., Tensor], *operands: Tensor, exact: Tensor | None = None) -> None:
    """``call`` on the device gives what it gives on the CPU, or ``exact``, and lies as it does there."""
    theirs = call(*operands)
    ours = call(*(each.to(DEVICE) for each in operands))
    assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    wanted = theirs if exact is None else exact.to(theirs.dtype)
    torch.testing.assert_close(
        ours.cpu(),
        wanted,
        rtol=ROUNDED.get(theirs.dtype, 3e-6),
        atol=1e-3 if theirs.dtype in ROUNDED else 2e-6,
        equal_nan=True,
    )


def permuted(x: Tensor) -> Tensor:
    """The same elements, the first dimension lying innermost."""
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x


UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    **{
        name: getattr(torch, name)
        for name in (
            "abs", "cos", "erf", "exp2", "expm1", "log", "log10", "log1p", "log2", "neg", "reciprocal",
            "round", "rsqrt", "sin", "sqrt",
        )
    },
    "elu": lambda x: functional.elu(x, 1.5),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.1),
    "softplus": lambda x: functional.softplus(x, 2.0, 10.0),
    "hardtanh": lambda x: functional.hardtanh(x, -0.5, 2.0),
    "clamp": lambda x: x.clamp(-0.25, 1.5),
    "clamp_min": lambda x: x.clamp(min=0),
    "clamp_max": lambda x: x.clamp(max=0.5),
    "clamp_wrong": lambda x: x.clamp(1.5, -0.25),
    "clamp_nan": lambda x: x.clamp(math.nan, 1.0),
    **{f"pow{by}": lambda x, by=by: x.pow(by) for by in (1, 2, 3, 0.5, -0.5, -1, -2, 1.7, -3, 0)},
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand(name: str, dtype: torch.dtype) -> None:
    for length in LENGTHS:
        agree(UNARY[name], random(length, dtype=dtype, scale=4))
    agree(UNARY[name], permuted(random(5, 33, 7, dtype=dtype)))
    agree(UNARY[name], random(6, 5, dtype=dtype)[::2, 1:])
    # float32's gelu overflows on the CPU where the result is finite, and is NaN at inf.
    x = torch.tensor(SPECIAL, dtype=dtype)
    agree(UNARY[name], x, exact=UNARY[name](x.double()) if name == "gelu" else None)


aten = torch.ops.aten
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sub": torch.sub,
    "sub_alpha": lambda x, y: torch.sub(x, y, alpha=3),
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "gelu": aten.gelu_backward,
    "gelu_tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": aten.silu_backward,
    "sigmoid": aten.sigmoid_backward,
    "tanh": aten.tanh_backward,
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "where": lambda x, y: torch.where(y > x, x, y),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands(name: str, dtype: torch.dtype) -> None:
    for length in LENGTHS:
        x, y = random(length, dtype=dtype, scale=2), random(length, dtype=dtype, scale=2)
        agree(BINARY[name], x, y, exact=BINARY[name](x.double(), y.double()))
    image = random(5, 33, 7, dtype=dtype)
    row = random(3, 1, dtype=dtype).expand(3, 4)
    for x, y in ((permuted(image), image + 1), (random(6, 5, dtype=dtype)[::2, 1:], row)):
        # The CPU rounds in between: its own error is as large as ours.
        agree(BINARY[name], x, y, exact=BINARY[name](x.double(), y.double()))
    x = torch.tensor(SPECIAL, dtype=dtype)
    if name not in {"gelu", "gelu_tanh", "silu"}:  # whose products of infinities and zeros differ
        agree(BINARY[name], x, x.flip(0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sub", "div", "maximum", "minimum", "where"])
def test_other_functions_of_two_operands_broadcast(name: str, dtype: torch.dtype) -> None:
    for first, second in SHAPES:
        x, y = random(*first, dtype=dtype), random(*second, dtype=dtype)
        for a in (x, permuted(x)):
            agree(BINARY[name], a, y)
            agree(BINARY[name], y, a)
    for call in (lambda a: a / 3, lambda a: 2.5 / a, lambda a: a - 1, lambda a: 1 - a.t()):
        agree(call, random(5, 9, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_of_broadcast_operands(dtype: torch.dtype) -> None:
    x, y = random(7, 700, dtype=dtype), random(700, dtype=dtype)
    for mask in (torch.rand(7, 700) > 0.5, torch.rand(7, 1) > 0.5, torch.rand(700) > 0.5):
        there = mask.to(DEVICE)
        for a, b in (
            (x, y),
            (y, x),
            (x, torch.tensor(2.0, dtype=dtype)),
            (x.t().contiguous().t(), y),
        ):
            chosen = torch.where(there, a.to(DEVICE), b.to(DEVICE))
            assert torch.equal(chosen.cpu(), torch.where(mask, a, b))


@pytest.mark.parametrize("number", [70000.0, -1e300])
def test_numbers_that_the_dtype_cannot_hold(number: float) -> None:
    x = torch.ones(3, dtype=torch.float16, device=DEVICE)
    with pytest.raises(RuntimeError, match="value cannot be converted to type"):
        x.clamp(max=number)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_a_threshold(dtype: torch.dtype) -> None:
    def gradient(output: Tensor, x: Tensor) -> Tensor:
        return aten.threshold_backward(output, x, 0.5)

    for length in LENGTHS:
        agree(gradient, random(length, dtype=dtype), random(length, dtype=dtype))
    agree(gradient, permuted(random(5, 33, 7, dtype=dtype)), random(5, 33, 7, dtype=dtype))
    agree(gradient, random(6, 5, dtype=dtype)[::2, 1:], random(3, 1, dtype=dtype).expand(3, 4))
    agree(gradient, random(3, 1, dtype=dtype).expand(3, 4), random(3, 4, dtype=dtype))
    x = torch.tensor([*SPECIAL, 0.5], dtype=dtype)
    agree(gradient, torch.ones_like(x), x)


def test_exp_is_within_a_unit_in_the_last_place() -> None:
    x = torch.linspace(-87, 88.7, 1_000_001)
    ours, exact = x.to(DEVICE).exp().cpu(), x.double().exp()
    unit = torch.nextafter(exact.float(), torch.tensor(math.inf)) - exact.float()
    assert ((ours - exact).abs() / unit).max() <= 1.0


UNITS = {
    "log": 1.0,
    "round": 0.0,
    "sin": 2.5,
    "cos": 2.5,
    "exp2": 1.1,
    "expm1": 2.0,
    "log1p": 2.0,
    "log2": 2.5,
    "log10": 2.5,
    "erf": 6.0,
    "sqrt": 0.51,
}


@pytest.mark.parametrize("name", UNITS)
def test_units_in_the_last_place(name: str) -> None:
    """All documented errors, over every 4,001st float32 whose result is a normal number."""
    bits = torch.arange(-(2**31), 2**31, 4001, dtype=torch.int64)
    x = bits.to(torch.int32).view(torch.float32)
    exact = getattr(torch, name)(x.double())
    kept = (exact.abs() > 1e-37) & (exact.abs() < 3e38)
    ours, exact = getattr(torch, name)(x.to(DEVICE)).cpu()[kept].double(), exact[kept]
    magnitude = exact.abs().float()
    unit = torch.nextafter(magnitude, torch.tensor(math.inf)) - magnitude
    assert ((ours - exact).abs() / unit).max() <= UNITS[name]


def test_large_results_are_streamed_to_memory() -> None:
    for dtype in DTYPES:
        x, y = random(3_000_003, dtype=dtype)[3:], random(3_000_000, dtype=dtype)
        agree(torch.exp, x)
        agree(torch.add, x, y)
        agree(lambda a: a.view(100, -1).softmax(1), x)


SHAPES = [
    ((37,), (37,)), ((4, 5, 6), (6,)), ((4, 5, 6), (4, 1, 6)), ((4, 5, 6), (4, 5, 1)), ((), (4, 5)),
    ((4, 5), ()), ((4, 1), (1, 5)), ((3, 4, 5, 6), (4, 1, 1)), ((0, 3), (3,)), ((), ()), ((1, 1), (1,)),
    ((100, 333), (333,)), ((2000, 3), (3,)), ((2000, 3), (2000, 1)), ((7, 600), (7, 1)),
]  # fmt: skip


@pytest.mark.parametrize("dtypes", list(itertools.product(DTYPES, DTYPES)))
@pytest.mark.parametrize("shapes", SHAPES)
def test_sums_and_products_broadcast(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    x, y = (random(*shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
    for a in (x, permuted(x)):
        agree(torch.add, a, y)
        # A number beside bfloat16 is rounded first, on the CPU the second too.
        exact = torch.add(y.to(torch.result_type(y, a)).double(), a.double(), alpha=-2)
        agree(lambda p, q: torch.add(p, q, alpha=-2), y, a, exact=exact)
        agree(torch.mul, a, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_and_other_dtypes(dtype: torch.dtype) -> None:
    x = random(5, 9, dtype=dtype)
    for call in (
        lambda a: a + 2,
        lambda a: 2.5 * a.t(),
        lambda a: a + torch.ones(9, dtype=torch.int64, device=a.device),
        lambda a: a * torch.ones(9, dtype=torch.float64, device=a.device),
        lambda a: a.clone().add_(1).mul_(a),
        lambda a: torch.add(a, a, out=torch.empty_like(a)),
    ):
        agree(call, x)
    negative = x.to(DEVICE) * -0.0
    assert torch.equal(negative.cpu().signbit(), (x * -0.0).signbit())
    special = torch.tensor(SPECIAL, dtype=dtype)
    agree(torch.add, special, special.flip(0))
    agree(torch.mul, special, special.flip(0))


REDUCED = [
    (),
    (1,),
    (5,),
    (4, 17),
    (3, 64),
    (70, 100),
    (2, 3, 33),
    (2, 9, 4, 5),
    (0, 3),
    (3, 0),
    (5000, 3),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", REDUCED)
def test_sums_and_means_over_any_dimensions(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = random(*shape, dtype=dtype)
    dims: list[tuple[int, ...] | None] = [None]
    for count in range(1, len(shape) + 1):
        dims += itertools.combinations(range(len(shape)), count)
    for each, keepdim, call in itertools.product(dims, (False, True), (torch.sum, torch.mean)):
        for a in (x, permuted(x)):
            # A sum of cancelling terms: the CPU's own error is as large as ours.
            ours = call(a.to(DEVICE), dim=each, keepdim=keepdim).cpu()
            exact = call(a.double(), dim=each, keepdim=keepdim)
            atol = 1e-6 * max(1, x.numel()) ** 0.5
            torch.testing.assert_close(
                ours, exact.to(dtype), rtol=ROUNDED.get(dtype, 1e-5), atol=atol,
                equal_nan=True,
            )  # fmt: skip


def test_a_sum_of_many_has_no_drift() -> None:
    x = torch.full((3_000_000,), 0.1)
    assert x.to(DEVICE).sum().item() == pytest.approx(x.double().sum().item(), rel=1e-6)
    agree(lambda a: a.sum(0, dtype=torch.float32), random(300, 7, dtype=torch.bfloat16))
    agree(lambda a: a.sum(0, dtype=torch.float64), random(30, 7))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [(), (1,), (5,), (3, 1), (1, 3), (4, 17), (2, 100), (2, 3, 33), (7, 1000), (0, 3), (3, 0)],
)
def test_softmax_along_any_dimension(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = random(*shape, dtype=dtype, scale=3)
    for dim in range(-max(1, len(shape)), max(1, len(shape))):
        for a in (x, permuted(x)):
            agree(lambda p, dim=dim: p.softmax(dim), a, exact=a.double().softmax(dim))
            agree(lambda p, dim=dim: p.log_softmax(dim), a, exact=a.double().log_softmax(dim))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (3, 1), (4, 17), (2, 3, 33), (7, 1000), (0, 3)])
def test_gradients_of_softmax(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, grad = random(*shape, dtype=dtype, scale=3), random(*shape, dtype=dtype)
    for dim, name in itertools.product(
        range(-max(1, len(shape)), max(1, len(shape))), ("softmax", "log_softmax")
    ):
        backward = getattr(torch.ops.aten, f"_{name}_backward_data")
        y = getattr(x.float(), name)(dim).to(dtype)
        for g, result in ((grad, y), (permuted(grad), y), (grad, permuted(y))):
            agree(
                lambda a, b, backward=backward, dim=dim: backward(a, b, dim, dtype),
                g,
                result,
                exact=backward(g.double(), result.double(), dim, torch.float64),
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_special_values(dtype: torch.dtype) -> None:
    rows = [
        [math.inf, 1, 2],
        [-math.inf, 1, 2],
        [-math.inf] * 3,
        [math.nan, 1, 2],
        [1e30, 1, 2],
        [-3e38, -3e38, 0],
    ]
    x = torch.tensor(rows, dtype=dtype)
    for call in (torch.softmax, torch.log_softmax):
        agree(lambda a, call=call: call(a, 1), x)
        agree(lambda a, call=call: call(a, 0), x.t().contiguous())


@pytest.mark.parametrize(
    "dtypes",
    [*((each, each) for each in DTYPES), *((each, torch.float32) for each in ROUNDED)],
)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 16), (2, 17), (7, 768), (2, 4097), (0, 4)])
def test_norms(shape: tuple[int, int], dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x = random(*shape, dtype=dtypes[0], scale=2) + 3
    weight, bias = random(shape[1], dtype=dtypes[1]), random(shape[1], dtype=dtypes[1])
    size = shape[1:]

    def normal(a: Tensor, w: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        return torch.native_layer_norm(a, size, w, b, 1e-5)[0]

    def exact(w: Tensor | None, b: Tensor | None) -> Tensor:
        return functional.layer_norm(
            x.double(), size, w if w is None else w.double(), b if b is None else b.double()
        )

    agree(normal, x, exact=exact(None, None))
    agree(normal, x, weight, exact=exact(weight, None))
    agree(normal, x, weight, bias, exact=exact(weight, bias))
    _, mean, rstd = torch.native_layer_norm(
        x.to(DEVICE), size, weight.to(DEVICE), bias.to(DEVICE), 1e-5
    )
    wanted = torch.native_layer_norm(x, size, weight, bias, 1e-5)
    for got, want in ((mean, wanted[1]), (rstd, wanted[2])):
        torch.testing.assert_close(
            got.cpu().float(),
            want.float(),
            rtol=2e-2 if x.dtype != torch.float32 else 1e-5,
            atol=1e-5,
        )

    for w in (None, weight):
        ours = torch.ops.optimized.rms_norm(
            x.to(DEVICE), size, None if w is None else w.to(DEVICE), 1e-6
        )
        double = functional.rms_norm(x.double(), size, None if w is None else w.double(), 1e-6)
        torch.testing.assert_close(
            ours.cpu(),
            double.to(x.dtype),
            rtol=ROUNDED.get(x.dtype, 3e-6),
            atol=1e-5,
        )


@pytest.mark.parametrize(
    "dtypes",
    [*((each, each) for each in DTYPES), *((each, torch.float32) for each in ROUNDED)],
)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (40, 16), (500, 17), (7, 768), (0, 4)])
def test_gradients_of_layer_norm(
    shape: tuple[int, int], dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    x, grad = random(*shape, dtype=dtypes[0], scale=2), random(*shape, dtype=dtypes[0])
    weight, bias = random(shape[1], dtype=dtypes[1]), random(shape[1], dtype=dtypes[1])
    _, mean, rstd = torch.native_layer_norm(x.double(), shape[1:], None, None, 1e-5)
    for w, b, mask in (
        (weight, bias, [True] * 3),
        (weight, None, [True, True, False]),
        (None, None, [True, False, False]),
        (weight, bias, [False, True, True]),
    ):
        operands = (mean.to(dtypes[1]), rstd.to(dtypes[1]), w, b)
        ours = torch.ops.aten.native_layer_norm_backward(
            *(each if each is None else each.to(DEVICE) for each in (grad, x)),
            shape[1:],
            *(each if each is None else each.to(DEVICE) for each in operands),
            mask,
        )
        exact = torch.ops.aten.native_layer_norm_backward(
            grad.double(),
            x.double(),
            shape[1:],
            *(each if each is None else each.double() for each in operands),
            mask,
        )
        for got, want, asked in zip(ours, exact, mask, strict=True):
            if asked:
                largest = max(1.0, want.abs().max().item() if want.numel() else 0.0)
                close(got.cpu() / largest, want / largest)
        # The parts of a single element cancel, but for their rounding.
        assert shape[1] != 1 or not mask[0] or not ours[0].any()


def test_the_variance_of_rows_far_from_zero() -> None:
    x = random(4, 1000) + 1000
    ours = functional.layer_norm(x.to(DEVICE), (1000,)).cpu()
    torch.testing.assert_close(
        ours.double(), functional.layer_norm(x.double(), (1000,)), rtol=1e-3, atol=1e-3
    )


LONG: dict[str, Callable[[Tensor], Tensor]] = {
    "layer_norm": lambda x: functional.layer_norm(x, x.shape),
    "layer_norm's gradient": lambda x: torch.ops.aten.native_layer_norm_backward(
        x.sin(),
        x,
        x.shape,
        x.mean().view(1),
        x.std().view(1).reciprocal(),
        None,
        None,
        [True, False, False],
    )[0],
    "rms_norm": lambda x: functional.rms_norm(x, x.shape),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
}


@pytest.mark.parametrize("name", LONG)
def test_long_rows_are_as_exact_as_short_ones(name: str) -> None:
    x = random(1 << 21) + 3
    exact = LONG[name](x.double())
    error = (LONG[name](x.to(DEVICE)).cpu().double() - exact).abs().max()
    assert error < 4e-7 * exact.abs().max()


SIZES = [
    *((1, 1, 1), (1, 16, 8), (2, 5, 7), (3, 17, 33), (5, 63, 65), (7, 1, 31), (8, 100, 1)),
    *((9, 33, 129), (16, 200, 300), (31, 7, 45), (100, 130, 1700), (300, 10, 200)),
    *((0, 4, 5), (4, 0, 5), (4, 5, 0)),
]


def close(ours: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(
        ours.cpu(),
        exact.to(ours.dtype),
        rtol=ROUNDED.get(ours.dtype, 1e-5),
        atol={torch.bfloat16: 2e-2, torch.float16: 3e-3}.get(ours.dtype, 2e-5),
        equal_nan=True,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_matrix_products(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, columns, depth = size
    a, b = (
        random(rows, depth, dtype=dtype),
        random(depth, columns, dtype=dtype, scale=max(1, depth) ** -0.5),
    )
    exact = a.double() @ b.double()
    for x, y in itertools.product((a, permuted(a)), (b, permuted(b))):
        x, y = x.to(DEVICE), y.to(DEVICE)
        close(x @ y, exact)
        close((y.t() @ x.t()), exact.t())
        for shape in ((columns,), (rows, 1), (rows, columns), ()):
            added = random(*shape, dtype=dtype)
            for beta, alpha in ((1, 1), (0.5, 2)):
                ours = torch.addmm(added.to(DEVICE), x, y, beta=beta, alpha=alpha)
                close(ours, beta * added.double() + alpha * exact)
        close(
            torch.addmm(torch.full((columns,), math.nan, dtype=dtype, device=DEVICE), x, y, beta=0),
            exact,
        )
    batch = torch.stack([a, 2 * a, -a])
    close(
        torch.bmm(batch.to(DEVICE), b.to(DEVICE).expand(3, depth, columns)),
        batch.double() @ b.double(),
    )
    in_place = torch.ones(rows, columns, dtype=dtype).to(DEVICE)
    close(in_place.addmm_(a.to(DEVICE), b.to(DEVICE)), 1 + exact)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(8, 160, 64), (160, 8, 64), (20, 160, 64), (90, 100, 64)])
def test_what_is_added_to_a_product_is_rounded_once(
    size: tuple[int, int, int], dtype: torch.dtype
) -> None:
    rows, columns, depth = size
    a, b = random(rows, depth, dtype=dtype), random(depth, columns, dtype=dtype)
    added = random(rows, columns, dtype=dtype)
    nearest = (0.7 * added.double() + 1.3 * (a.double() @ b.double())).to(dtype)
    for y in (b, permuted(b)):
        ours = added.to(DEVICE).addmm_(a.to(DEVICE), y.to(DEVICE), beta=0.7, alpha=1.3)
        assert (ours.cpu() != nearest).double().mean() < 0.01


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_linear_with_packed_weights(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, features, depth = size
    x = random(2, rows, depth, dtype=dtype)
    weight, bias = (
        random(features, depth, dtype=dtype, scale=max(1, depth) ** -0.5),
        random(features, dtype=dtype),
    )
    packed = torch.ops.optimized.pack_linear_weight(weight.to(DEVICE))
    for added in (None, bias):
        exact = x.double() @ weight.double().t() + (0 if added is None else added.double())
        on_device = None if added is None else added.to(DEVICE)
        close(torch.ops.optimized.linear_packed(x.to(DEVICE), packed, on_device, features), exact)
        one_row = torch.ops.optimized.linear_packed(
            x[1, -1:].to(DEVICE), packed, on_device, features
        )
        close(one_row, exact[1, -1:])
    out = torch.empty(2, rows, features, dtype=dtype, device=DEVICE)
    torch.ops.optimized.linear_packed.out(x.to(DEVICE), packed, None, features, out=out)
    close(out, x.double() @ weight.double().t())


def test_what_packing_does_with_a_weight() -> None:
    weight = torch.arange(17 * 3, dtype=torch.float32).reshape(17, 3)
    panels = torch.ops.optimized.pack_linear_weight(weight.to(DEVICE)).cpu()
    assert panels.shape == (2, 3, 16)
    assert torch.equal(panels[0], weight[:16].t())
    assert torch.equal(panels[1, :, 0], weight[16]) and not panels[1, :, 1:].any()
    pairs = torch.ops.optimized.pack_linear_weight(weight.bfloat16().to(DEVICE)).cpu()
    assert pairs.shape == (2, 2, 32)
    assert pairs[0, 0, :4].tolist() == [0, 1, 3, 4]
    assert pairs[0, 1, :4].tolist() == [2, 0, 5, 0]
    halves = torch.ops.optimized.pack_linear_weight(weight.half().to(DEVICE)).cpu()
    assert torch.equal(halves, panels.half())


def test_packed_weights_of_another_shape_are_refused() -> None:
    packed = torch.ops.optimized.pack_linear_weight(random(20, 8).to(DEVICE))
    packed_for_others = "was packed for other features, or another dtype"
    for depth, features, reason in (
        (9, 20, packed_for_others),
        (8, 40, packed_for_others),
        (8, -20, "Trying to create tensor with negative dimension -20"),
    ):
        with pytest.raises(RuntimeError, match=reason):
            torch.ops.optimized.linear_packed(random(2, depth).to(DEVICE), packed, None, features)


# Batch, channels and output channels, image, kernel, groups.
CONVOLVED: list[tuple[int, int, int, tuple[int, ...], tuple[int, ...], int]] = [
    (2, 3, 5, (9,), (3,), 1),
    (1, 2, 3, (300,), (31,), 1),
    (5, 16, 20, (8, 8), (3, 3), 1),  # several small images in a tile
    (2, 4, 6, (7, 9), (3, 2), 2),
    (1, 5, 17, (33, 35), (3, 3), 1),  # an odd number of channels
    (1, 3, 40, (40, 44), (7, 7), 1),
    (3, 16, 40, (7, 7), (1, 1), 1),
    (2, 800, 20, (5, 5), (1, 1), 1),  # one pixel at a time, deeper than what is packed at once
    (1, 100, 50, (6, 6), (3, 3), 1),  # deeper than what is multiplied at once
    (2, 6, 6, (9, 40), (3, 3), 6),  # depthwise
    (2, 6, 12, (9, 10), (3, 3), 6),
    (2, 3, 4, (7, 6, 5), (2, 3, 2), 1),
    (2, 4, 4, (5, 6, 7), (3, 3, 3), 4),
    (2, 3, 4, (20, 1), (3, 1), 1),
    (1, 150, 7, (130, 5), (1, 3), 1),  # an image in several blocks
    (3, 66, 70, (6, 6), (3, 3), 1),  # a weight larger than the maps
    (11, 6, 200, (6, 6), (3, 3), 1),
    (2, 10, 130, (3, 4), (3, 3), 2),
    (2, 9, 60, (2, 4, 3), (1, 3, 2), 1),
    (2, 20, 33, (9, 13), (3, 3), 1),  # Winograd's tiles, the last ones half empty
    (3, 16, 40, (24, 24), (3, 3), 1),  # many strips of them, some of two images
    (1, 64, 33, (45, 16), (3, 3), 1),  # few strips, which the threads share
    (2, 48, 64, (4, 5), (3, 3), 1),  # few pixels, whose columns are added up
    (2, 32, 96, (3, 2, 2), (2, 3, 1), 2),
    (3, 40, 50, (1, 1), (1, 1), 1),  # rows of a pixel each
    (0, 3, 4, (8, 8), (3, 3), 1),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("case", CONVOLVED)
def test_convolutions_and_their_gradients(
    case: tuple[int, int, int, tuple[int, ...], tuple[int, ...], int],
    transposed: bool,
    dtype: torch.dtype,
) -> None:
    batch, channels, out_channels, size, kernel, groups = case
    shape = (channels, out_channels // groups) if transposed else (out_channels, channels // groups)
    weight = random(
        *shape, *kernel, dtype=dtype, scale=max(1, math.prod([shape[1], *kernel])) ** -0.5
    )
    x, bias = random(batch, channels, *size, dtype=dtype), random(out_channels, dtype=dtype)
    many = len(size)
    # The code that addresses a map knows no dtype: the other ones take the extremes.
    steps = [(1, 0, 1), (1, 1, 1), (2, 1, 1), (3, 2, 2), (2, 0, 2)]
    for (stride, padding, dilation), layout in itertools.product(
        steps if dtype == torch.float32 else steps[1:4:2],
        [torch.contiguous_format, *([torch.channels_last] if many == 2 else [])],
    ):
        reach = [dilation * (taps - 1) + 1 for taps in kernel]
        if transposed:
            results = [
                (of - 1) * stride + r - 2 * padding + stride - 1
                for of, r in zip(size, reach, strict=True)
            ]
        else:
            results = [of + 2 * padding - r + 1 for of, r in zip(size, reach, strict=True)]
        if min(results) < 1:
            continue
        how = (
            [stride] * many, [padding] * many, [dilation] * many,
            transposed, [stride - 1 if transposed else 0] * many, groups,
        )  # fmt: skip
        a = x.contiguous(memory_format=layout)
        there = [each.to(DEVICE) for each in (a, weight, bias)]
        exact = [each.double() for each in (a, weight, bias)]
        wanted = torch.convolution(*exact, *how)
        close(torch.convolution(*there, *how), wanted)
        if stride == padding == dilation == 1:
            without = torch.convolution(*there[:2], None, *how)
            close(without, torch.convolution(*exact[:2], None, *how))
        grad = random(*wanted.shape, dtype=dtype).contiguous(memory_format=layout)
        backward = torch.ops.aten.convolution_backward
        gradients = backward(
            grad.to(DEVICE), there[0], there[1], [out_channels], *how, [True, True, True]
        )
        expected = backward(
            grad.double(), exact[0], exact[1], [out_channels], *how, [True, True, True]
        )
        for ours, theirs in zip(gradients, expected, strict=True):
            largest = max(1.0, theirs.abs().max().item() if theirs.numel() else 0.0)
            close(ours.cpu() / largest, theirs / largest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan, 3e38])
def test_what_is_not_finite_stays_where_the_kernel_reaches(odd: float, dtype: torch.dtype) -> None:
    x, weight, bias = (
        random(*shape, dtype=dtype, scale=0.25)
        for shape in ((2, 32, 12, 12), (32, 32, 3, 3), (32,))
    )
    odd = min(odd, torch.finfo(dtype).max) if odd == 3e38 else odd
    for changed in (x[1, 3, 5, 6], weight[4, 5, 1, 2], bias[7]):
        before = changed.clone()
        changed.fill_(odd)
        ours = torch.conv2d(*(each.to(DEVICE) for each in (x, weight, bias))).cpu()
        theirs = torch.conv2d(x, weight, bias)
        close(ours, theirs)
        changed.copy_(before)


def test_gradients_of_a_convolution_that_nothing_asks_for_are_left_out() -> None:
    x, weight, grad = random(2, 3, 6, 6), random(4, 3, 3, 3), random(2, 4, 6, 6)
    how = ([4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    for mask in itertools.product((False, True), repeat=3):
        backward = torch.ops.aten.convolution_backward
        ours = backward(*(each.to(DEVICE) for each in (grad, x, weight)), *how, list(mask))
        theirs = backward(grad, x, weight, *how, list(mask))
        for asked, a, b in zip(mask, ours, theirs, strict=True):
            assert (a is not None) == asked
            if asked:
                close(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_network_of_convolutions_learns_as_on_the_cpu(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.Conv2d(8, 8, 3, stride=2, groups=8),
        torch.nn.ConvTranspose2d(8, 6, 3, stride=2),
        torch.nn.Conv2d(6, 2, 1),
    ).to(dtype)
    x = random(4, 3, 9, 9, dtype=dtype)
    gradients = []
    for device in ("cpu", DEVICE):
        network = network.to(device)
        network.zero_grad()
        y = network(x.to(device))
        (y * y).sum().backward()
        gradients.append([p.grad.cpu().clone() for p in network.parameters()])
    for theirs, ours in zip(*gradients, strict=True):
        largest = theirs.abs().max()
        torch.testing.assert_close(
            ours / largest, theirs / largest,
            rtol=0, atol={torch.bfloat16: 5e-2, torch.float16: 1e-2}.get(dtype, 1e-5),
        )  # fmt: skip


REFUSED: list[tuple[dict[str, object], str]] = [
    (
        {"stride": [1, 1, 1]},
        "expected stride to be a single integer value or a list of 2 values to match the convolution "
        "dimensions, but got stride=[1, 1, 1]",
    ),
    (
        {"bias": torch.zeros(5)},
        "Given weight of size [6, 4, 3, 3], expected bias to be 1-dimensional with 6 elements, but got "
        "bias of size [5] instead",
    ),
]


@pytest.mark.parametrize(("given", "reason"), REFUSED)
def test_convolutions_that_are_refused(given: dict[str, object], reason: str) -> None:
    arguments: dict[str, object] = {
        "input": random(2, 4, 5, 5), "weight": random(6, 4, 3, 3), "bias": None, "stride": [1, 1],
        "padding": [0, 0], "dilation": [1, 1], "transposed": False, "output_padding": [0, 0],
        "groups": 1,
    } | given  # fmt: skip
    there = (each.to(DEVICE) if isinstance(each, Tensor) else each for each in arguments.values())
    assert refusal(RuntimeError, torch.convolution, *there).splitlines()[0] == reason


def test_other_dtypes_go_to_the_next_library() -> None:
    x = random(4, 6, dtype=torch.float64)
    for call in (
        torch.exp,
        lambda a: a + a,
        lambda a: a.sum(1),
        lambda a: a.softmax(0),
        lambda a: a @ a.t(),
    ):
        theirs = call(x)
        torch.testing.assert_close(call(x.to(DEVICE)).cpu(), theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_modules_with_packed_weights(dtype: torch.dtype) -> None:
    plain = torch.nn.Sequential(
        torch.nn.Linear(9, 33), torch.nn.GELU(), torch.nn.Linear(33, 5, bias=False)
    ).to(dtype)
    x = random(2, 7, 9, dtype=dtype)
    wanted = plain.double()(x.double())
    plain = plain.to(dtype)
    kernel = torch.ops.optimized.pack_linear_weight(plain[0].weight.detach().to(DEVICE))
    assert torch.equal(kernel.cpu(), packed_weight(plain[0].weight.detach()))
    assert pack_linear_layers(plain) == 2
    close(plain.to(DEVICE)(x.to(DEVICE)), wanted.detach())
    program = torch.export.export(plain.cpu(), (x,)).graph
    assert [str(node.target) for node in program.nodes if "linear" in str(node.target)] == [
        "optimized.linear_packed.default"
    ] * 2


def test_layers_that_share_their_weight_are_not_packed() -> None:
    embedding, head = torch.nn.Embedding(20, 4), torch.nn.Linear(4, 20, bias=False)
    head.weight = embedding.weight
    assert pack_linear_layers(torch.nn.Sequential(embedding, head)) == 0
