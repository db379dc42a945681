"""Kernels that refuse at run time: the CPU computes, the call is counted, other errors stay errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opsmith
from fell_back import fell_back
from host_window import HAS_HOST_WINDOW
from opsmith.runtime.records.fallbacks import FallbackCount

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"), nightly=("off",))
LOADED = opsmith.load(str(Path(__file__).with_name("backend.yaml")))
SMALL = torch.tensor([2.0, 3.0])
LARGE = torch.arange(6.0).reshape(2, 3)


def counted(block: opsmith.runtime.records.fallbacks.CountedBlock, operator: str) -> FallbackCount:
    return block.fallbacks[operator]


def test_what_a_kernel_does_not_refuse_is_its_own() -> None:
    with opsmith.count_fallbacks() as block:
        assert (SMALL.to("chip") * SMALL.to("chip")).tolist() == [1, 1]
        assert torch.add(SMALL.to("chip"), SMALL.to("chip")).tolist() == [1, 1]
        assert SMALL.to("chip").sinh().tolist() == [1, 1]
    assert fell_back(block.fallbacks) == set()


def test_all_variants_fail_over() -> None:
    x = LARGE.to("chip")
    with opsmith.count_fallbacks() as block:
        assert torch.equal((x * x).cpu(), LARGE * LARGE)
        out = torch.empty(0, device="chip")
        assert torch.mul(x, x, out=out) is out
        assert torch.equal(out.cpu(), LARGE * LARGE)
        y = x.clone()
        version = y._version
        assert y.mul_(x) is y
        assert y._version == version + 1
        assert torch.equal(y.cpu(), LARGE * LARGE)
    calls = {count.operator: count.calls for count in block.fallbacks.counts}
    assert calls == {"mul.Tensor": 1, "mul.out": 1, "mul_.Tensor": 1}
    assert counted(block, "mul.out").reason == "the kernel refused 1 call: more than 4 elements"
    (caller,) = counted(block, "mul.Tensor").callers
    assert caller.startswith(f"{__file__}:")


def test_a_structured_kernel_fails_over() -> None:
    x = LARGE.to("chip")
    with opsmith.count_fallbacks() as block:
        for _ in range(3):
            assert torch.equal(torch.add(x, x, alpha=2).cpu(), LARGE * 3)
    assert counted(block, "add.Tensor").calls == 3
    reason = counted(block, "add.Tensor").reason
    refused, _, on_copies = reason.partition("; written around the structured kernel `chip::add`")
    assert refused == "the kernel refused 3 calls: alpha is not 1"
    assert not (HAS_HOST_WINDOW and on_copies)


def test_dtypes_and_refusals_are_told_apart() -> None:
    with opsmith.count_fallbacks() as block:
        assert torch.equal(SMALL.double().to("chip").sinh().cpu(), SMALL.double().sinh())
        assert torch.equal(LARGE.to("chip").sinh().cpu(), LARGE.sinh())
    count = counted(block, "sinh")
    assert count.calls == 2
    assert count.reason.startswith("the kernel refused 1 call: only vectors; ")
    assert "other dtypes: the fallback runs it on the CPU" in count.reason


def test_gradients_flow() -> None:
    leaf = LARGE.clone().requires_grad_()
    device_leaf = LARGE.to("chip").requires_grad_()
    leaf.topk(2).values.sum().backward()
    with opsmith.count_fallbacks() as block:
        device_leaf.topk(2).values.sum().backward()
    assert torch.equal(device_leaf.grad.cpu(), leaf.grad)
    assert counted(block, "topk").reason == "the kernel refused 1 call: it takes nothing today"


def test_the_process_may_deny_it() -> None:
    x = LARGE.to("chip")
    with opsmith.fallback("deny"), pytest.raises(NotImplementedError) as error:
        x * x
    why = (
        "it would fall back to the CPU, because the kernel refused: more than 4 elements; "
        '`opsmith.fallback("deny")` denies that. It was called with '
        if HAS_HOST_WINDOW
        else 'its kernel runs on the host, on copies, which `opsmith.fallback("deny")` denies'
    )
    assert str(error.value).startswith(f"aten::mul.Tensor is not available on chip: {why}")


def test_a_refusal_that_nothing_was_said_about_is_raised() -> None:
    with opsmith.count_fallbacks() as block, pytest.raises(NotImplementedError) as error:
        SMALL.to("chip").cos()
    assert str(error.value) == (
        "the kernel refuses: the table is full\n"
        "  remedy: to run such calls on the CPU, add `on_error: fallback` to the kernel's entry"
    )
    assert fell_back(block.fallbacks) == set()


def test_other_errors_are_never_swallowed() -> None:
    with (
        opsmith.count_fallbacks() as block,
        pytest.raises(RuntimeError, match="the unit is broken"),
    ):
        SMALL.to("chip").sin()
    assert fell_back(block.fallbacks) == set()


def test_python_kernels_fail_over() -> None:
    @LOADED.kernel("cumsum.out", on_error="fallback")
    def cumsum(self, dim, *, dtype, out):  # type: ignore[no-untyped-def]
        if self.dim() != 1:
            raise opsmith.Unsupported("only vectors")
        if dim != 0:
            raise ValueError("no such dimension")
        return out.fill_(1)

    with cumsum, opsmith.count_fallbacks() as block:
        assert SMALL.to("chip").cumsum(0).tolist() == [1, 1]
        assert torch.equal(LARGE.to("chip").cumsum(1).cpu(), LARGE.cumsum(1))
        x = LARGE.to("chip")
        assert torch.equal(x.cumsum_(0).cpu(), LARGE.cumsum(0))
        with pytest.raises(ValueError, match="no such dimension"):
            SMALL.to("chip").cumsum(-1)
    assert counted(block, "cumsum").reason == "the kernel refused 1 call: only vectors"
    assert counted(block, "cumsum_").calls == 1

    @LOADED.kernel("cumprod.out")
    def cumprod(self, dim, *, dtype, out):  # type: ignore[no-untyped-def]
        raise opsmith.Unsupported("never")

    with cumprod, pytest.raises(NotImplementedError, match="never"):
        SMALL.to("chip").cumprod(0)
    with pytest.raises(opsmith.OpsmithError, match="`on_error='fall'` says nothing about a kernel"):
        LOADED.kernel("cumprod.out", on_error="fall")(cumprod.function)  # type: ignore[arg-type]
