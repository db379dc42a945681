"""Device memory stays in its process: what would share it raises where the program asked for it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import loaded  # noqa: F401  (makes the device)
import pytest
import torch
from torch import nn

from opsmith.errors import NotShareable
from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)

REFUSED = (
    "memory of sim:0 cannot be shared with another process: the driver has no way to export it\n"
    "  remedy: hand over a copy in the CPU's memory, .cpu(), and move it to the device there"
)
SPAWN = multiprocessing.get_context("spawn")


def on_device() -> torch.Tensor:
    return torch.ones(2, device="sim")


SENT: list[Callable[[], Any]] = [
    on_device,
    lambda: {"batch": [torch.ones(1), on_device()]},
    lambda: nn.Linear(1, 1).to("sim"),
    lambda: nn.Parameter(on_device()),
    lambda: on_device().untyped_storage(),
]


@pytest.mark.parametrize("make", [SPAWN.Queue, SPAWN.JoinableQueue])
@pytest.mark.parametrize("sent", SENT)
def test_a_queue_refuses_device_memory_at_put(
    sent: Callable[[], Any], make: Callable[[], Any]
) -> None:
    queue = make()
    assert refusal(NotShareable, queue.put, sent()) == REFUSED
    queue.put("the next one")
    assert queue.get(timeout=60) == "the next one"
    queue.close()


@pytest.mark.parametrize("sent", SENT)
def test_a_pipe_refuses_device_memory(sent: Callable[[], Any]) -> None:
    receiver, sender = SPAWN.Pipe(duplex=False)
    assert refusal(NotShareable, sender.send, sent()) == REFUSED
    assert not receiver.poll()
    sender.send(7)
    assert receiver.recv() == 7


def test_device_memory_cannot_be_moved_to_shared_memory() -> None:
    assert refusal(NotShareable, on_device().share_memory_) == REFUSED
    assert refusal(NotShareable, nn.Linear(1, 1).to("sim").share_memory) == REFUSED
    assert refusal(NotShareable, on_device().untyped_storage().share_memory_) == REFUSED
    assert not on_device().is_shared()


def test_memory_of_the_cpu_is_shared_as_ever() -> None:
    tensor = torch.ones(2)
    assert not tensor.is_shared()
    assert tensor.share_memory_().is_shared()
    queue = SPAWN.Queue()
    queue.put({"tensor": tensor})
    received = queue.get(timeout=60)["tensor"]
    received.add_(1)
    assert tensor.tolist() == [2, 2]
    queue.close()
