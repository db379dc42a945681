"""Training steps in which each call of one of the driver's entries fails in turn, printed as JSON.

    python training_faults.py eager|compiled
    RANK=0|1 python training_faults.py ranks STORE

With ``ranks``, calls fail on the first of two; each failure has a process group of its own.  A step copies a
batch, computes on two streams, and updates by AdamW.  Of each entry: the calls that a step makes, how many
failures were told, and how many did not matter; the errors, by the first line with numbers as N.  After each,
without faults, the same step from the same weights must give what it gave at first.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import opsmith

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sim_driver import SimDriver

ENTRIES = (
    "allocate copy fill stream_query stream_synchronize stream_host_function event_create event_record "
    "event_query event_synchronize stream_wait_event pinned_allocate".split()
)


class Training:
    """A model with its state at the beginning, to which each step goes back."""

    def __init__(self, mode: str) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 8))
        self.model.to("sim")
        self.first = {name: value.cpu().clone() for name, value in self.model.state_dict().items()}
        self.batch = torch.randn(32, 64)
        self.wide = torch.ones(1 << 20, device="sim")  # wide enough to be queued
        self.side = torch.Stream(device="sim")
        self.called: Callable[[Tensor], Tensor] = self.model
        if mode == "compiled":
            self.called = torch.compile(self.model)
        for _ in range(3):  # compiles, and fills caches
            self.expected = self.step()

    def step(self) -> list[Any]:
        """The loss and the weights after one step."""
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(self.first[name])
        self.model.zero_grad()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        batch = self.batch.pin_memory().to("sim", non_blocking=True)
        with self.side:
            scale = self.wide * 2
        torch.accelerator.current_stream().wait_stream(self.side)
        loss = self.called(batch).square().mean() * scale[:1]
        loss.backward()
        optimizer.step()
        return [loss.item(), *(value.tolist() for value in self.model.state_dict().values())]


def fail_in_turn(
    driver: SimDriver, group: Callable[[str], AbstractContextManager[Training]], entry: str
) -> dict[str, Any]:
    """Repeats the step with one call more before the one that fails, until it makes no more of them.

    ``group`` gives what is to be trained, for the name of a fault.
    """
    told: Counter[str] = Counter()
    for before in range(10_000):
        fault = f"{entry}:{before}"
        with group(fault) as training:
            driver.inject("slow", 100)  # so that there is something to wait for
            driver.inject(fault)
            error = None
            try:
                result = training.step()
            except Exception as raised:
                line = re.sub(r"\d+", "N", str(raised).splitlines()[0])
                error = f"{type(raised).__name__}: {line}"
            met = driver.calls_of(fault)
            driver.clear_faults()
            torch.accelerator.synchronize()
        assert error is not None or result == training.expected, fault
        if met <= before:
            assert error is None, (fault, error)
            return {"calls": before, "told": dict(told), "harmless": before - told.total()}
        if error is not None:
            told[error] += 1
        with group(f"{fault}, again") as training:
            assert training.step() == training.expected, fault
    raise AssertionError(f"a step makes more than 10,000 calls of {entry}")


@contextmanager
def among_ranks(training: Training, store: dist.Store, rank: int, name: str) -> Iterator[Training]:
    """A step of a new process group, whose data are the same on both ranks."""
    dist.init_process_group(
        store=dist.PrefixStore(name, store), rank=rank, world_size=2, timeout=timedelta(seconds=20)
    )
    training.called = nn.parallel.DistributedDataParallel(training.model)
    try:
        yield training
    finally:
        training.called = training.model
        dist.destroy_process_group()  # the other rank is told, where it waits


def follow(training: Training, store: dist.Store) -> Counter[str]:
    """The second rank's part: the same steps without faults, and how often it was told of one."""
    told: Counter[str] = Counter()
    for step in itertools.count():
        name = store.get(f"step {step}").decode()
        if not name:
            break
        with among_ranks(training, store, 1, name):
            try:
                assert training.step() == training.expected, name
            except RuntimeError as error:
                told[type(error).__name__] += 1
    return told


def main(mode: str, path: str = "") -> None:
    backend = opsmith.load("sim")
    torch.set_num_threads(1)
    driver = SimDriver(backend.built.driver)
    training = Training(mode)
    if mode != "ranks":
        found = {
            entry: fail_in_turn(driver, lambda _: nullcontext(training), entry) for entry in ENTRIES
        }
    elif int(os.environ["RANK"]) == 1:
        found = {"told": follow(training, dist.FileStore(path, 2))}
    else:
        store = dist.FileStore(path, 2)
        steps = itertools.count()

        def led(name: str) -> AbstractContextManager[Training]:
            store.set(f"step {next(steps)}", name)
            return among_ranks(training, store, 0, name)

        found = {entry: fail_in_turn(driver, led, entry) for entry in ENTRIES}
        store.set(f"step {next(steps)}", "")
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
