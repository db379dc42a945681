"""Memory that sim's operators refuse or leave alone, as ATen's on the CPU do: overlaps, calls that raise.

``test_sim_kernels`` asks for the values of calls that nothing is wrong with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.usefixtures("sim")

DEVICES = ("cpu", "sim")
Call = Callable[[Tensor], Any]

INPUT_OVERLAPS = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
    "memory location. Please clone() the tensor before performing the operation."
)


def memory(device: str) -> Tensor:
    """Forty elements, no two of which are equal."""
    elements = torch.arange(40.0).mul(7).remainder(41).sub(20)
    return elements.to(device)


def matrices(m: Tensor) -> list[Tensor]:
    """Three batches of two."""
    return [part.view(2, 2, 2) for part in m[:24].chunk(3)]


@dataclass(frozen=True)
class Overlap:
    """A call that is given memory and writes to a part of what it reads; ``expected``, as if it did not."""

    name: str
    call: Call
    expected: Call


# ATen's own kernels compute some of these on what they overwrite: what is expected is the result of a copy.
COMPUTED = (
    Overlap(
        "sum", lambda m: torch.sum(m.view(4, 10), 0, out=m[:10]), lambda m: m.view(4, 10).sum(0)
    ),
    Overlap(
        "amax", lambda m: torch.amax(m.view(4, 10), 0, out=m[5:15]), lambda m: m.view(4, 10).amax(0)
    ),
    Overlap("cumsum", lambda m: torch.cumsum(m, 0, out=m), lambda m: m.cumsum(0)),
    Overlap(
        "softmax",
        lambda m: torch._softmax(m[:30], 0, False, out=m[3:33]),
        lambda m: m[:30].softmax(0),
    ),
    Overlap(
        "mm",
        lambda m: torch.mm(m[:9].view(3, 3), m[9:18].view(3, 3), out=m[4:13].view(3, 3)),
        lambda m: m[:9].view(3, 3) @ m[9:18].view(3, 3),
    ),
    Overlap(
        "addmm",
        lambda m: torch.addmm(m[20], m[:9].view(3, 3), m[9:18].view(3, 3), out=m[:9].view(3, 3)),
        lambda m: torch.addmm(m[20], m[:9].view(3, 3), m[9:18].view(3, 3)),
    ),
    Overlap(
        "tril",
        lambda m: torch.tril(m[:36].view(6, 6), out=m[2:38].view(6, 6)),
        lambda m: m[:36].view(6, 6).tril(),
    ),
    Overlap(
        "sort",
        lambda m: torch.sort(m, out=(m, torch.empty(40, dtype=torch.int64, device=m.device))),
        lambda m: m.sort(),
    ),
    Overlap("add", lambda m: torch.add(m, m, out=m), lambda m: m + m),
    # PyTorch's meta function fills `out` with the first operand before the others are read.
    Overlap(
        "baddbmm",
        lambda m: torch.baddbmm(*matrices(m), out=m[10:18].view(2, 2, 2)),
        lambda m: torch.baddbmm(*matrices(m)),
    ),
    Overlap(
        "baddbmm into itself",
        lambda m: torch.baddbmm(*matrices(m), out=m[:8].view(2, 2, 2)),
        lambda m: torch.baddbmm(*matrices(m)),
    ),
    Overlap(
        "baddbmm_ of itself",
        lambda m: m[:8].view(2, 2, 2).baddbmm_(matrices(m)[0], matrices(m)[1]),
        lambda m: torch.baddbmm(matrices(m)[0], *matrices(m)[:2]),
    ),
)


@pytest.mark.parametrize("overlap", COMPUTED, ids=lambda each: each.name)
def test_out_that_lies_in_an_operand_gets_what_a_copy_of_it_would(overlap: Overlap) -> None:
    expected = overlap.expected(memory("cpu"))
    result = overlap.call(memory("sim"))
    for given, wanted in zip(_tensors(result), _tensors(expected), strict=True):
        torch.testing.assert_close(given.cpu(), wanted)


def _tensors(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def put(m: Tensor) -> None:
    m[torch.arange(3, device=m.device)] = m[1:4]


REFUSED: dict[str, Call] = {
    "cat, into what is too small": lambda m: torch.cat([m[:20], m[20:]], out=m[:5]),
    "gather, into what is too large": lambda m: torch.gather(
        m, 0, torch.arange(3, device=m.device), out=m[:20]
    ),
    "index, into what is too small": lambda m: torch.ops.aten.index.Tensor_out(
        m, [torch.arange(30, device=m.device)], out=m[:5]
    ),
    "index_select": lambda m: torch.index_select(m, 0, torch.arange(40, device=m.device), out=m),
    "index_put": put,
    "masked_fill_": lambda m: m[1:21].masked_fill_(m.view(torch.bool)[:20], 3),
    "cumsum": lambda m: torch.cumsum(m[:20], 0, out=m[1:21]),
    "pow of a number": lambda m: torch.pow(2, m[:20], out=m[1:21]),
    "topk": lambda m: torch.topk(
        m, 2, out=(m[:2], torch.empty(2, dtype=torch.int64, device=m.device))
    ),
    "max": lambda m: torch.max(
        m.view(4, 10), 0, out=(m[:10], torch.empty(10, dtype=torch.int64, device=m.device))
    ),
    "sort": lambda m: torch.sort(
        m[:20], out=(m[1:21], torch.empty(20, dtype=torch.int64, device=m.device))
    ),
    "stack": lambda m: torch.stack([m[:5], m[20:25]], out=m[:10].view(2, 5)),
    # Only once `out` has its size is there anything to refuse.
    "gather, resized": lambda m: torch.gather(m, 0, torch.arange(3, device=m.device), out=m[4:6]),
    "cat, resized": lambda m: torch.cat([m[:20], m[20:]], out=m[5:10]),
    "scatter, resized": lambda m: torch.scatter(
        m[:20], 0, torch.arange(5, device=m.device), m[10:15], out=m[1:3]
    ),
    "eq, into narrower elements": lambda m: torch.eq(m, 1, out=m.view(torch.bool)[:40]),
    "scatter_add": lambda m: torch.scatter_add(
        m[:20], 0, torch.arange(5, device=m.device), m[30:35], out=m[1:21]
    ),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REFUSED)
def test_overlap_that_pytorch_refuses(name: str, device: str) -> None:
    given = memory(device)
    with pytest.raises(RuntimeError) as raised:
        REFUSED[name](given)
    assert str(raised.value).splitlines()[0] == INPUT_OVERLAPS
    assert torch.equal(given.cpu(), memory("cpu"))


@dataclass(frozen=True)
class Unfit:
    """An ``out`` that PyTorch refuses before it is resized, with what the error says."""

    call: Call
    says: str


UNFIT: dict[str, Unfit] = {
    "index_select into one element": Unfit(
        lambda m: torch.index_select(
            m[:6].view(3, 2), 0, torch.arange(2, device=m.device), out=m[:1].expand(7)
        ),
        "more than one element of the written-to tensor refers to a single memory location",
    ),
    "where into one element": Unfit(
        lambda m: torch.where(m[:6] > 2, m[:6], m[6:12], out=m[20:21].expand(7)),
        "more than one element of the written-to tensor refers to a single memory location",
    ),
    "where into an operand of another size": Unfit(
        lambda m: (lambda x: torch.where(m[:6].view(2, 3) > 2, x, m[13:16], out=x))(m[10:13]),
        "output with shape [3] doesn't match the broadcast shape [2, 3]",
    ),
    "addmv into one element": Unfit(
        lambda m: torch.addmv(m[:3], m[:9].view(3, 3), m[9:12], out=m[30:31].expand(3)),
        "more than one element of the written-to tensor refers to a single memory location",
    ),
    "index_copy into its own expanded source": Unfit(
        lambda m: (lambda x: torch.index_copy(m[:6].view(3, 2), 1, m[:1].long(), x, out=x))(
            m[30:31].expand(2)
        ),
        "single memory location",
    ),
    "relu into another dtype": Unfit(
        lambda m: torch.ops.aten.relu.out(m, out=m.double()),
        "Expected out tensor to have dtype float, but got double instead",
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", UNFIT)
def test_an_unfit_out_is_refused(name: str, device: str) -> None:
    given = memory(device)
    with pytest.raises(RuntimeError) as raised:
        UNFIT[name].call(given)
    assert UNFIT[name].says in str(raised.value)
    assert torch.equal(given.cpu(), memory("cpu"))


RESIZED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "addmv": lambda m, out: torch.addmv(m[:3], m[:9].view(3, 3), m[9:12], out=out),
    "baddbmm": lambda m, out: torch.baddbmm(*matrices(m), out=out),
    "bmm": lambda m, out: torch.bmm(*matrices(m)[:2], out=out),
    "cumsum": lambda m, out: torch.cumsum(m[:12].view(3, 4), 1, out=out),
    "logcumsumexp": lambda m, out: torch.logcumsumexp(m[:12].view(3, 4), 1, out=out),
    "mode": lambda m, out: torch.mode(
        m[:12].view(3, 4), 1, out=(out, torch.empty(0, dtype=torch.int64, device=m.device))
    ),
    "sum": lambda m, out: torch.sum(m.view(5, 8), 1, out=out),
}
OUTS: dict[str, Callable[[str], Tensor]] = {
    "one element seven times": lambda device: torch.ones(3, device=device)[1:2].expand(7),
    "no element in four rows": lambda device: torch.ones(1, 0, device=device).expand(4, 0),
    "one row in four": lambda device: torch.ones(1, 9, device=device).expand(4, 9),
    "elements in each other's place": lambda device: torch.ones(5, device=device).as_strided(
        (2, 4), (1, 1)
    ),
    "two elements": lambda device: torch.ones(2, device=device),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("out", OUTS)
@pytest.mark.parametrize("name", RESIZED)
def test_an_out_of_another_size_is_resized_whatever_its_layout(name: str, out: str) -> None:
    expected, result = OUTS[out]("cpu"), OUTS[out]("sim")
    given = memory("sim")
    RESIZED[name](memory("cpu"), expected)
    RESIZED[name](given, result)
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)
    assert torch.equal(given.cpu(), memory("cpu"))


def integers(device: str) -> Tensor:
    return torch.tensor([5, 6, 7]).to(device)


@dataclass(frozen=True)
class Failing:
    """A call that raises once it has an operand, ``out`` perhaps, that it may not change."""

    call: Callable[[Tensor], Any]
    operand: Callable[[str], Tensor]


FAILING: dict[str, Failing] = {
    "remainder_ by 0": Failing(lambda x: x.remainder_(0), integers),
    "fmod_ by 0": Failing(lambda x: x.fmod_(0), integers),
    "floor_divide_ by 0": Failing(lambda x: x.floor_divide_(torch.zeros_like(x)), integers),
    "index_put out": Failing(
        lambda out: torch.ops.aten.index_put.out(
            out[:3] * 2, [torch.arange(2, device=out.device)], out.new_ones(2, 4), out=out
        ),
        integers,
    ),
    "select_scatter out": Failing(
        lambda out: torch.ops.aten.select_scatter.out(
            torch.ones(4, 5, device=out.device), torch.ones(3, device=out.device), 0, 0, out=out
        ),
        lambda device: memory(device)[:2],
    ),
    "index_select out": Failing(
        lambda out: torch.index_select(
            torch.ones(4, 5, device=out.device), 0, torch.tensor([9], device=out.device), out=out
        ),
        lambda device: memory(device)[:2],
    ),
    "cumsum_ of bool": Failing(
        lambda x: x.cumsum_(0), lambda device: torch.tensor([True, False, True], device=device)
    ),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", FAILING)
def test_call_that_raises_leaves_its_operands_as_they_were(name: str) -> None:
    failing = FAILING[name]
    given = failing.operand("sim")
    with pytest.raises((RuntimeError, IndexError)):
        failing.call(given)
    torch.testing.assert_close(given.cpu(), failing.operand("cpu"), rtol=0, atol=0)


LAYOUTS: dict[str, Callable[[str], Tensor]] = {
    "view_copy of what no view can be": lambda device: torch.ops.aten.view_copy(
        torch.arange(12.0, device=device).view(3, 4).t(), [12]
    ),
    "roll of nothing": lambda device: torch.roll(torch.empty(0, 3, device=device), 1, 5),
    "pixel_unshuffle of nothing": lambda device: torch.pixel_unshuffle(
        torch.empty(0, 4, 4, device=device), 2
    ),
    "slice_scatter with gaps": lambda device: torch.slice_scatter(
        torch.arange(24.0, device=device).view(3, 8)[:, ::2],
        torch.ones(3, 2, device=device),
        1,
        0,
        2,
    ),
    "batch norm of a transposed row": lambda device: (
        torch.ops.aten._native_batch_norm_legit.no_stats(
            torch.arange(24.0, device=device).view(2, 4, 3).transpose(1, 2),
            None,
            None,
            True,
            0.1,
            1e-5,
        )[0]
    ),
    "abs of one row": lambda device: torch.arange(24.0, device=device).view(2, 12)[:1, :2].abs(),
    **{
        f"{name}, channels last": lambda device, call=call: call(
            torch.arange(3 * 4 * 4 * 4.0)
            .view(3, 4, 4, 4)
            .to(memory_format=torch.channels_last)
            .to(device)
        )
        for name, call in {
            "roll": lambda x: torch.roll(x, 1, 2),
            "pixel_shuffle": lambda x: torch.pixel_shuffle(x, 2),
            "pixel_unshuffle": lambda x: torch.pixel_unshuffle(x, 2),
            "reflection_pad2d": lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1), "reflect"),
            "replication_pad2d": lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1), "replicate"),
        }.items()
    },
}


@pytest.mark.parametrize(
    "scatter",
    [
        lambda x: torch.slice_scatter(x, torch.zeros(2, 4, device=x.device), 0, 1, 3),
        lambda x: torch.select_scatter(x, torch.zeros(4, device=x.device), 0, 1),
        lambda x: torch.diagonal_scatter(x, torch.zeros(4, device=x.device)),
    ],
    ids=["slice", "select", "diagonal"],
)
def test_a_copy_that_is_written_to_has_what_lies_between_the_elements(scatter: Call) -> None:
    """Programs that are made functional look at it with the strides of another view of the same memory."""
    on_cpu, on_sim = (scatter(memory(device)[1:].as_strided((4, 4), (9, 2))) for device in DEVICES)
    assert on_sim.stride() == on_cpu.stride()
    around = [each.as_strided((30,), (1,)).cpu() for each in (on_cpu, on_sim)]
    torch.testing.assert_close(around[1], around[0])


@pytest.mark.parametrize("name", LAYOUTS)
def test_result_has_the_sizes_dtype_and_strides_of_the_cpu(name: str) -> None:
    on_cpu, on_sim = (LAYOUTS[name](device) for device in DEVICES)
    assert on_sim.stride() == on_cpu.stride()
    torch.testing.assert_close(on_sim.cpu(), on_cpu)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "call",
    [torch.relu, torch.relu_, torch.tanh, lambda x: torch.layer_norm(x, [35])],
    ids=["relu", "relu_", "tanh", "layer_norm"],
)
def test_sign_of_zero(call: Call, dtype: torch.dtype) -> None:
    zeros = torch.tensor([-0.0, 0.0], dtype=dtype).repeat_interleave(35).view(2, 35)
    on_cpu, on_sim = (call(zeros.to(device, copy=True)).cpu() for device in DEVICES)
    assert torch.equal(on_sim.signbit(), on_cpu.signbit())
