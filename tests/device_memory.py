"""pytest plugin: a test of the runtime leaves the device with as many bytes of tensors as it found.

What fixtures of the test hold is there before and after. A test that fails is not asked: its tensors may be
held by the traceback. Nor are those of a file whose ``LEAVES_TENSORS`` says why not.
"""

from __future__ import annotations

import gc
import operator
import sys
import time
from pathlib import Path
from typing import Any

import pytest

RUNTIME = Path(__file__).with_name("runtime")
PATIENCE = 10.0  # seconds: a thread of autograd drops its last node after backward() has returned


def allocated_bytes() -> list[int]:
    """Of each device of the backend that this process has loaded."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.accelerator.is_available():
        return []
    return [
        torch.accelerator.memory_allocated(device)
        for device in range(torch.accelerator.device_count())
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    if RUNTIME not in item.path.parents or hasattr(getattr(item, "module", None), "LEAVES_TENSORS"):
        return (yield)
    before = allocated_bytes()
    result = yield
    # Less is what an earlier test left to the garbage collector.
    if any(map(operator.gt, allocated_bytes(), before)):
        if "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()  # compiled code holds tensors
        gc.collect()
        given_up = time.monotonic() + PATIENCE
        while any(map(operator.gt, allocated_bytes(), before)):
            assert time.monotonic() < given_up, "the test left tensors on the device"
            time.sleep(0.01)
    return result
