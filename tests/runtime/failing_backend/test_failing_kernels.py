"""Each run of a kernel that a training step makes fails in turn: the step raises, and the next one works."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
from pathlib import Path

import pytest

import opsmith
from sim_driver import SimDriver

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_KERNELS=("queued", "blocking", "on_copies"), nightly=("on_copies",)
)

os.environ["OPSMITH_LAUNCH_BLOCKING"] = str(int(os.environ["OPSMITH_TEST_KERNELS"] == "blocking"))
if os.environ["OPSMITH_TEST_KERNELS"] == "on_copies":
    os.environ["OPSMITH_HOST_WINDOW"] = "off"
BUILT = opsmith.load(str(Path(__file__).with_name("backend.yaml"))).built
DRIVER, KERNELS = SimDriver(BUILT.driver), ctypes.CDLL(str(BUILT.library))

import torch  # noqa: E402

# The message of each kernel, and operators of which one is named with it: those on lean tensors do not throw.
BROKEN = {
    "the adder is broken": ("add",),
    "the multiplier is broken": ("mul",),
    "the rectifier is broken": (),
    "the averager is broken": (),
}


class Training:
    """Two weights, and an optimizer with momentum."""

    def __init__(self, device: str) -> None:
        self.weights = [torch.arange(n, dtype=torch.float32, device=device).sub(1) for n in (4, 4)]
        for weight in self.weights:
            weight.requires_grad_()
        self.optimizer = torch.optim.SGD(self.weights, lr=0.1, momentum=0.5, foreach=False)
        self.x = torch.tensor([[1.0, -2.0, 3.0, 4.0], [2.0, 1.0, -1.0, 0.5]], device=device)

    def step(self) -> float:
        self.optimizer.zero_grad()
        hidden = torch.relu(self.x * self.weights[0]) + self.weights[1]
        loss = (hidden * hidden).mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def go_back(self) -> None:
        with torch.no_grad():
            for weight in self.weights:
                weight.copy_(torch.arange(4.0).sub(1))
        self.optimizer.state.clear()

    def values(self) -> list[list[float]]:
        return [weight.tolist() for weight in self.weights]


def test_a_step_is_the_cpus() -> None:
    losses, values = [], []
    for device in ("cpu", "chip"):
        training = Training(device)
        losses.append([training.step() for _ in range(3)])
        values.append([each for weight in training.values() for each in weight])
    assert losses[0] == pytest.approx(losses[1])
    assert values[0] == pytest.approx(values[1])


@pytest.mark.parametrize("pace", ["at once", "behind slow work"])
def test_each_run_that_fails_in_turn(pace: str) -> None:
    training = Training("chip")
    start = training.values()
    loss, trained = training.step(), training.values()
    told = set()
    for run in itertools.count(1):
        training.go_back()
        training.optimizer.zero_grad()
        gc.collect()
        before = torch.accelerator.memory_allocated()
        if pace != "at once":
            DRIVER.inject("slow", 3000)  # microseconds
            training.x.copy_(training.x.clone())  # there is work that is pending
        KERNELS.fail_at(run)
        failure = None
        try:
            training.step()
            torch.accelerator.synchronize()
        except RuntimeError as error:
            failure = str(error)
        KERNELS.fail_at(0)
        DRIVER.clear_faults()
        if failure is None:
            break
        (said,) = (text for text in BROKEN if text in failure)
        told.add(said)
        assert any(f"aten::{name}" in failure for name in BROKEN[said]) or not BROKEN[said], failure
        if os.environ["OPSMITH_TEST_KERNELS"] != "queued":
            for now, old, new in zip(training.values(), start, trained, strict=True):
                assert now in (old, new)
        training.go_back()
        training.optimizer.zero_grad()
        gc.collect()
        torch.accelerator.synchronize()  # raises nothing more
        assert torch.accelerator.memory_allocated() == before
        assert (training.step(), training.values()) == (loss, trained)
    assert run == 12
    assert told == set(BROKEN)
