"""``OPSMITH_ALLOC_CONF=debug:True`` tells of writes to memory that is nobody's."""

from __future__ import annotations

import pytest
import torch
from loaded import DEVICE, DRIVER, fault

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_BACKEND=("zero_copy_guarded", "copying_guarded"), opinfo=True
)


def told() -> str:
    """The error that the next call of the driver raises."""
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.accelerator.synchronize()
        torch.ones(1, device=DEVICE)
    torch.ones(1, device=DEVICE)  # it is told once
    return str(raised.value)


def test_a_write_past_the_end() -> None:
    tensor = torch.zeros(1000, device=DEVICE)
    DRIVER.write(tensor.data_ptr() + 4002, b"\1")
    del tensor
    assert told() == "sim:0: memory of 4000 bytes was written to past its end, at byte 4002"


def test_a_write_before_the_start() -> None:
    tensor = torch.zeros(10, device=DEVICE)
    DRIVER.write(tensor.data_ptr() - 4, b"\1\1\1\1")
    del tensor
    assert told() == "sim:0: memory of 40 bytes was written to before its start, at byte -4"


AFTER_FREE = (
    ": by what had kept its address, or by work on a stream that nobody told it of "
    "(Tensor.record_stream)"
)


def test_a_write_to_freed_memory() -> None:
    tensor = torch.zeros(10, device=DEVICE)
    address = tensor.data_ptr()
    del tensor
    DRIVER.write(address + 8, b"\1")
    torch.accelerator.empty_cache()
    assert told() == (
        "sim:0: memory of 40 bytes was written to after it was freed, at byte 8" + AFTER_FREE
    )


def test_work_on_a_stream_that_was_not_recorded() -> None:
    stream = torch.Stream(device=DEVICE)
    source = torch.full((64,), 7.0).pin_memory()
    for is_recorded in (True, False):
        tensor = torch.zeros(64, device=DEVICE)
        with fault("slow", 500_000), stream:
            tensor.copy_(source, non_blocking=True)
            if is_recorded:
                tensor.record_stream(stream)
        del tensor
        if not is_recorded:
            assert "memory of 256 bytes of stream 0 was freed while a copy, " in told()
        stream.synchronize()
        torch.accelerator.empty_cache()
        if is_recorded:
            assert torch.ones(2, device=DEVICE).tolist() == [1, 1]
    assert told() == (
        "sim:0: memory of 256 bytes was written to after it was freed, at byte 0" + AFTER_FREE
    )


def other_stream_copies(tensor: torch.Tensor, stream: torch.Stream) -> None:
    with stream:
        torch.empty_like(tensor).copy_(tensor)


def test_memory_that_another_stream_may_still_use_when_it_is_freed() -> None:
    """However quick that stream was this time: it had nothing to wait for."""
    stream = torch.Stream(device=DEVICE)
    tensor = torch.zeros(64, device=DEVICE)
    stream.wait_stream(torch.accelerator.current_stream())
    other_stream_copies(tensor, stream)
    del tensor
    assert told() == (
        f"sim:0: memory of 256 bytes of stream 0 was freed while a copy, queued on stream "
        f"{stream.stream_id}, may still use it: call Tensor.record_stream with that stream, or let "
        "stream 0 or the host wait for it before the tensor goes"
    )


def make_owner_wait(tensor: torch.Tensor, stream: torch.Stream) -> None:
    torch.accelerator.current_stream().wait_stream(stream)


def make_owner_wait_for_an_event(tensor: torch.Tensor, stream: torch.Stream) -> None:
    between, event = torch.Stream(device=DEVICE), torch.Event(DEVICE)
    event.record(stream)
    between.wait_event(event)
    make_owner_wait(tensor, between)


def wait_for_an_event(tensor: torch.Tensor, stream: torch.Stream) -> None:
    event = torch.Event(DEVICE)
    event.record(stream)
    event.synchronize()


def ask_until_it_is_idle(tensor: torch.Tensor, stream: torch.Stream) -> None:
    while not stream.query():
        pass


ORDERED = {
    "record_stream": torch.Tensor.record_stream,
    "the owner waits for the stream": make_owner_wait,
    "the owner waits for another stream's event": make_owner_wait_for_an_event,
    "the host waits for the stream": lambda _, stream: stream.synchronize(),
    "the host waits for the device": lambda *_: torch.accelerator.synchronize(),
    "the host waits for an event": wait_for_an_event,
    "the host asks": ask_until_it_is_idle,
}


@pytest.mark.parametrize("how", ORDERED)
def test_memory_that_another_stream_is_known_to_be_done_with(how: str) -> None:
    stream = torch.Stream(device=DEVICE)
    tensor = torch.zeros(64, device=DEVICE)
    stream.wait_stream(torch.accelerator.current_stream())
    other_stream_copies(tensor, stream)
    ORDERED[how](tensor, stream)
    del tensor
    torch.accelerator.synchronize()
    assert torch.ones(2, device=DEVICE).tolist() == [1, 1]


def test_an_event_from_before_the_use_orders_nothing() -> None:
    stream, event = torch.Stream(device=DEVICE), torch.Event(DEVICE)
    tensor = torch.zeros(64, device=DEVICE)
    event.record(stream)
    other_stream_copies(tensor, stream)
    torch.accelerator.current_stream().wait_event(event)
    del tensor
    assert "memory of 256 bytes of stream 0 was freed while a copy, " in told()


def test_a_copy_of_freed_memory() -> None:
    tensor = torch.zeros(100, device=DEVICE)
    storage = torch._C._construct_storage_from_data_pointer(
        tensor.data_ptr(), torch.device(f"{DEVICE}:0"), 400
    )
    alias = torch.empty(0, device=DEVICE).set_(storage, 0, (100,))
    assert alias.sum() == 0
    del tensor
    with pytest.raises(torch.AcceleratorError) as raised:
        alias.cpu()
    assert str(raised.value) == (
        "sim:0: a copy, queued on stream 0, was given memory of 400 bytes that had been freed: keep the "
        "tensor whose address it is until then"
    )


def test_new_memory_and_freed_memory_is_not_a_number() -> None:
    tensor = torch.empty(100, device=DEVICE)
    assert tensor.isnan().all()
    address = tensor.zero_().data_ptr()
    del tensor
    assert DRIVER.read(address, 400) == b"\xff" * 400


def test_correct_programs_are_left_alone() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.GELU(), torch.nn.Linear(5, 3))
    model.to(DEVICE)
    for _ in range(3):
        x = torch.rand(11, 7, device=DEVICE)
        loss = torch.nn.functional.cross_entropy(model(x), torch.arange(11, device=DEVICE) % 3)
        loss.backward()
        x.sort(dim=1)
        torch.linalg.qr(x)
        x.cumsum(0).resize_(3, 100).zero_()
    del x, loss
    torch.accelerator.empty_cache()
    torch.accelerator.synchronize()
    assert torch.ones(2, device=DEVICE).tolist() == [1, 1]
