"""Calls in which random programs have found sim to differ from ATen's CPU, a case for each kind.

``opsmith fuzz`` looks for others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.usefixtures("sim")

aten = torch.ops.aten


def view(device: str, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """A tensor of this layout; its elements count up."""
    return torch.arange(64.0, device=device).as_strided(size, stride)


def gradient(call: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """Of the sum of what ``call`` returns, for the first operand."""
    first, *rest = operands
    first = first.requires_grad_()
    return torch.autograd.grad(call(first, *rest).sum(), first)[0]


def as_seen(result: Any) -> Any:
    """A result, or an error, as a user sees it."""
    if isinstance(result, Tensor):
        return result.tolist(), result.dtype, tuple(result.shape), result.stride()
    return type(result)


def outcome(call: Callable[[str], Any], device: str) -> Any:
    try:
        return as_seen(call(device))
    except Exception as error:
        return as_seen(error)


# Dimensions of one element and of none, whose strides PyTorch chooses by those of the operand.
LAYOUTS = {
    "empty": ((2, 0), (1, 2)),
    "empty, of odd strides": ((0, 2), (3, 3)),
    "a column": ((3, 1), (1, 3)),
    "channels last": ((1, 3, 2, 1), (6, 1, 3, 6)),
    "one row of columns": ((1, 5, 3), (0, 1, 5)),
    "gaps": ((2, 3), (2, 5)),
}
STRIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "add": lambda a: a + 1,
    "mul": lambda a: a * 2,
    "eq": lambda a: a == 1,
    "div": lambda a: torch.div(a, 2, rounding_mode="floor"),
    "fill": lambda a: aten.fill(a, 1.0),
    "flip": lambda a: a.flip(0),
    "hardtanh": lambda a: aten.hardtanh(a, 0, 1),
    "isinf": torch.isinf,
    "roll": lambda a: a.roll((1, 1), (0, 1)),
    "sort": lambda a: a.sort(0).values,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", STRIDED)
def test_strides_of_results_that_hold_little(name: str, layout: str) -> None:
    if name == "roll" and "empty" not in layout:
        pytest.skip("its strides are the CPU's for empty tensors")
    call = STRIDED[name]
    ours, theirs = (outcome(lambda d: call(view(d, *LAYOUTS[layout])), d) for d in ("sim", "cpu"))
    assert ours == theirs


CALLS: dict[str, Callable[[str], Any]] = {
    "complex number into Bool": lambda d: torch.tensor([True, False], device=d).masked_fill(
        torch.tensor([True, True], device=d), 3j
    ),
    "complex number into Float": lambda d: torch.ones(2, device=d).masked_fill(
        torch.tensor([True, True], device=d), 3j
    ),
    "complex number compared": lambda d: torch.ones(2, device=d) == 1 + 0j,
    "index of floats": lambda d: torch.ones(2, device=d)[torch.ones(1, device=d)],
    "too many indices": lambda d: aten.index_put(
        torch.tensor(1.0, device=d), [torch.tensor([0], device=d)], torch.tensor(1.0, device=d)
    ),
    "index into nothing": lambda d: aten.index_put(
        torch.zeros(0, 3, device=d), [torch.tensor([0], device=d)], torch.ones(1, device=d)
    ),
    "value of more dimensions": lambda d: aten.index_put(
        torch.zeros(3, device=d), [torch.tensor(0, device=d)], torch.ones(1, device=d)
    ),
    "mask of another shape": lambda d: aten.index_put(
        torch.zeros(3, device=d), [torch.tensor([True], device=d)], torch.ones(1, device=d)
    ),
    "select of no dimensions": lambda d: torch.tensor(1.0, device=d).select_scatter(
        torch.tensor(1.0, device=d), 0, 0
    ),
    "rows of nothing": lambda d: aten.embedding(
        torch.zeros(0, 4, device=d), torch.tensor([0], device=d)
    ),
    "nothing, -1 times": lambda d: torch.zeros(0, device=d).repeat(-1),
    "something, -1 times": lambda d: torch.zeros(1, device=d).repeat(-1),
    "bilinear of one size": lambda d: aten.upsample_bilinear2d(
        view(d, (1, 1, 3, 1), (3, 3, 1, 1)), [3, 3], False, 0.5
    ),
    "convolution without channels": lambda d: torch.conv1d(
        torch.ones(4, 0, 3, device=d), torch.ones(4, 0, 3, device=d)
    ),
    "convolution without results": lambda d: torch.conv1d(
        torch.ones(1, 2, 3, device=d), torch.ones(0, 2, 3, device=d)
    ),
    "output padding as wide as a step": lambda d: torch.conv_transpose1d(
        torch.ones(1, 2, 3, device=d), torch.ones(2, 2, 3, device=d), output_padding=1
    ),
    "nothing of a transposed convolution": lambda d: torch.conv_transpose3d(
        torch.ones(2, 4, 1, 1, 1, device=d), torch.ones(4, 3, 2, 1, 3, device=d), padding=(1, 0, 0)
    ),
    "transposed convolution of no rows": lambda d: torch.conv_transpose2d(
        torch.ones(1, 3, 0, 5, device=d), torch.ones(3, 0, 1, 3, device=d)
    ),
    "transposed convolution to no channels": lambda d: torch.conv_transpose1d(
        torch.ones(3, 3, device=d), torch.ones(3, 0, 2, device=d)
    ),
    "transposed convolution of no images": lambda d: torch.conv_transpose3d(
        torch.ones(0, 2, 1, 1, 1, device=d), torch.ones(2, 1, 1, 2, 1, device=d), output_padding=1
    ),
    "convolution without strides": lambda d: aten.conv1d(
        torch.ones(1, 1, 1, device=d), torch.ones(1, 1, 1, device=d), None, []
    ),
    "convolution of one dimension with a permuted weight": lambda d: torch.conv1d(
        view(d, (2, 1, 4), (5, 1, 1)), view(d, (2, 1, 2), (4, 1, 2))
    ),
    "convolution of three dimensions in float64": lambda d: torch.conv3d(
        view(d, (2, 1, 1, 1, 1), (2, 1, 2, 2, 2)).double(),
        torch.ones(2, 1, 1, 1, 1, dtype=torch.float64, device=d),
    ),
    "gradient of a convolution of nothing": lambda d: gradient(
        torch.conv1d, view(d, (1, 0, 3), (9, 1, 3)), view(d, (1, 0, 3), (9, 1, 3))
    ),
    "gradient of a convolution with output padding": lambda d: gradient(
        lambda a: torch.convolution(
            a, torch.ones(1, 1, 1, device=d), None, [1], [0], [1], False, [1], 1
        ),
        torch.ones(1, 1, 3, device=d),
    ),
    "gradient of a pool of nothing": lambda d: gradient(
        lambda a: torch.nn.functional.adaptive_avg_pool2d(a, 2), torch.ones(5, 0, 4, 4, device=d)
    ),
    "gradient of groups without channels": lambda d: gradient(
        lambda a: torch.group_norm(a, 3, torch.ones(0, device=d)), torch.ones(3, 0, 5, 1, device=d)
    ),
    "remainder of a number": lambda d: aten.remainder.Scalar_Tensor(3, view(d, (0, 1), (1, 1))),
    "nothing divided by a number": lambda d: aten.div.Scalar_mode(
        view(d, (2, 0), (2, 12)), 2, rounding_mode=None
    ),
    "alpha that does not fit": lambda d: torch.add(
        torch.tensor([], dtype=torch.uint8, device=d),
        torch.tensor([], dtype=torch.uint8, device=d),
        alpha=300,
    ),
    "alpha whose negative fits": lambda d: torch.sub(
        torch.ones(2, dtype=torch.int32, device=d),
        torch.ones(2, dtype=torch.int32, device=d),
        alpha=2**31,
    ),
    "alpha that does not fit into Float": lambda d: torch.add(
        torch.ones(2, device=d), torch.ones(2, device=d), alpha=1e300
    ),
    "beta that does not fit": lambda d: torch.addmm(
        torch.ones(2, dtype=torch.int64, device=d),
        torch.ones(2, 2, dtype=torch.int64, device=d),
        torch.ones(2, 2, dtype=torch.int64, device=d),
        beta=torch.inf,
    ),
    "no padding by a value that does not fit": lambda d: aten.constant_pad_nd(
        torch.ones(0, dtype=torch.float16, device=d), [], -(2**63)
    ),
    "batches of a product in an odd order": lambda d: torch.bmm(
        view(d, (2, 2, 3), (6, 3, 1)),
        view(d, (2, 3, 2), (6, 2, 1)),
        out=view(d, (2, 2, 2), (1, 8, 24)),
    ),
    "a vector as the weight of linear": lambda d: aten.linear.out(
        torch.ones(2, 8, device=d), torch.ones(8, device=d), out=torch.zeros(2, device=d)
    ),
    "parameters of two dtypes": lambda d: torch.layer_norm(
        torch.ones(2, device=d), [2], torch.ones(2, device=d), torch.ones(2, device=d).bfloat16()
    ),
    "place of one dimension in an image": lambda d: aten.grid_sampler_2d(
        torch.ones(0, device=d), torch.ones(0, device=d), 0, 1, False
    ),
    "one place in each image": lambda d: aten.grid_sampler_2d(
        view(d, (2, 1, 1, 2), (1, 2, 4, 2)), view(d, (2, 1, 1, 2), (1, 2, 4, 2)), 0, 2, True
    ),
    "blocks of a number": lambda d: aten.im2col(
        torch.tensor(0.0, device=d), [3, 3], [1, 2], [0, 0], [2, 3]
    ),
    "limits of whole numbers": lambda d: aten.hardtanh(
        torch.tensor([3, 0], dtype=torch.uint8, device=d), -0.5, 1
    ),
    "limits that are no whole numbers": lambda d: aten.hardtanh(
        torch.tensor(0, dtype=torch.uint8, device=d), torch.nan
    ),
    "threshold of halves": lambda d: aten.threshold(
        torch.tensor([1.0], dtype=torch.float16, device=d), 2147483648, 5
    ),
    "slice of a number": lambda d: aten.slice_scatter(
        torch.tensor(3.0, device=d), torch.tensor(3.0, device=d)
    ),
    "groups of parameters of two dtypes": lambda d: torch.group_norm(
        torch.ones(2, 1, device=d), 1, torch.ones(1, device=d), torch.ones(1, device=d).half()
    ),
    "pool of nothing": lambda d: aten.adaptive_avg_pool3d(
        torch.ones(2, 0, 1, 5, 1, device=d), [5, 2, 5]
    ),
    "an index and a mask of nothing": lambda d: aten.index_put(
        torch.zeros(1, 0, device=d),
        [torch.tensor([False], device=d), torch.tensor([0], device=d)],
        torch.ones(0, device=d),
    ),
    "strides of a convolution of no images": lambda d: torch.conv_transpose1d(
        torch.ones(0, 1, 5, device=d), torch.ones(1, 1, 1, device=d)
    ),
    "strides of a convolution of no channels": lambda d: torch.conv1d(
        torch.ones(2, 0, 3, device=d),
        torch.ones(2, 0, 3, device=d),
        torch.ones(2, device=d),
        padding=1,
    ),
    "roll of nothing": lambda d: view(d, (0,), (0,)).roll(1),
    "roll of a number": lambda d: aten.roll(torch.tensor(0.5, device=d), [5], [0]),
    "roll of one channel": lambda d: aten.roll(view(d, (1, 1, 2, 1), (6, 1, 2, 2)), [1, 1], [2, 3]),
    "rows of no columns": lambda d: torch.zeros(3, 0, device=d).index_select(
        1, torch.tensor([0], device=d)
    ),
    "rows out of nothing": lambda d: torch.zeros(0, 4, device=d).index_select(
        1, torch.tensor([-1], device=d)
    ),
    "mask without dimensions": lambda d: aten.index_put(
        torch.zeros(3, 2, device=d),
        [torch.tensor(True, device=d), torch.tensor([1], device=d)],
        torch.ones(1, device=d),
    ),
    "mask without dimensions and too many indices": lambda d: aten.index_put(
        torch.zeros(3, device=d),
        [torch.tensor(True, device=d), torch.tensor([1], device=d)],
        torch.ones(1, device=d),
    ),
    "channels of nothing": lambda d: aten.native_channel_shuffle(torch.ones(0, 4, 5, device=d), 2),
    "saved mean of a row with an infinity": lambda d: aten.native_layer_norm(
        torch.tensor([[math.inf, 1.0, 2.0]], device=d), [3], None, None, 1e-5
    )[1].isnan(),
    "saved mean of a row of doubles with an infinity": lambda d: aten.native_layer_norm(
        torch.tensor([[math.inf, 1.0, 2.0]], dtype=torch.float64, device=d), [3], None, None, 1e-5
    )[1].isnan(),
    "saved mean of a group with an infinity": lambda d: aten.native_group_norm(
        torch.tensor([[[math.inf, 1.0, 2.0]]], device=d), None, None, 1, 1, 3, 1, 1e-5
    )[1].isnan(),
    "differences that are NaN, counted": lambda d: torch.cdist(
        torch.tensor([[math.nan, 1.0], [math.inf, 1.0], [2.0, 1.0]], device=d),
        torch.tensor([[math.inf, 1.0], [2.0, 3.0]], device=d),
        p=0,
    ).nan_to_num(-1),
    "index of two dimensions": lambda d: view(d, (2, 2), (2, 1)).index_select(
        0, torch.zeros(1, 1, dtype=torch.int64, device=d)
    ),
    "truth that a number is multiplied by": lambda d: aten.sub.Scalar(view(d, (2,), (1,)), 1, True),
    "factor that no float holds": lambda d: torch.addmm(
        torch.ones(1, device=d), view(d, (2, 2), (2, 1)), view(d, (2, 2), (1, 2)), beta=1e300
    ),
    "factor that no float holds, of halves": lambda d: torch.baddbmm(
        torch.ones(1, dtype=torch.half, device=d),
        view(d, (2, 2, 2), (4, 2, 1)).half(),
        view(d, (2, 2, 2), (4, 1, 2)).half(),
        alpha=1e300,
    ),
    "bias of one element": lambda d: aten.linear.out(
        view(d, (3,), (1,)),
        view(d, (2, 3), (3, 1)),
        torch.ones(1, device=d),
        out=torch.empty(2, device=d),
    ),
    "zeros that autograd made, in a product": lambda d: aten.mul.Scalar(
        torch._efficientzerotensor(2, 3, device=d), 2
    ).clone(),
    "zeros that autograd made, in a sum of products": lambda d: torch.dot(
        torch._efficientzerotensor(3, device=d), view(d, (3,), (1,))
    ).clone(),
    "transposed convolution of halves to nothing": lambda d: torch.conv_transpose1d(
        torch.ones(1, 2, 1, dtype=torch.half, device=d),
        torch.ones(2, 3, 2, dtype=torch.half, device=d),
        padding=1,
    ),
    "limit that no element reaches": lambda d: aten.hardtanh(
        torch.ones(2, dtype=torch.int8, device=d), 0, 2**31
    ),
    "limit that no element reaches, in place": lambda d: aten.hardtanh_(
        torch.ones(2, dtype=torch.int8, device=d), -(2**31), 1
    ),
    **{
        f"negative limits of bytes, {name}": lambda d, call=call: call(
            torch.tensor([0, 1, 200], dtype=torch.uint8, device=d)
        )
        for name, call in {
            "clamp": lambda a: a.clamp(-5, 3),
            "clamp_min": lambda a: a.clamp_min(-1),
            "clamp_max": lambda a: a.clamp_max(-1),
            "hardtanh": lambda a: aten.hardtanh(a, -2, 1),
        }.items()
    },
    **{
        f"limit beyond {dtype}, {limits}": lambda d, dtype=dtype, limits=limits: torch.tensor(
            [0, 1, 100], dtype=dtype, device=d
        ).clamp(*limits)
        for dtype, most in ((torch.uint8, 255), (torch.int8, 127), (torch.int32, 2**31 - 1))
        for limits in ((1, most + 1), (most, most), (most + 1, most + 1), (None, -most - 2))
    },
    **{
        f"{name} of an outer product of {dtype}, {number}": (
            lambda d, name=name, dtype=dtype, number=number: torch.addr(
                *(torch.ones(n, dtype=dtype, device=d) for n in ((2, 2), 2, 2)), **{name: number}
            )
        )
        for name in ("alpha", "beta")
        for dtype, number in (
            (torch.int64, 2.5),
            (torch.int64, 3),
            (torch.float32, True),
            (torch.bool, True),
            (torch.uint8, 300),
            (torch.int32, 2**40),
            (torch.float16, 1e6),
        )
    },
    "integers subtracted from a truth": lambda d: torch.rsub(
        torch.ones(2, dtype=torch.int64, device=d), True
    ),
    "floats subtracted from a truth": lambda d: torch.rsub(torch.ones(2, device=d), True),
    "strides of a safe softmax": lambda d: aten._safe_softmax(
        torch.zeros(3, 4, 5, device=d).transpose(0, 2), -1
    ),
    "one group of channels": lambda d: aten.native_channel_shuffle(
        view(d, (1, 4, 5), (20, 5, 1)), 1
    ),
    "a mask that is filled where it is set": lambda d: aten.index_put_(
        (mask := torch.tensor([True, False, True], device=d)), [mask], torch.tensor(False, device=d)
    ),
    "an element that is put where a mask is set": lambda d: aten.index_put_(
        (x := view(d, (4,), (1,))), [x > 1], x[1]
    ),
    "a mask in part of what is filled": lambda d: aten.index_put_(
        (mask := torch.ones(4, dtype=torch.bool, device=d))[1:], [mask[:-1]], mask[:1]
    ),
    "normalised batch of nothing": lambda d: aten.native_batch_norm(
        torch.ones(0, 2, 3, device=d), *[torch.ones(2, device=d)] * 4, False, 0.1, 1e-5
    )[0],
    "normalised batch of nothing, in training": lambda d: torch.batch_norm(
        torch.ones(0, 2, 3, device=d), *[torch.ones(2, device=d)] * 4, True, 0.1, 1e-5, False
    ),
    "stack into an out": lambda d: aten._stack.out(
        [view(d, (2, 3), (3, 1)), view(d, (2, 3), (1, 2))], 1, out=torch.empty(0, device=d)
    ),
    "mask of bytes": lambda d: torch.zeros(1, 3, device=d).masked_scatter(
        torch.ones(1, 3, dtype=torch.uint8, device=d), torch.ones(3, 4, device=d)
    ),
}


@pytest.mark.filterwarnings("ignore:masked_scatter_ received a mask")
@pytest.mark.parametrize("name", CALLS)
def test_call_gives_or_raises_what_the_cpu_does(name: str) -> None:
    assert outcome(CALLS[name], "sim") == outcome(CALLS[name], "cpu")


def test_a_shuffle_of_one_group_is_a_copy() -> None:
    given = torch.ones(1, 4, 5, device="sim")
    assert aten.native_channel_shuffle(given, 1).data_ptr() != given.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", ["conv1d", "conv_transpose1d"])
def test_strides_of_gradients_of_signals(name: str, dtype: torch.dtype) -> None:
    def strides(device: str, image: tuple[int, ...], weight: tuple[int, ...]) -> list[Any]:
        operands = [
            view(device, (2, 3, 5), image).to(dtype).as_strided((2, 3, 5), image),
            view(device, (3, 3, 2), weight).to(dtype).as_strided((3, 3, 2), weight),
        ]
        result = getattr(torch, name)(*(each.requires_grad_() for each in operands))
        return [each.stride() for each in torch.autograd.grad(result.sum(), operands)]

    for image in ((15, 5, 1), (15, 1, 3)):
        for weight in ((6, 2, 1), (6, 1, 3)):
            assert strides("sim", image, weight) == strides("cpu", image, weight)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_an_out_that_is_resized(layout: str) -> None:
    def strides(device: str) -> list[tuple[int, ...]]:
        given = view(device, *LAYOUTS[layout])
        return [
            call(given, out=torch.empty(0, device=device)).stride()
            for call in (
                aten.hardtanh.out,
                lambda a, out: aten.stack.out([a, a], out=out),
                lambda a, out: aten.stack.out([a], -1, out=out),
            )
        ]

    assert strides("sim") == strides("cpu")


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_that_is_an_operand_of_another_size() -> None:
    numbers = torch.tensor([-2, 4, 3], dtype=torch.int8, device="sim")
    assert torch.amax(numbers, 0, out=numbers) is numbers
    assert as_seen(numbers) == (4, torch.int8, (), ())
    rows = torch.zeros(3, 0, 3, device="sim")
    columns = torch.zeros(3, 3, 0, device="sim")
    torch.bmm(rows, columns, out=columns)
    assert columns.shape == (3, 0, 0)
    table = torch.arange(6.0, device="sim").reshape(2, 3)
    torch.sum(table, 1, out=table)
    assert table.tolist() == [3.0, 12.0]


def test_batch_norm_of_given_statistics_writes_to_an_out() -> None:
    given = torch.arange(24.0).reshape(2, 3, 4).square()
    own = given.to("sim")
    mean, invstd = torch.batch_norm_stats(own, 1e-5)
    out = torch.empty(0, device="sim")
    assert torch.batch_norm_elemt(own, None, None, mean, invstd, 1e-5, out=out) is out
    expected = torch.nn.functional.batch_norm(given, None, None, training=True)
    torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_form_of_gelu_that_there_is_not(dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        torch.nn.functional.gelu(torch.zeros(2, dtype=dtype, device="sim"), approximate="erf")


def test_the_conjugate_of_a_conjugated_tensor() -> None:
    values = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.conj_physical(values.to("sim").conj()).tolist() == values.tolist()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("layer", [torch.nn.Conv2d(2, 3, 3), torch.nn.ConvTranspose1d(2, 3, 3)])
@pytest.mark.parametrize("learns", [False, True])
def test_a_convolution_that_is_traced_is_no_constant(layer: torch.nn.Module, learns: bool) -> None:
    layer = layer.to("sim").requires_grad_(learns)
    size = (2, 2, 5, 5)[: 3 + isinstance(layer, torch.nn.Conv2d)]
    traced = torch.jit.trace(layer, torch.ones(size, device="sim"))
    x = torch.rand(size, device="sim")
    torch.testing.assert_close(traced(x), layer(x))
