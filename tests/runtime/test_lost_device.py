"""A device that is lost stays lost: what needs it raises what the first call raised, and all else goes on.

Each test has a process of its own, which the loss is for.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import fork_server

pytestmark = pytest.mark.compiles

TESTS = Path(__file__).parents[1]
FALLBACK = TESTS / "runtime" / "fallback_backend"
CHIP = TESTS / "runtime" / "faulty_backend" / "backend.yaml"
REMEDY = "The device and its tensors are gone: restart the process and continue from a checkpoint."

HEAD = """
import gc, sys
sys.path[:0] = [{tests!r}, {fallback!r}]
import opsmith, torch
from sim_driver import SimDriver
driver = SimDriver(opsmith.load({backend!r}).built.driver)

def failure(call):
    try:
        call()
    except torch.AcceleratorError as error:
        return str(error)
    return "nothing was raised"

def failures(calls):
    return [failure(call) for call in calls]
"""


def run(script: str, backend: str = "sim", **settings: str) -> list[str]:
    """The lines that the script prints, whose process ends well and says nothing else."""
    head = HEAD.format(tests=str(TESTS), fallback=str(FALLBACK), backend=str(backend))
    done = fork_server.run(
        [sys.executable, "-c", head + dedent(script)], env={**os.environ, **settings}, timeout=900
    )
    told = [line for line in done.stderr.splitlines() if not line.startswith("opsmith: building")]
    assert (done.returncode, told) == (0, []), done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("window", ["on", "off"])
def test_each_later_call_raises_what_the_first_one_raised(window: str) -> None:
    first, *others = run(
        """
        w, other = (torch.ones(3, device=f"sim:{i}", requires_grad=True) for i in (1, 0))
        y = (w * w).sum()
        stream, event = torch.Stream("sim:1"), torch.Event("sim:1")
        event.record(stream)
        pinned = torch.ones(3).pin_memory()
        driver.inject("device_lost:1")
        x = w.detach()
        print(failure(lambda: x + 1))
        driver.clear_faults()  # the driver would go on; PyTorch's device does not
        calls = [
            lambda: torch.empty(3, device="sim:1"),
            lambda: torch.empty(1 << 24, device="sim:1"),
            lambda: x + 1,
            lambda: x.add_(1),
            lambda: x.tolist(),
            lambda: x.sum().item(),
            lambda: x.to("sim:0"),
            lambda: other.to("sim:1"),
            lambda: x.copy_(pinned, non_blocking=True),
            lambda: pinned.copy_(x, non_blocking=True),
            lambda: y.backward(),
            lambda: x.erfinv(),
            lambda: stream.synchronize(),
            lambda: event.record(stream),
            lambda: torch.accelerator.synchronize(1),
            lambda: torch.accelerator.get_memory_info(1),
        ]
        print(*dict.fromkeys(failures(calls)), sep="\\n")
        print((other * 2).sum().item())
        del w, x, y, calls, event, pinned
        gc.collect()
        torch.accelerator.empty_cache()
        print(torch.accelerator.memory_allocated(1), torch.accelerator.memory_reserved(1))
        """,
        OPSMITH_HOST_WINDOW=window,
    )
    assert first.startswith("could not ")
    assert " on sim:1 for aten::add" in first
    assert first.endswith(
        f": device 1 is lost (injected fault: device_lost:1) (OPSMITH_DEVICE_LOST). {REMEDY}"
    )
    assert others == [first, "6.0", "0 0"]


def test_a_device_is_lost_at_any_call_of_a_training_step() -> None:
    lines = run(
        """
        from torch import nn

        def step(device):
            torch.manual_seed(0)
            network = nn.Sequential(
                nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(32, 3)
            ).to(device)
            optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
            network(torch.rand(4, 1, 6, 6).to(device)).sum().backward()
            optimizer.step()
            return next(network.parameters()).sum().item()

        wanted = step("sim:0")
        for device in range(1, 8):
            torch.zeros(1, device=f"sim:{device}")
            driver.inject("slow", device % 2)
            driver.inject(f"device_lost:{device}:{2 ** device // 2}")
            told = failures([lambda: step(f"sim:{device}")] * 3)
            # A step that waits longer calls more often: the last loss may be in the second step.
            first, second, *_ = [each for each in told if each != "nothing was raised"]
            gc.collect()
            is_told = f" on sim:{device}" in first and first.startswith(second)
            print(is_told, torch.accelerator.memory_allocated(device))
            driver.clear_faults()
            assert step("sim:0") == wanted
        """,
        OPSMITH_SIM_DEVICES="8",
        OPSMITH_LAUNCH_BLOCKING="0",
    )
    assert lines == ["True 0"] * 7


def test_a_device_that_was_lost_before_it_was_used_holds_nothing() -> None:
    lines = run(
        """
        x = torch.ones(3, device="sim:0")
        driver.inject("device_lost:1")
        print(torch.accelerator.memory_allocated(1), torch.sim.max_memory_reserved(1))
        torch.accelerator.reset_peak_memory_stats(1)
        torch.accelerator.empty_cache()
        print(len(torch.sim.memory_snapshot()), torch.sim.memory_summary(1).splitlines()[0])
        print(*failures([lambda: torch.ones(3, device="sim:1")] * 2), sep="\\n")
        print(x.sum().item(), torch.accelerator.memory_allocated(1))
        """
    )
    assert lines[0] == "0 0"
    assert lines[1].startswith("1 memory of device 1: ")
    assert lines[2] == lines[3]
    assert (
        f": device 1 is lost (injected fault: device_lost:1) (OPSMITH_DEVICE_LOST). {REMEDY}"
        in lines[2]
    )
    assert lines[4] == "3.0 0"


@pytest.mark.parametrize("mode", ["zero_copy", "copying"])
def test_the_fallback_notices_before_anything_is_touched(mode: str) -> None:
    lines = run(
        """
        import os
        os.environ["OPSMITH_TEST_BACKEND"] = MODE
        from test_faults import CALLS, device_twins, metadata

        given = {name: device_twins(make()) for name, (make, _) in CALLS.items()}
        before = {name: [metadata(each) for each in arguments] for name, arguments in given.items()}
        driver.inject("device_lost:0")
        print(*{failure(lambda: CALLS[name][1](*arguments)) for name, arguments in given.items()})
        print({name: [metadata(each) for each in arguments] for name, arguments in given.items()} == before)
        """.replace("MODE", repr(mode)),
        str(FALLBACK / f"{mode}.yaml"),
    )
    assert len(lines) == 2
    assert lines[0].endswith(
        f"device 0 is lost (injected fault: device_lost:0) (OPSMITH_DEVICE_LOST). {REMEDY}"
    )
    assert lines[1] == "True"


@pytest.mark.parametrize(
    "entry", ["allocate", "copy", "stream_synchronize", "event_record", "pinned_allocate"]
)
def test_one_entry_that_says_so_is_enough(entry: str) -> None:
    """The device stays lost, whatever the driver says afterwards."""
    lines = run(
        """
        import ctypes
        chip = ctypes.CDLL(str(opsmith.load(BACKEND).built.driver))
        x = torch.ones(3, device="chip")
        torch.accelerator.synchronize()

        def work():
            torch.Event("chip").record()
            torch.ones(1 << 20, device="chip").zero_()
            host = torch.ones(3).pin_memory()
            host.copy_(x, non_blocking=True)
            torch.accelerator.synchronize()

        chip.chip_fail(b"ENTRY", 0, 5, 0)
        first, *others = failures([work, work, x.clone, x.cpu, torch.accelerator.synchronize])
        print(first)
        print({first} == set(others))
        """.replace("BACKEND", repr(str(CHIP))).replace("ENTRY", entry),
        str(CHIP),
    )
    assert f": injected into {entry} (OPSMITH_DEVICE_LOST). {REMEDY}" in lines[0]
    assert lines[1:] == ["True"]


def test_a_profile_leaves_out_what_the_device_did_not_tell() -> None:
    done = run(
        """
        import os, tempfile
        from torch.profiler import ProfilerActivity, profile
        x, y = torch.rand(8, device="sim:0"), torch.rand(8, device="sim:1")
        with tempfile.TemporaryFile("w+") as told:
            stderr = os.dup(2)
            os.dup2(told.fileno(), 2)
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
                x.sin()
                y.clone()
                driver.inject("device_lost:1")
            events = {event.name for event in profiled.events()}
            os.dup2(stderr, 2)
            told.seek(0)
            print(told.read().strip())
        print("fallback of aten::sin" in events, "Memcpy DtoD" in events)
        """,
        str(FALLBACK / "zero_copy.yaml"),
    )
    told = "torch.profiler leaves out work of sim whose time the device did not tell: could not "
    assert any(told in line and "device 1 is lost" in line for line in done)
    assert done[-1] == "True False"
