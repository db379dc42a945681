"""Kernels on ExecuTorch's lean tensors as operators of a PyTorch device, against the CPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.runtime.records.calls import record_calls
from sim_driver import SimDriver

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("windowed", "copying"))
MODE = os.environ["OPSMITH_TEST_BACKEND"]
LOADED = opsmith.load(str(Path(__file__).with_name(f"{MODE}.yaml")))
DEVICE = "leansim"


@pytest.fixture
def fallbacks() -> Iterator[Callable[[], dict[str, int]]]:
    """The operators that fell back since the test began, with their calls."""
    start = opsmith.fallbacks()
    yield lambda: {
        each.operator: fallen
        for each in opsmith.fallbacks(since=start).counts
        if (fallen := each.calls - each.kernel_calls)
    }


def agree(ours: Tensor, theirs: Tensor) -> None:
    assert ours.device.type == DEVICE
    assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    torch.testing.assert_close(ours.cpu(), theirs)


def rows(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    host = torch.arange(6, dtype=dtype).reshape(2, 3)
    return host.to(DEVICE), host


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32])
def test_each_dtype_has_its_kernel(
    dtype: torch.dtype, fallbacks: Callable[[], dict[str, int]]
) -> None:
    ours, theirs = rows(dtype)
    agree(ours + ours, theirs + theirs)
    agree(torch.add(ours, ours, alpha=3), torch.add(theirs, theirs, alpha=3))
    agree(ours.clone().add_(ours), theirs + theirs)
    assert fallbacks() == {}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.float32, torch.int64),
        (torch.int32, torch.int64),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.float64),
    ],
)
def test_what_no_kernel_takes_falls_back(
    first: torch.dtype, second: torch.dtype, fallbacks: Callable[[], dict[str, int]]
) -> None:
    (a, a_host), (b, b_host) = rows(first), rows(second)
    agree(a + b, a_host + b_host)
    assert sum(fallbacks().values()) == 1


def test_another_rank_than_the_key_has_falls_back(fallbacks: Callable[[], dict[str, int]]) -> None:
    ours, theirs = rows(torch.int64)
    agree(ours[0] + ours[1], theirs[0] + theirs[1])
    agree(ours.t() + ours.t(), theirs.t() + theirs.t())
    assert sum(fallbacks().values()) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_python_scalars_arrive_in_the_operators_dtype(
    dtype: torch.dtype, fallbacks: Callable[[], dict[str, int]]
) -> None:
    ours, theirs = rows(dtype)
    agree(ours + 2, theirs + 2)
    agree(ours + 0.1, theirs + 0.1)
    agree(ours + True, theirs + True)
    agree(ours.clone().add_(0.1), theirs + 0.1)
    assert fallbacks() == {}


def test_out_is_resized_cast_and_kept_in_its_layout(
    fallbacks: Callable[[], dict[str, int]],
) -> None:
    ours, theirs = rows()
    empty = torch.empty(0, device=DEVICE)
    assert torch.add(ours, ours, out=empty) is empty
    agree(empty, theirs + theirs)
    gaps = torch.empty(2, 6, device=DEVICE)[:, ::2]
    torch.add(ours, ours, out=gaps)
    torch.testing.assert_close(gaps.cpu(), theirs + theirs)
    transposed = torch.empty(3, 2, device=DEVICE).t()
    torch.add(ours, ours, out=transposed)
    assert transposed.stride() == (1, 2)
    torch.testing.assert_close(transposed.cpu(), theirs + theirs)
    assert fallbacks() == {}
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.add(ours, ours, out=torch.empty(2, 3, dtype=torch.int64, device=DEVICE))


def test_a_kernel_for_any_dim_order_is_given_transposed_tensors() -> None:
    ours, theirs = rows()
    # In one order of its elements, which the kernel goes through without looking at strides.
    agree(ours.t() * ours.t(), theirs.t() * theirs.t())
    other = ours.t().contiguous().t()
    refused = r"refuses the call: Check failed .*: other dim orders"
    with pytest.raises(NotImplementedError, match=refused):
        torch.mul(ours, other, out=torch.empty(2, 3, device=DEVICE))


def test_lists_optionals_strings_and_several_results(
    fallbacks: Callable[[], dict[str, int]],
) -> None:
    ours, theirs = rows()
    agree(torch.cat([ours, ours, ours]), torch.cat([theirs, theirs, theirs]))
    agree(ours.sum(), theirs.sum())
    agree(ours.clamp(1, 3), theirs.clamp(1, 3))
    agree(ours.clamp(max=2.5), theirs.clamp(max=2.5))
    weight = torch.tensor([1.0, 2.0, 3.0])
    for w in (None, weight):
        mine = torch.native_layer_norm(ours, [3], None if w is None else w.to(DEVICE), None, 1e-5)
        for one, other in zip(
            mine, torch.native_layer_norm(theirs, [3], w, None, 1e-5), strict=True
        ):
            agree(one, other)
    outer = torch.ops.lean_test.outer
    agree(outer(ours), theirs)
    agree(outer(ours, ours[1]), theirs + 3)
    agree(outer(ours, ours[1], mode="more"), theirs + 103)
    assert fallbacks() == {}


def test_sources_with_gaps_are_copied() -> None:
    ours, theirs = rows()
    agree(torch.cat([ours[:, :2], ours[:, 1:]]), torch.cat([theirs[:, :2], theirs[:, 1:]]))
    agree(ours[0].expand(2, 3) + ours, theirs[0].expand(2, 3) + theirs)


def test_a_failed_kernel_names_operator_kernel_and_cause() -> None:
    ours, _ = rows()
    with pytest.raises(RuntimeError) as caught:
        torch.index_select(ours, 0, torch.tensor([0, 5]).to(DEVICE))
    assert str(caught.value).splitlines()[0] == (
        "aten::index_select: its kernel `lean_test::native::index_select_out` (library single) refuses the "
        "call: Check failed (from >= 0 && from < self.size(0)): index 5 of 2"
    )
    with pytest.raises(
        NotImplementedError, match=r"its kernel .* refuses the call: .*: broadcasting"
    ):
        ours + ours[0]
    # The state is clean afterwards.
    agree(ours + ours, rows()[1] * 2)


def test_a_result_of_another_shape_is_refused() -> None:
    with pytest.raises(RuntimeError, match="refuses the call: it gives its result another shape"):
        torch.index_select(rows()[0], 0, torch.tensor([-1]).to(DEVICE))


def test_an_aborting_kernel_ends_in_an_exception() -> None:
    with pytest.raises(RuntimeError, match=r"refuses the call: .*index -2 ends the process"):
        torch.index_select(rows()[0], 0, torch.tensor([-2]).to(DEVICE))


def test_what_is_copied_for_a_kernel_is_counted() -> None:
    (x, _), (y, _) = rows(), rows()
    with record_calls() as recorded:
        x + y
        x.add_(x)
    moved = {call.operator: call.bytes_moved for call in recorded.calls.tree if call.on_device}
    # Two operands of six floats and the result; one storage there and back.
    assert moved["add.Tensor"] == (3 * 24 if MODE == "copying" else 0)
    assert moved["add_.Tensor"] == (2 * 24 if MODE == "copying" else 0)


def test_a_kernel_on_the_device_works_through_the_driver() -> None:
    given = ctypes.CDLL(str(LOADED.built.library)).address_given
    given.restype = ctypes.c_void_p
    x, y, out = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([2.0, 2.0, -1.0]), torch.zeros(3)
    ours = [each.to(DEVICE) for each in (x, y, out)]
    with torch.get_device_module(DEVICE).stream(torch.Stream(DEVICE)):
        torch.atan2(ours[0], ours[1], out=ours[2])
    torch.accelerator.synchronize()
    assert [given(i) for i in range(3)] == [each.data_ptr() for each in ours]
    agree(ours[2], torch.atan2(x, y))
    # A number on the host is taken to the device.
    agree(torch.atan2(ours[0], torch.tensor(2.0)), torch.atan2(x, torch.tensor(2.0)))


def test_a_failure_that_comes_late_names_the_operator_that_launched_last() -> None:
    driver = SimDriver(LOADED.built.driver)
    x = torch.ones(2, 3, device=DEVICE)
    torch.atan2(x, x)
    driver.inject("stream_query")
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.accelerator.synchronize()
    driver.clear_faults()
    assert str(raised.value).splitlines()[0] == (
        "could not synchronise a stream on leansim:0, since work that was launched earlier has failed: "
        "injected fault: stream_query (OPSMITH_FAILED). The device is still usable. Where a kernel has "
        "failed, what was computed since may be wrong. The operator launched last is aten::atan2; "
        "OPSMITH_LAUNCH_BLOCKING=1 raises failures from the calls that cause them."
    )


def test_an_operator_of_dynamic_shape_serves_executorch_only() -> None:
    entry = LOADED.plan.entry("nonzero.out")
    assert entry.kernel is None
    assert (
        "serves ExecuTorch's programs only: the shape of its result depends on its operands' elements, "
        "and no `meta:` tells its rank" in entry.why
    )


def test_a_kernel_decides_the_shape_of_its_result(fallbacks: Callable[[], dict[str, int]]) -> None:
    host = torch.tensor([3.0, -1.0, 2.0, -5.0])
    ours = host.to(DEVICE)
    for bound in (0.0, 10.0, -10.0):
        agree(torch.masked_select(ours, ours > bound), torch.masked_select(host, host > bound))
    out, theirs = torch.empty(0, device=DEVICE), torch.empty(0)
    torch.masked_select(ours, ours > 0, out=out)
    agree(out, torch.masked_select(host, host > 0, out=theirs))
    assert "masked_select" not in fallbacks() and "masked_select.out" not in fallbacks()


def test_what_a_kernel_changes_reaches_a_tensor_with_gaps() -> None:
    base = torch.arange(8.0)
    ours, theirs = base.to(DEVICE)[::2], base[::2]
    added = torch.tensor([10.0, 20.0])
    total = torch.ops.lean_test.accumulate(added.to(DEVICE), ours)
    agree(total, torch.tensor([10.0, 22.0, 4.0, 6.0]))
    assert ours.tolist() == total.tolist()
    mean = base.to(DEVICE)[1::2]
    torch.native_batch_norm(added[None].to(DEVICE), None, None, mean[:2], None, True, 0.5, 0.0)
    assert mean.tolist() == [5.5, 11.5, 5.0, 7.0]
    assert theirs.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_custom_operator_has_all_variants_and_a_fake_implementation() -> None:
    ours, theirs = rows()
    scale = torch.ops.lean_test.scale
    agree(scale(ours, 2.0), theirs * 2)
    out = torch.empty(0, device=DEVICE)
    scale.out(ours, 3.0, out=out)
    agree(out, theirs * 3)

    class Scaled(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return scale(x, 2.0)

    exported = torch.export.export(Scaled(), (ours,))
    assert "lean_test.scale.default" in exported.graph_module.code
    agree(exported.module()(ours), theirs * 2)


def test_a_dtype_without_kernel_is_refused_for_a_custom_operator() -> None:
    ours, _ = rows(torch.float64)
    with pytest.raises(NotImplementedError) as caught:
        torch.ops.lean_test.scale(ours, 2.0)
    assert "takes Float only, and there is no CPU kernel to fall back on" in str(caught.value)


def test_a_python_scalar_counts_as_what_pytorch_computes_in(
    fallbacks: Callable[[], dict[str, int]],
) -> None:
    """`sub.out` names the dtypes of each operand: Float. A Python scalar among them has none of its own."""
    ours, theirs = rows()
    agree(ours - 2, theirs - 2)
    agree(ours - 0.5, theirs - 0.5)
    agree(torch.sub(2, ours), torch.sub(2, theirs))
    agree(ours.clone().sub_(2), theirs - 2)
    assert fallbacks() == {}
    # Of Float nothing but the scalar, if at all.
    for dtype in (torch.int64, torch.float64):
        ours, theirs = rows(dtype)
        agree(ours - 0.5, theirs - 0.5)
    assert sum(fallbacks().values()) == 2


def test_dtypes_of_a_list_some_of_whose_tensors_are_none(
    fallbacks: Callable[[], dict[str, int]],
) -> None:
    ours, theirs = rows()
    index, mask, value = torch.tensor([1]), torch.tensor([True, False]), torch.tensor(7.0)

    def put(x: Tensor, *indices: Tensor | None) -> Tensor:
        given = [each if each is None else each.to(x.device) for each in indices]
        return torch.ops.aten.index_put(x, given, value.to(x.device))

    agree(put(ours, index), put(theirs, index))
    agree(put(ours, None, index), put(theirs, None, index))
    assert fallbacks() == {}
    agree(put(ours, mask), put(theirs, mask))
    assert fallbacks() == {"index_put": 1}


def test_an_out_of_another_dtype_is_for_atens_kernel_to_judge(
    fallbacks: Callable[[], dict[str, int]],
) -> None:
    """Where PyTorch's meta function does not check `out`, operators differ: some cast, others refuse."""
    ours, theirs = rows()
    index = torch.tensor([1, 0])
    text = []
    for x, i in ((theirs, index), (ours, index.to(DEVICE))):
        with pytest.raises(RuntimeError) as caught:
            torch.index_select(x, 0, i, out=torch.empty(2, 3, dtype=torch.float64, device=x.device))
        text.append(str(caught.value).splitlines()[0])
    assert text[0] == text[1] == "index_select(): self and result must have the same scalar type"
    assert fallbacks() == {"index_select.out": 1}


def test_a_kernel_draws_the_numbers_of_the_devices_generator() -> None:
    generator = torch.get_device_module("leansim").default_generators[0]
    generator.manual_seed(0)
    drawn = torch.ops.lean_test.noise(torch.empty(5, device="leansim"))
    # Random123's known answer for a counter and a key of zeros.
    known = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert drawn.tolist()[:4] == [(number >> 8) / 2**24 for number in known]
    assert generator.get_offset() == 8
    generator.manual_seed(0)
    assert torch.equal(torch.ops.lean_test.noise(torch.empty(5, device="leansim")), drawn)
