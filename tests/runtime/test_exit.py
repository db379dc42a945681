"""Processes that end in the middle of something: with their own exit status, and nothing on stderr."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

TESTS = Path(__file__).parents[1]

HEAD = f"""
import atexit, builtins, sys, threading, time
sys.path.insert(0, {str(TESTS)!r})
import opsmith, torch
from sim_driver import SimDriver
loaded = opsmith.load("sim")
driver = SimDriver(loaded.built.driver)
x = torch.ones(1000, device="sim")
big = torch.ones(1 << 20, device="sim")

def threads(work):
    def loop():
        started.release()
        while True:
            work()
    started = threading.Semaphore(0)
    for _ in range(3):
        threading.Thread(target=loop, daemon=True).start()
        started.acquire()
"""

BUSY = 200_000  # microseconds of each task of a stream

# The end of a program, and its output.
ENDS = {
    "streams are busy": (
        f"""
        pinned = torch.empty(1 << 20).pin_memory()
        driver.inject("slow", {BUSY})
        pinned.copy_(big, non_blocking=True)
        torch.ones(1 << 20, device="sim:1").copy_(big, non_blocking=True)
        with torch.Stream("sim"):
            big.fill_(2)
            event = torch.Event("sim")
            event.record()
        torch.Stream("sim").wait_event(event)
        """,
        "",
    ),
    "operators are called in atexit": (
        f"""
        def last():
            w = torch.ones(3, device="sim", requires_grad=True)
            (w * w).sum().backward()
            driver.inject("slow", {BUSY})
            big.fill_(3)
            print(w.grad.tolist())
        atexit.register(last)
        """,
        "[2.0, 2.0, 2.0]\n",
    ),
    "tensors outlive the interpreter": (
        """
        class Keeper:
            def __init__(self):
                self.itself = self
                self.kept = [torch.ones(10, device="sim"), torch.Stream("sim"), torch.Event("sim")]
                self.kept[2].record()
            def __del__(self):
                self.kept[0] + 1
        builtins.kept, sys.modules["kept"], here = Keeper(), Keeper(), Keeper()
        local = threading.local()
        local.kept = torch.ones(10, device="sim")
        torch.sim.memory._record_memory_history()
        builtins.recorded = torch.ones(10, device="sim")
        """,
        "",
    ),
    "threads call operators": (
        """
        def step():
            w = torch.ones(100, 100, device="sim", requires_grad=True)
            w.register_hook(lambda gradient: gradient * 2)
            (w @ w).sum().backward()
            w.grad.sum().item()
        threads(lambda: x + 1)
        threads(step)
        time.sleep(0.1)
        """,
        "",
    ),
    "threads wait for the device": (
        """
        driver.inject("slow", 20_000)
        threads(lambda: (big.fill_(1), torch.accelerator.synchronize()))
        time.sleep(0.1)
        """,
        "",
    ),
    "queues hold tensors": (
        """
        from torch.multiprocessing import get_context
        spawn = get_context("spawn")
        read, unread, unsent = spawn.Queue(), spawn.Queue(), spawn.Queue()
        read.put(x)
        unread.put(x)
        received = read.get(timeout=60)
        unsent.put(big)
        """,
        "",
    ),
    "the device is lost": (
        f"""
        from torch.utils.data import DataLoader
        batches = iter(DataLoader(torch.arange(64.0), batch_size=8, pin_memory=True))
        pinned, event = next(batches).new_empty(1 << 20).pin_memory(), torch.Event("sim")
        driver.inject("slow", {BUSY})
        big.fill_(2)
        big.copy_(pinned, non_blocking=True)
        event.record()
        driver.inject("device_lost:0")
        def last():
            for call in (lambda: x + 1, event.synchronize, torch.accelerator.synchronize):
                try:
                    call()
                except torch.AcceleratorError as error:
                    print("OPSMITH_DEVICE_LOST" in str(error))
        atexit.register(last)
        """,
        "True\nTrue\nTrue\n",
    ),
    "an exit status is given": (
        f"""
        driver.inject("slow", {BUSY})
        big.fill_(1)
        print("three")
        sys.exit(3)
        """,
        "three\n",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_cleanly_while(end: str, sim: LoadedBackend) -> None:
    code, output = ENDS[end]
    done = subprocess.run(
        [sys.executable, "-c", HEAD + dedent(code)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
    )
    status = 3 if "sys.exit(3)" in code else 0
    assert (done.returncode, done.stdout, done.stderr) == (status, output, "")
