"""Results of the device beside the CPU's: their memory formats, how they are rounded, what is raised."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

pytestmark = pytest.mark.usefixtures("sim")

# ---- memory formats ----

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def image(device: str, *sizes: int) -> Tensor:
    values = torch.linspace(-1, 1, torch.Size(sizes).numel()).view(sizes)
    return values.to(device).contiguous(memory_format=FORMATS[len(sizes)])


def plain(device: str, *sizes: int) -> Tensor:
    return torch.linspace(-1, 2, torch.Size(sizes).numel()).view(sizes).to(device)


KEEPING: dict[str, Callable[[str], Tensor]] = {
    "conv2d": lambda d: nn.functional.conv2d(
        image(d, 2, 3, 5, 6), plain(d, 4, 3, 3, 3), plain(d, 4), padding=1
    ),
    "conv2d in groups": lambda d: nn.functional.conv2d(
        image(d, 2, 4, 5, 6), plain(d, 4, 2, 3, 3), groups=2
    ),
    "conv2d of double": lambda d: nn.functional.conv2d(
        image(d, 2, 3, 5, 6).double(), plain(d, 4, 3, 3, 3).double()
    ),
    "the weight's": lambda d: nn.functional.conv2d(plain(d, 2, 3, 5, 6), image(d, 4, 3, 3, 3)),
    "a contiguous conv2d": lambda d: nn.functional.conv2d(
        plain(d, 2, 3, 5, 6), plain(d, 4, 3, 3, 3)
    ),
    "transposed": lambda d: nn.functional.conv_transpose2d(
        image(d, 2, 3, 5, 6), plain(d, 3, 4, 3, 3), stride=2
    ),
    "conv3d": lambda d: nn.functional.conv3d(image(d, 2, 3, 5, 6, 4), plain(d, 4, 3, 3, 3, 3)),
    "group_norm": lambda d: nn.functional.group_norm(
        image(d, 2, 4, 5, 6), 2, plain(d, 4), plain(d, 4)
    ),
    "group_norm in 3 dimensions": lambda d: nn.functional.group_norm(image(d, 2, 4, 5, 6, 3), 2),
}


@pytest.mark.parametrize("name", KEEPING)
def test_results_keep_the_memory_format(name: str) -> None:
    expected, result = KEEPING[name]("cpu"), KEEPING[name]("sim")
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("name", KEEPING)
def test_tensors_without_data_are_laid_out_alike(name: str) -> None:
    real = KEEPING[name]("sim")
    with FakeTensorMode():
        fake = KEEPING[name]("sim")
    assert (fake.stride(), fake.dtype, fake.device) == (real.stride(), real.dtype, real.device)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("last", ["input", "weight"])
def test_gradients_without_data_are_laid_out_alike(last: str, transposed: bool) -> None:
    def gradients() -> list[tuple[int, ...]]:
        makes = (image, plain) if last == "input" else (plain, image)
        operands = [make("sim", 2, 2, 4, 5).requires_grad_() for make in makes]
        convolve = nn.functional.conv_transpose2d if transposed else nn.functional.conv2d
        result = convolve(*operands, padding=1)
        return [each.stride() for each in torch.autograd.grad(result.sum(), operands)]

    real = gradients()
    with FakeTensorMode():
        assert gradients() == real


@pytest.mark.parametrize("transposed", [False, True])
def test_a_kernel_of_one_pixel_has_a_memory_format(transposed: bool) -> None:
    """By its strides, though it is contiguous in each: results and gradients follow it."""

    def strides() -> list[tuple[int, ...]]:
        weight = torch.empty(4, 4, 1, 1, device="sim", memory_format=torch.channels_last)
        operands = [plain("sim", 2, 4, 5, 5).requires_grad_(), weight.requires_grad_()]
        convolve = nn.functional.conv_transpose2d if transposed else nn.functional.conv2d
        result = convolve(*operands)
        (gradient,) = torch.autograd.grad(result.sum(), operands[:1])
        return [result.stride(), gradient.stride()]

    real = strides()
    assert real == [(100, 1, 20, 4)] * 2
    with FakeTensorMode():
        assert strides() == real


def bags(mode: int) -> Callable[[], object]:
    def call() -> object:
        weight = torch.ones(10, 4, device="sim")
        places, offsets = (torch.arange(n, device="sim") for n in (6, 3))
        return torch.ops.aten._embedding_bag(weight, places, offsets, False, mode)

    return call


def batch_norm(dtype: torch.dtype, *, training: bool, name: str) -> Callable[[], object]:
    def call() -> object:
        operator = getattr(torch.ops.aten, name)
        each = [torch.ones(3, dtype=dtype, device="sim") for _ in range(4)]
        modes = [] if name.endswith("no_training") else [training]
        operand = torch.ones(2, 3, 4, dtype=dtype, device="sim")
        return operator(operand, *each, *modes, 0.1, 1e-5)

    return call


# PyTorch's rules for these ask whether the device is the CPU, and say of any other what CUDA returns.
LIKE_THE_CPU: dict[str, Callable[[], object]] = {
    **{f"embedding_bag {mode}": bags(mode) for mode in (0, 1, 2)},
    **{
        f"{name} {dtype} {training}": batch_norm(dtype, training=training, name=name)
        for name in ("native_batch_norm", "_native_batch_norm_legit")
        for dtype in (torch.float32, torch.bfloat16)
        for training in (False, True)
    },
    **{
        f"batch norm, inference, {dtype}": batch_norm(
            dtype, training=False, name="_native_batch_norm_legit_no_training"
        )
        for dtype in (torch.float32, torch.bfloat16)
    },
    "nonzero_static": lambda: torch.nonzero_static(torch.ones(3, 2, device="sim"), size=4),
    "pixel_shuffle": lambda: nn.functional.pixel_shuffle(image("sim", 2, 8, 3, 4), 2),
}


@pytest.mark.parametrize("name", LIKE_THE_CPU)
def test_results_without_data_are_as_the_real_ones(name: str) -> None:
    def described(results: object) -> list[tuple[object, ...]]:
        every = results if isinstance(results, tuple) else (results,)
        return [(each.shape, each.dtype, each.stride(), each.device) for each in every]

    with FakeTensorMode(allow_fallback_kernels=False):
        fake = described(LIKE_THE_CPU[name]())
    assert fake == described(LIKE_THE_CPU[name]())


# ---- a wider `out` ----

HALVES = torch.tensor([65504.0, 60000, 1.0625, 12])
INTO_OUT: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add": lambda x, out: torch.add(x, x, alpha=2, out=out),
    "mul": lambda x, out: torch.mul(x, x, out=out),
    "div": lambda x, out: torch.div(x, x.flip(0), out=out),
    "pow": lambda x, out: torch.pow(x, 2, out=out),
    "sqrt": lambda x, out: torch.sqrt(x, out=out),
    "exp": lambda x, out: torch.exp(x, out=out),
    "eq": lambda x, out: torch.eq(x, x.flip(0), out=out),
    "addcmul": lambda x, out: torch.addcmul(x, x, x, out=out),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wide", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("name", INTO_OUT)
def test_what_a_wider_out_holds_was_rounded(
    name: str, wide: torch.dtype, dtype: torch.dtype
) -> None:
    outs = []
    for device in ("cpu", "sim"):
        out = torch.zeros(4, 2, dtype=wide, device=device)
        INTO_OUT[name](HALVES.to(device, dtype), out[:, 1])
        outs.append(out.cpu())
    torch.testing.assert_close(outs[1], outs[0], rtol=0, atol=0)


def test_a_sum_of_halves_overflows_in_a_float_too() -> None:
    half = torch.tensor([59504.0], dtype=torch.float16, device="sim")
    assert torch.add(half, half, out=torch.zeros(1, device="sim")).item() == torch.inf


def test_integers_overflow_before_they_go_into_a_float() -> None:
    large = torch.tensor([2**31 - 1], dtype=torch.int32, device="sim")
    assert torch.add(large, large, out=torch.zeros(1, device="sim")).item() == -2


# ---- calls at the edge of what is taken ----


def filled(mask: Tensor, value: Tensor) -> Tensor:
    numbers = torch.arange(6, dtype=torch.int32).view(2, 3).to(mask.device)
    numbers[mask] = value
    return numbers


def gradients_of_nothing(device: str, dtype: torch.dtype) -> list[tuple[Tensor, torch.dtype]]:
    operands = [torch.ones(0, 3, 3), torch.ones(2, 3, 2).to(dtype), torch.ones(2).to(dtype)]
    operands = [operand.to(device).requires_grad_() for operand in operands]
    found = torch.autograd.grad(nn.functional.conv1d(*operands).sum(), operands)
    return [(each, each.dtype) for each in found]


AT_THE_EDGE: dict[str, Callable[[str], object]] = {
    "a sum with more than a float holds": lambda d: values(d) + 1e300,
    "a product with more than a bfloat16 holds": lambda d: values(d).bfloat16() * -1e39,
    "a quotient of more than a half holds": lambda d: 1e39 / values(d).half(),
    "a half filled with more than it holds": lambda d: values(d).half().fill_(1e5),
    "a half to more than it holds": lambda d: values(d).half() ** 70000,
    "a float to more than it holds": lambda d: values(d) ** 1e300,
    "a byte to more than it holds": lambda d: values(d).byte() ** 300,
    "a threshold over what a half holds": lambda d: nn.functional.threshold(
        values(d).half(), 1e5, 0
    ),
    "a value over what a half holds": lambda d: nn.functional.threshold(values(d).half(), 0, 1e5),
    "elu by more than a float holds": lambda d: nn.functional.elu(values(d), 1e300),
    "leaky_relu by more than a float holds": lambda d: nn.functional.leaky_relu(values(d), 1e300),
    "softplus by more than a float holds": lambda d: nn.functional.softplus(values(d), 1e300),
    "addcmul by more than a byte holds": lambda d: (
        values(d)
        .to(torch.int8)
        .addcmul(values(d).to(torch.int8), values(d).to(torch.int8), value=300)
    ),
    "a power of one into integers": lambda d: torch.pow(
        1, values(d), out=torch.empty(0, dtype=torch.int64, device=d)
    ),
    "a stack of two shapes": lambda d: torch.stack([values(d), values(d)[0]], 2),
    "a stack of transposed tensors": lambda d: torch.stack([values(d).T, values(d).half().T], 1),
    "hardtanh beyond what a half holds": lambda d: nn.functional.hardtanh(
        values(d).half(), -1e5, 1e5
    ),
    "a negative zero less nothing": lambda d: torch.sub(
        torch.full((2,), -0.0).to(d), torch.ones(2).to(d), alpha=0
    ),
    "the largest of distances that are no numbers": lambda d: [
        torch.cdist(values(d).log(), values(d).log(), p=torch.inf),
        torch.pdist(values(d).mul(torch.inf), p=torch.inf),
    ],
    "nothing scattered of more than a half holds": lambda d: (
        values(d).half().scatter(1, torch.empty(2, 0, dtype=torch.int64).to(d), 1e10)
    ),
    "alpha=True": lambda d: torch.add(values(d), values(d), alpha=True),
    "a mean into integers": lambda d: torch.mean(
        values(d), [], out=torch.empty(0, dtype=torch.int64, device=d)
    ),
    "numbers of another dtype where a mask is set": lambda d: filled(
        values(d) > 2, torch.tensor(9.5)
    ),
    "too large a number where a mask is set": lambda d: filled(values(d) > 2, torch.tensor(1e20)),
    "several numbers of another dtype": lambda d: filled(values(d) > 2, values(d)[0]),
    "a padding that leaves no column": lambda d: nn.functional.pad(
        values(d)[None], (-2, -1, 2, 0), "replicate"
    ),
    "a padding that leaves nothing": lambda d: nn.functional.pad(
        values(d)[None], (-2, -1, -1, -1), "reflect"
    ),
    "a transposed convolution without a pixel": lambda d: nn.functional.conv_transpose2d(
        torch.ones(1, 2, 1, 1).to(d), torch.ones(2, 1, 2, 2).to(d), padding=1
    ),
    "gradients of no images": lambda d: gradients_of_nothing(d, torch.float32),
    "gradients of no images and a weight of doubles": lambda d: gradients_of_nothing(
        d, torch.float64
    ),
}


def outcome(call: Callable[[str], object], device: str) -> object:
    """The result of the call, as text, or the type of the exception that it raises."""
    try:
        return str(call(device)).replace(f", device='{device}:0'", "")
    except RuntimeError as error:
        return type(error)


@pytest.mark.parametrize("name", AT_THE_EDGE)
def test_what_is_at_the_edge_is_taken_or_refused_as_on_the_cpu(name: str) -> None:
    assert outcome(AT_THE_EDGE[name], "sim") == outcome(AT_THE_EDGE[name], "cpu")


def test_an_out_that_shares_elements_is_not_handed_to_kernels_that_do_not_look() -> None:
    images, none = torch.ones(2, 3, 4, device="sim"), torch.ones(1, device="sim").expand(3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.ops.aten.native_batch_norm.out(
            *(images, None, None, None, None, True, 0.1, 1e-5),
            out=torch.empty_like(images),
            save_mean=none,
            save_invstd=torch.ones(3, device="sim"),
        )


# ---- indices and dimensions that do not exist ----


def values(device: str) -> Tensor:
    return torch.arange(6.0).view(2, 3).to(device)


def at(device: str, index: int) -> Tensor:
    return torch.tensor([index]).to(device)


OUT_OF_RANGE: dict[str, Callable[[str], object]] = {
    "reading": lambda d: values(d)[at(d, 5)].sum().item(),
    "writing": lambda d: values(d).__setitem__(at(d, 5), 1.0),
    "index_put_": lambda d: values(d).index_put_(
        (at(d, -3),), torch.ones(3).to(d), accumulate=True
    ),
    "embedding": lambda d: nn.functional.embedding(at(d, 2), values(d)),
    "a negative embedding": lambda d: nn.functional.embedding(at(d, -1), values(d)),
    "index_select": lambda d: values(d).index_select(0, at(d, 2)),
    "index_select's dim": lambda d: values(d).index_select(2, at(d, 0)),
    "gather": lambda d: values(d).gather(0, at(d, 2)[None]),
    "scatter": lambda d: values(d).scatter(0, at(d, 2)[None], 1.0),
    "scatter's dim": lambda d: values(d).scatter(2, at(d, 0)[None], 1.0),
    "scatter_add": lambda d: values(d).scatter_add(0, at(d, 2)[None], values(d)),
    "select_scatter": lambda d: values(d).select_scatter(values(d)[0], 0, 2),
    "slice_scatter": lambda d: values(d).slice_scatter(values(d), 2),
    "sum": lambda d: values(d).sum(2),
    "mean": lambda d: values(d).mean(-3),
    "any": lambda d: values(d).any(2),
    "amax": lambda d: values(d).amax((0, 2)),
    "sort": lambda d: values(d).sort(2),
    "topk": lambda d: values(d).topk(1, 2),
    "cumsum": lambda d: values(d).cumsum(2),
    "softmax": lambda d: values(d).softmax(2),
    "stack": lambda d: torch.stack([values(d)], 4),
    "cat": lambda d: torch.cat([values(d)], 2),
    "flip": lambda d: values(d).flip(2),
    "roll": lambda d: values(d).roll(1, 2),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_what_does_not_exist_raises_as_on_the_cpu(name: str) -> None:
    with pytest.raises((IndexError, RuntimeError)) as expected:
        OUT_OF_RANGE[name]("cpu")
    with pytest.raises((IndexError, RuntimeError)) as raised:
        OUT_OF_RANGE[name]("sim")
    assert raised.type is expected.type


def test_the_error_names_the_index_and_the_kernel() -> None:
    with pytest.raises(IndexError) as raised:
        # By itself: PyTorch's own indexing may read the index first.
        torch.ops.aten.index_put_(values("sim"), [at("sim", 5)], torch.tensor(1.0).to("sim"))
    assert str(raised.value) == (
        "aten::index_put_: its kernel `opsmith::portable::native::index_put_out` (library portable) refuses "
        "the call: index 5 is out of bounds for dimension 0 with size 2"
    )


def test_values_that_do_not_fit_are_refused_by_their_shape_before_their_dtype() -> None:
    mask = torch.tensor([True, False], device="sim")
    with pytest.raises(RuntimeError) as raised:
        torch.zeros(2, 3, dtype=torch.int64, device="sim")[mask] = torch.empty(0, device="sim")
    assert (
        "shape mismatch: value tensor of shape [0] cannot be broadcast to indexing result of shape [1, 3]"
        in str(raised.value)
    )


# ---- warnings ----


@pytest.fixture
def warn_always() -> Iterator[None]:
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


CASTS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.float(),
    lambda x: torch.zeros(1, device="sim").copy_(x),
    lambda x: torch.zeros(1).copy_(x),
    lambda x: x.to("cpu", torch.float64),
]


@pytest.mark.usefixtures("warn_always")
@pytest.mark.parametrize("cast", CASTS)
def test_what_is_lost_of_complex_numbers_is_warned_of(cast: Callable[[Tensor], Tensor]) -> None:
    source = torch.tensor([1 + 2j], device="sim")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert cast(source).item() == 1
    assert [str(each.message).partition(" (")[0] for each in told] == [
        "Casting complex values to real discards the imaginary part"
    ]


@pytest.mark.usefixtures("warn_always")
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_masks_of_bytes_are_deprecated(device: str) -> None:
    mask = torch.tensor([1, 0], dtype=torch.uint8, device=device)
    with pytest.warns(UserWarning, match="indexing with dtype torch.uint8 is now deprecated"):
        written = torch.zeros(2, 3, device=device).index_put_((mask,), torch.ones(3, device=device))
    assert written.tolist() == [[1, 1, 1], [0, 0, 0]]
