"""When freed memory is used again: in the order of its stream, or where the host looks, when that is done."""

from __future__ import annotations

import pytest
import torch
from loaded import DEVICE, fault, statistics

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)

MILLISECONDS = 1000


def test_memory_with_work_pending_on_its_own_stream() -> None:
    stream = torch.Stream(device=DEVICE)
    source = torch.full((64,), 7.0).pin_memory()
    with stream, fault("slow", 200 * MILLISECONDS):
        tensor = torch.empty(64, device=DEVICE)
        address = tensor.data_ptr()
        tensor.copy_(source, non_blocking=True)
        del tensor
        again = torch.empty(64, device=DEVICE)
        assert not stream.query()  # nobody has waited
        assert again.data_ptr() == address
    with stream:
        again.copy_(source.add(1))
        assert again.tolist() == [8.0] * 64


def test_memory_with_work_pending_on_another_stream() -> None:
    stream = torch.Stream(device=DEVICE)
    target = torch.empty(64).pin_memory()
    tensor = torch.full((64,), 7.0, device=DEVICE)
    address = tensor.data_ptr()
    with fault("slow", 200 * MILLISECONDS):
        with stream:
            target.copy_(tensor, non_blocking=True)
        tensor.record_stream(stream)
        del tensor
        others = [torch.empty(64, device=DEVICE) for _ in range(4)]
        assert not stream.query()
        assert address not in [other.data_ptr() for other in others]
    stream.synchronize()
    assert target.tolist() == [7.0] * 64
    assert torch.empty(64, device=DEVICE).data_ptr() == address


def test_freed_memory_reaches_the_driver_when_the_cache_is_emptied() -> None:
    torch.accelerator.empty_cache()
    before = statistics().live_bytes
    torch.empty(30 << 20, dtype=torch.uint8, device=DEVICE)
    assert statistics().live_bytes == before + (30 << 20)
    torch.accelerator.empty_cache()
    assert statistics().live_bytes == before
