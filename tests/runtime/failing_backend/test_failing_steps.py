"""Each call that a training step makes of its driver fails in turn: the step raises, and the next one works.

Kernels run at once or, where the device is slow, are queued; with a host window or on copies.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import opsmith
from sim_driver import SimDriver

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_STEPS=("uncached", "cached", "blocking", "on_copies", "on_copies_blocking"),
    nightly=("cached", "blocking", "on_copies", "on_copies_blocking"),
)

IS_BLOCKING = os.environ["OPSMITH_TEST_STEPS"].endswith("blocking")
# 0, or nothing is queued on a machine without a core to spare.
os.environ["OPSMITH_LAUNCH_BLOCKING"] = str(int(IS_BLOCKING))
if os.environ["OPSMITH_TEST_STEPS"] != "cached":
    os.environ["OPSMITH_ALLOC_CONF"] = "backend:none"  # every allocation is the driver's
if os.environ["OPSMITH_TEST_STEPS"].startswith("on_copies"):
    os.environ["OPSMITH_HOST_WINDOW"] = "off"
DRIVER = SimDriver(opsmith.load("sim").built.driver)

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

# Where no launch waits for its kernel, a wait that fails is about an earlier one.
EARLIER = "" if IS_BLOCKING else ", since work that was launched earlier has failed"
# How the error begins where a call of the entry fails.
ERRORS = {
    "allocate": "sim:0 out of memory.",
    "copy": "could not copy ",
    "fill": "could not fill ",
    "stream_query": "could not ",
    "stream_synchronize": ("could not ", "work that was queued before has failed on sim:0: "),
    "stream_host_function": "could not queue a kernel on sim:0 for aten::",
    "stream_create": "could not create a stream on sim:0: ",
    "event_create": "could not create an event on sim:0: ",
    "event_record": "could not record an event on sim:0: ",
    "stream_wait_event": "could not make a stream wait for an event on sim:0: ",
    "event_query": "could not query an event on sim:0: ",
    "event_synchronize": f"could not synchronise an event on sim:0{EARLIER}: ",
    "event_elapsed": "could not take the time between two events on sim:0: ",
    "pinned_allocate": "could not pin 256 bytes of host memory on sim:0: ",
}
# Nobody is there to be told of these: the last user of memory or of an event is gone.
SILENT = ("release", "event_destroy", "pinned_release")


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.dropout = nn.Dropout(0.5)
        self.linear = nn.Linear(2 * 4 * 4, 3)

    def forward(self, x: Tensor) -> Any:
        hidden = self.norm(self.convolution(x)).relu()
        return self.linear(self.dropout(hidden).flatten(1))


class Training:
    """A small network and its optimizer, which can go back to where they were."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        self.device = device
        self.network = Network().to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9)
        self.images, self.labels = torch.rand(4, 1, 6, 6), torch.tensor([0, 1, 2, 1])

    def step(self) -> float:
        images, labels = self.images.to(self.device), self.labels.to(self.device)
        images = torch.empty_like(images).copy_(
            images
        )  # of a slow device: all that follows is queued
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.network(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def tensors(self) -> dict[str, Tensor]:
        """Parameters, buffers and momentum."""
        states = self.optimizer.state_dict()["state"]
        momentum = {
            f"momentum of {name}": state["momentum_buffer"] for name, state in states.items()
        }
        return {**self.network.state_dict(), **momentum}

    def copied(self) -> dict[str, Tensor]:
        tensors = self.tensors()
        at_once = torch.cat([tensor.flatten().float() for tensor in tensors.values()]).cpu()
        return dict(
            zip(
                tensors, at_once.split([tensor.numel() for tensor in tensors.values()]), strict=True
            )
        )

    def go_back_to(self, state: dict[str, Tensor]) -> None:
        torch.manual_seed(7)
        for name, tensor in self.tensors().items():
            tensor.detach().copy_(state[name].view(tensor.shape))


def copies_and_events() -> list[float]:
    """Pinned copies, a side stream, events and times."""
    first, last = (torch.Event("sim", enable_timing=True) for _ in range(2))
    host = torch.arange(64.0).pin_memory()
    first.record()
    x = host.to("sim", non_blocking=True)
    side = torch.Stream("sim:0")
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        y = x.clone()
        y.zero_()
    y.record_stream(side)
    torch.accelerator.current_stream().wait_stream(side)
    z = x + y
    last.record()
    last.query()
    last.synchronize()
    assert first.elapsed_time(last) >= 0
    host.copy_(z, non_blocking=True)
    torch.accelerator.synchronize()
    return host.tolist()


TRAINING = Training("sim")
TRAINING.step()  # there are gradients and momentum from now on
START = TRAINING.copied()


@dataclass
class Work:
    prepare: Callable[[], Any]
    run: Callable[[], Any]


WORK = {
    "a training step": Work(lambda: TRAINING.go_back_to(START), lambda: TRAINING.step()),
    "copies and events": Work(lambda: None, copies_and_events),
}


def done(work: Work) -> tuple[Any, dict[str, Tensor]]:
    work.prepare()
    return work.run(), TRAINING.copied()


def held() -> tuple[int, int]:
    """Bytes of tensors, and blocks of pinned memory."""
    return torch.accelerator.memory_allocated(), DRIVER.statistics().pinned


def test_a_step_is_the_cpus() -> None:
    losses = []
    for device in ("cpu", "sim"):
        training = Training(device)
        training.network.dropout.p = 0.0
        losses.append([training.step() for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("pace", ["at once", "queued"])
@pytest.mark.parametrize("entry", [*ERRORS, *SILENT])
def test_each_call_that_fails_in_turn(entry: str, pace: str) -> None:
    for work in WORK.values():
        result, state = done(work)
        for after in itertools.count():
            before = held()
            work.prepare()
            torch.accelerator.empty_cache()
            if pace == "queued":
                DRIVER.inject("slow", 50)
            # The allocator itself tries again.
            DRIVER.inject(f"{entry}:{after}", 100 if entry == "allocate" else 1)
            failure = None
            try:
                found = work.run()
            except RuntimeError as error:
                failure = error
            has_failed = DRIVER.calls_of(entry) > after
            DRIVER.clear_faults()
            if failure is None:
                assert found == result
            else:
                expect_failure(failure, entry)
                expect_parameters_old_or_new(state)
            del failure
            again, now = done(work)
            if held() != before:
                gc.collect()
            kept = 1 if entry == "pinned_release" and has_failed else 0  # as the driver was told to
            assert held() == (before[0], before[1] + kept)
            assert again == result
            assert all(torch.equal(now[name], state[name]) for name in state)
            if not has_failed:
                break


def expect_failure(error: RuntimeError, entry: str) -> None:
    text = str(error)
    assert text.startswith(ERRORS[entry]), text
    assert f"injected fault: {entry}" in text
    if entry == "allocate":
        assert type(error) is torch.OutOfMemoryError
    else:
        assert type(error) is torch.AcceleratorError
        assert "(OPSMITH_FAILED). The device is still usable." in text


def expect_parameters_old_or_new(state: dict[str, Tensor]) -> None:
    for name, now in TRAINING.copied().items():
        if "momentum" not in name:  # which the optimizer writes twice
            assert torch.equal(now, START[name]) or torch.equal(now, state[name]), name
