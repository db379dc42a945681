"""``OPSMITH_ALLOC_CONF=debug:True`` tells of writes to memory that is nobody's."""

from __future__ import annotations

import pytest
import torch
from loaded import DEVICE, DRIVER, fault

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_BACKEND=("zero_copy_guarded", "copying_guarded"), opinfo=True
)


def told() -> str:
    """What the next call of the driver raises."""
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
        with fault("slow", 100_000), stream:
            tensor.copy_(source, non_blocking=True)
            if is_recorded:
                tensor.record_stream(stream)
        del tensor
        stream.synchronize()
        torch.accelerator.empty_cache()
        if is_recorded:
            assert torch.ones(2, device=DEVICE).tolist() == [1, 1]
    assert told() == (
        "sim:0: memory of 256 bytes was written to after it was freed, at byte 0" + AFTER_FREE
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
