"""A driver that fails in any entry, at any call, ends in an exception that says so, and the device goes on.

The device is ``chip`` (``driver_check/chip.cpp``): discrete, with streams that work when they are waited for.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opsmith

pytestmark = pytest.mark.isolated(OPSMITH_ALLOC_CONF=("backend:none", "backend:native"))

LOADED = opsmith.load(str(Path(__file__).with_name("backend.yaml")))

import torch  # noqa: E402

CHIP = ctypes.CDLL(str(LOADED.built.driver))

FAILED, OUT_OF_MEMORY, INVALID_ARGUMENT, NOT_READY, UNKNOWN = 4, 2, 3, 1, 77
NAMES = {
    FAILED: "OPSMITH_FAILED",
    OUT_OF_MEMORY: "OPSMITH_OUT_OF_MEMORY",
    INVALID_ARGUMENT: "OPSMITH_INVALID_ARGUMENT",
    NOT_READY: "OPSMITH_NOT_READY",
    UNKNOWN: "an unknown status",
}

# Nobody is there to be told of these: the last user of memory or of an event is gone.  A query that fails is
# followed by a wait, which tells.
SILENT = {"release", "event_destroy", "pinned_release", "stream_query"}


def fail(entry: str, after: int, status: int, stays: bool = False) -> None:
    CHIP.chip_fail(entry.encode(), after, status, int(stays))


def tensors() -> None:
    x = torch.arange(6.0, device="chip").reshape(2, 3)
    y = x + 1
    assert y.sum().item() == 21
    x.copy_(y)
    assert (x @ x.T).tolist() == [[14, 32], [32, 77]]
    assert torch.zeros(3, device="chip").cpu().tolist() == [0, 0, 0]
    assert x.to("chip:1").add_(1)[1, 2] == 7
    x.t().copy_(torch.ones(3, 2))
    assert x.double().tolist() == [[1, 1, 1], [1, 1, 1]]


def gradients() -> None:
    x = torch.tensor([2.0, 3.0], device="chip", requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4, 6]


def streams() -> None:
    stream = torch.Stream(device="chip")
    x = torch.ones(1000, device="chip")
    with stream:
        y = x.clone()
        y.zero_()
    stream.query()
    stream.synchronize()
    torch.accelerator.current_stream().wait_stream(stream)
    assert (x + y).sum().item() == 1000
    torch.accelerator.synchronize()


def events() -> None:
    first, last = (torch.Event("chip", enable_timing=True) for _ in range(2))
    x = torch.zeros(1000, device="chip")
    first.record()
    x.fill_(1)
    last.record()
    last.query()
    torch.Stream(device="chip").wait_event(last)
    last.synchronize()
    assert first.elapsed_time(last) >= 0


def pinned() -> None:
    host = torch.arange(4.0).pin_memory()
    assert host.is_pinned()
    x = host.to("chip", non_blocking=True)
    host.copy_(x, non_blocking=True)
    torch.accelerator.synchronize()
    assert host.tolist() == [0, 1, 2, 3]


def memory() -> None:
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total
    assert torch.get_device_module("chip").get_device_properties(0).name == "chip"


WORK: dict[str, Callable[[], None]] = {
    work.__name__: work for work in (tensors, gradients, streams, events, pinned, memory)
}
# The work that reaches each entry, beside those that make streams: these are asked for a few times only.
REACHED_BY = {
    "allocate": ("tensors", "gradients"),
    "release": ("tensors", "streams"),
    "copy": ("tensors", "gradients", "pinned"),
    "stream_query": ("tensors", "streams"),
    "stream_synchronize": ("tensors", "gradients", "streams", "pinned"),
    "event_create": ("events", "streams"),
    "event_destroy": ("events",),
    "event_record": ("events", "streams"),
    "event_query": ("events",),
    "event_synchronize": ("events",),
    "event_elapsed": ("events",),
    "stream_wait_event": ("events", "streams"),
    "pinned_allocate": ("pinned",),
    "pinned_release": ("pinned",),
    "device_memory": ("memory",),
    "device_properties": ("memory",),
}


def test_default_streams_that_fail() -> None:
    """First, since a default stream is asked for once."""
    fail("default_stream", 0, FAILED)
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.ones(3, device="chip")
    fail("", 0, 0)
    assert str(raised.value).startswith(
        "could not get the default stream on chip:0: injected into default_stream (OPSMITH_FAILED). "
        "The device is still usable."
    )
    tensors()


@pytest.mark.parametrize("priority", [0, -1])
def test_streams_that_cannot_be_made(priority: int) -> None:
    for status in (FAILED, OUT_OF_MEMORY, INVALID_ARGUMENT, UNKNOWN):
        fail("stream_create", 0, status)
        with pytest.raises(RuntimeError) as raised:
            torch.Stream(device="chip", priority=priority)
        expect_failure(raised.value, "stream_create", status)
        assert str(raised.value).startswith("could not create a stream on chip:0: ")
    torch.Stream(device="chip", priority=priority).synchronize()


def test_what_works_without_faults() -> None:
    for work in WORK.values():
        work()


def expect_failure(error: BaseException, entry: str, status: int) -> None:
    wanted = torch.OutOfMemoryError if status == OUT_OF_MEMORY else torch.AcceleratorError
    assert type(error) is wanted, repr(error)
    text = str(error)
    assert f"injected into {entry}" in text
    assert "chip:" in text
    if not isinstance(error, torch.OutOfMemoryError) or entry != "allocate":
        assert f"({NAMES[status]})" in text


@pytest.mark.parametrize("entry", REACHED_BY)
def test_each_call_that_fails_raises_and_the_device_goes_on(entry: str) -> None:
    statuses = (FAILED, OUT_OF_MEMORY, INVALID_ARGUMENT, UNKNOWN)
    for name in REACHED_BY[entry]:
        raised = 0
        for after in itertools.count():
            torch.accelerator.empty_cache()  # or no allocation reaches the driver
            before = CHIP.chip_calls(entry.encode())
            fail(entry, after, statuses[after % len(statuses)])
            try:
                WORK[name]()
            except Exception as error:
                raised += 1
                expect_failure(error, entry, statuses[after % len(statuses)])
            failed = CHIP.chip_calls(entry.encode()) - before > after
            fail("", 0, 0)
            WORK["tensors"]()
            if not failed:
                break
        assert raised or entry in SILENT, name
    WORK[name]()


def test_work_that_is_pending_where_none_may_be() -> None:
    x = torch.ones(3, device="chip")
    fail("copy", 0, NOT_READY)
    with pytest.raises(torch.AcceleratorError) as raised:
        x.cpu()
    fail("", 0, 0)
    assert (
        "(OPSMITH_NOT_READY). This is a mistake of the driver, which `opsmith driver check` finds"
        in str(raised.value)
    )


def test_memory_that_is_released_after_a_failure_is_not_lost() -> None:
    torch.accelerator.empty_cache()
    free = torch.accelerator.get_memory_info()[0]
    for after in range(12):
        fail("copy", after, FAILED)
        with contextlib.suppress(torch.AcceleratorError):
            tensors()
        fail("", 0, 0)
    torch.accelerator.empty_cache()
    assert torch.accelerator.get_memory_info()[0] == free


def use_and_release_memory(x: Any) -> None:
    memory = torch.empty(3 << 20, device="chip")  # a segment of its own, where memory is cached
    x.clone()
    del memory
    torch.accelerator.empty_cache()


@pytest.mark.parametrize(
    "use_and_release",
    [
        use_and_release_memory,
        lambda x: torch.arange(4.0).pin_memory().to("chip", non_blocking=True),
        lambda x: x.copy_(torch.arange(4.0).pin_memory(), non_blocking=True),
    ],
)
def test_a_failure_that_is_met_while_memory_is_released_is_raised_by_the_next_call(
    use_and_release: Callable[[Any], Any],
) -> None:
    x = torch.arange(4.0).to("chip")
    fail("stream_synchronize", 0, FAILED)
    use_and_release(x)
    fail("", 0, 0)
    with pytest.raises(torch.AcceleratorError) as raised:
        x.cpu()
    assert str(raised.value) == (
        "work that was queued before has failed on chip:0: injected into stream_synchronize "
        "(OPSMITH_FAILED). The device is still usable."
    )
    tensors()


def backward(x: Any) -> None:
    (x * x).sum().backward()


def test_a_failure_in_a_backward_pass_reaches_its_caller() -> None:
    x = torch.ones(3, device="chip", requires_grad=True)
    y = (x * x).sum()
    fail("copy", 0, FAILED)
    with pytest.raises(torch.AcceleratorError, match="injected into copy"):
        y.backward()
    fail("", 0, 0)
    backward(x)
