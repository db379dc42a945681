"""A device that fails in the middle of a fallback leaves no argument half written, or says so.

Each call is repeated with the fault one driver call later, until it gets through.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from loaded import DEVICE, MODE, fault
from torch import Tensor

from opsmith.conformance.comparison import bytes_of, equal, tensors_in

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_BACKEND=("zero_copy_uncached", "copying_uncached"), opinfo=True
)


def matrix(rows: int = 4, columns: int = 3) -> Tensor:
    return torch.arange(1.0, rows * columns + 1).view(rows, columns) / 7


# Arguments on the CPU, and the call: it writes to some, resizes some, aliases some.
CALLS: dict[str, tuple[Callable[[], list[Tensor]], Callable[..., Any]]] = {
    "functional": (lambda: [matrix()], lambda x: x.cumsum(0)),
    "two results": (lambda: [matrix()], lambda x: x.sort(dim=1, descending=True)),
    "a list of results": (
        lambda: [matrix(), matrix(2, 2)],
        lambda x, y: torch._foreach_sinh([x, y]),
    ),
    "in-place": (lambda: [matrix()], lambda x: x.cumsum_(0)),
    "in-place on a view": (lambda: [matrix()], lambda x: x[:, 1].cumsum_(0)),
    "in-place on a list": (
        lambda: [matrix(), matrix(2, 2), matrix(1, 5), torch.zeros(1), torch.full((1,), 0.5)],
        lambda x, y, z, found, scale: torch._amp_foreach_non_finite_check_and_unscale_(
            [x, y, z], found, scale
        ),
    ),
    "in-place on two views": (
        lambda: [matrix(), torch.zeros(1), torch.full((1,), 0.5)],
        lambda x, found, scale: torch._amp_foreach_non_finite_check_and_unscale_(
            [x[:, 0], x[:, 2]], found, scale
        ),
    ),
    "out": (lambda: [matrix(), torch.zeros(4, 3)], lambda x, out: torch.cumsum(x, 0, out=out)),
    "out that grows": (
        lambda: [matrix(), torch.arange(2.0)],
        lambda x, out: torch.cumsum(x, 0, out=out),
    ),
    "outs that grow": (
        lambda: [matrix(), torch.arange(2.0), torch.arange(3)],
        lambda x, values, indices: torch.kthvalue(x, 2, 1, out=(values, indices)),
    ),
    "one out that grows, one that does not": (
        lambda: [matrix(), torch.zeros(4), torch.arange(3)],
        lambda x, values, indices: torch.kthvalue(x, 2, 1, out=(values, indices)),
    ),
    "out that grows in a storage with others": (
        lambda: [matrix(), *torch.arange(9.0).split([2, 7])],
        lambda x, out, _: torch.cumsum(x, 0, out=out),
    ),
    "unmarked": (
        lambda: [matrix(), torch.zeros(3), torch.ones(3)],
        lambda x, mean, variance: torch.native_batch_norm(
            x, None, None, mean, variance, True, 0.1, 1e-5
        ),
    ),
    "a copy that casts": (
        lambda: [matrix(), torch.zeros(3, 4, dtype=torch.float64)],
        lambda x, y: y.copy_(x.t()),
    ),
    "oneDNN": (
        lambda: [torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3)],
        torch.nn.functional.conv2d,
    ),
}  # fmt: skip


def device_twins(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors on the device, those that shared a storage still do."""
    storages: dict[int, Tensor] = {}
    twins = []
    for tensor in tensors:
        key = tensor.untyped_storage()._cdata
        if key not in storages:
            storages[key] = bytes_of(tensor).to(DEVICE)
        twin = torch.empty(0, dtype=tensor.dtype, device=DEVICE)
        twin.set_(
            storages[key].untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        twins.append(twin)
    return twins


def metadata(tensor: Tensor) -> tuple[object, ...]:
    storage = tensor.untyped_storage()
    return (
        tensor.shape, tensor.stride(), tensor.storage_offset(), tensor._version,
        storage.data_ptr(), storage.nbytes(),
    )  # fmt: skip


def attempts(name: str, kind: str) -> Iterator[tuple[list[Tensor], list[Tensor], str]]:
    """For each failure: the arguments before, on the CPU, and after; and the error's text."""
    make, call = CALLS[name]
    expected = make()
    wanted = call(*expected)
    for after in itertools.count():
        given = make()
        arguments = device_twins(given)
        before = [metadata(tensor) for tensor in arguments]
        with fault(kind.format(after)):
            try:
                result = call(*arguments)
            except RuntimeError as error:  # torch.OutOfMemoryError and AcceleratorError are ones
                failure = str(error)
            else:
                break
        assert [metadata(tensor) for tensor in arguments] == before
        yield given, arguments, failure
    # It got through: and nothing is left of what went wrong before.
    for mine, other in zip(
        tensors_in([result, arguments]), tensors_in([wanted, expected]), strict=True
    ):
        assert equal(mine.cpu(), other)


@pytest.mark.parametrize("name", CALLS)
def test_out_of_memory_changes_nothing(name: str) -> None:
    failures = 0
    for before, after, text in attempts(name, "allocate:{}"):
        failures += 1
        assert text.startswith("sim:0 out of memory.")
        if name == "unmarked" and MODE == "zero_copy":
            continue  # the CPU kernel writes the statistics before it allocates its last result
        for old, now in zip(before, after, strict=True):
            assert torch.equal(bytes_of(now).cpu(), bytes_of(old))
    if not name.startswith(("in-place", "out", "unmarked", "a copy")) or "grow" in name:
        assert failures


@pytest.mark.skipif(MODE == "zero_copy", reason="with a host window nothing is copied")
@pytest.mark.parametrize("name", CALLS)
def test_a_failing_copy_changes_nothing_or_says_so(name: str) -> None:
    expected, call = CALLS[name][0](), CALLS[name][1]
    call(*expected)
    failures = 0
    for before, after, text in attempts(name, "copy:{}"):
        failures += 1
        assert re.match(
            r"could not copy memory on sim:0( for aten::[\w.]+)?: injected fault: copy ", text
        )
        assert "(OPSMITH_FAILED). The device is still usable" in text
        partly = (
            "this happened while results were written back to the device: the tensors that the operator "
            "writes to may hold new elements, old ones or some of each"
        ) in text
        for old, now, new in zip(before, after, expected, strict=True):
            unchanged = torch.equal(now.cpu(), old)
            assert unchanged or partly
            if not unchanged:
                whole = new.reshape(-1)[: old.numel()].view(old.shape)
                assert ((now.cpu() == old) | (now.cpu() == whole)).all()
    assert failures


def test_a_cpu_kernel_that_refuses_its_arguments_changes_nothing() -> None:
    tensor = torch.ones(3, 3, device=DEVICE)
    out = torch.zeros(2, device=DEVICE)
    indices = torch.zeros(1, dtype=torch.long, device=DEVICE)
    before = [metadata(each) for each in (tensor, out, indices)]
    for call in (
        lambda: torch.cumsum(tensor, 7, out=out),
        lambda: torch.linalg.inv(tensor),
        lambda: tensor.index_add_(0, indices + 9, tensor[:1]),
        lambda: torch.kthvalue(tensor, 9, out=(out, indices)),
    ):
        with pytest.raises((IndexError, RuntimeError)):
            call()
    assert [metadata(each) for each in (tensor, out, indices)] == before
    assert torch.equal(tensor.cpu(), torch.ones(3, 3))
