"""A driver that says OK and lies, or leaves out what it may, ends in an exception or works: never a crash.

Each case has a process of its own, because the driver decides when it is opened.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import fork_server
from opsmith.build.backend import build_backend

BACKEND = Path(__file__).with_name("backend.yaml")
WINDOWED = Path(__file__).with_name("windowed.yaml")

WORK = """
import torch
x = torch.arange(6.0, device="chip").reshape(2, 3)
y = torch.empty_like(x)
stream = torch.Stream(device="chip")
with stream:
    y.copy_(x)
torch.accelerator.current_stream().wait_stream(stream)
assert (x + y).sum().item() == 30
event = torch.Event("chip")
event.record()
event.synchronize()
assert event.query()
host = x.cpu().pin_memory()
x.copy_(host, non_blocking=True)
torch.accelerator.synchronize()
assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
print("works")
"""

# A driver's lie (chip.cpp), and the end of the output that comes of it.
LIES = {
    "NULL table": "`opsmith_get_driver` of … returned NULL",
    "version 9": "was built with version 9 of opsmith_driver.h (a table of 304 bytes), but this opsmith",
    "short table": "(a table of 296 bytes), but this opsmith has version 1 (304 bytes)",
    "no copy": "leaves the required entry `copy` NULL",
    "half the events": "has 6 of the 7 entries for events (event_* and stream_wait_event)",
    "half of pinned memory": "has 2 of the 3 entries for pinned memory (pinned_*)",
    "half of sharing": "has 2 of the 3 entries for memory that is shared between processes (memory_*)",
    "no devices": "chip:0 does not exist: the driver found no device",
    "NULL allocation": "returned OPSMITH_OK and NULL from `allocate` on chip:0. This is a mistake of the "
    "driver, which `opsmith driver check` finds: report it to its authors.",
    "NULL default stream": 'torch.AcceleratorError: the driver "chip" returned OPSMITH_OK and NULL from '
    "`default_stream` on chip:0.",
    "NULL stream": "returned OPSMITH_OK and NULL from `stream_create` on chip:0.",
    "NULL event": "returned OPSMITH_OK and NULL from `event_create` on chip:0.",
    "NULL pinned memory": "returned OPSMITH_OK and NULL from `pinned_allocate` on chip:0.",
    "more free than total": "works",
    "constant memory": "works",
    "no name": "works",
    "always idle": "",  # values from before their turn: nobody can tell
    "never idle": "",
    "many default streams": "works",
}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Builds both descriptions, or the first of their tests would print that it does."""
    for description in (BACKEND, WINDOWED):
        build_backend(description)


def run(script: str, backend: Path = BACKEND, **settings: str) -> tuple[int, str]:
    program = f"import opsmith\nopsmith.load({str(backend)!r})\n{dedent(script)}"
    done = fork_server.run(
        [sys.executable, "-c", program], env={**os.environ, **settings}, timeout=100
    )
    return done.returncode, done.stdout + done.stderr


def ends_with(output: str, text: str) -> bool:
    first, _, last = text.partition("…")
    return first in output and last in output


@pytest.mark.parametrize("lie", LIES)
def test_a_driver_that_lies(lie: str) -> None:
    status, output = run(WORK, CHIP_LIE=lie)
    assert status in (0, 1), output  # no signal
    assert ends_with(output, LIES[lie]), output
    if LIES[lie] == "works":
        assert status == 0


def test_a_failure_without_a_text() -> None:
    script = """
        import torch
        try:
            torch.empty(1 << 40, device="chip")
        except torch.OutOfMemoryError as error:
            print(error)
    """
    status, output = run(script, CHIP_LIE="no error text")
    assert status == 0, output
    assert output.startswith("chip:0 out of memory. Tried to allocate 4096.00 GiB:")
    assert output.endswith("The driver says: the driver does not say why\n")


@pytest.mark.parametrize(
    "left_out",
    ["events", "pinned", "host_function", "events pinned", "events pinned host_function"],
)
def test_optional_entries_that_are_left_out(left_out: str) -> None:
    script = WORK
    if "pinned" in left_out:
        script = script.replace(".pin_memory()", "") + dedent("""
            try:
                x.cpu().pin_memory()
            except NotImplementedError as error:
                print(error)
            import warnings
            from torch.utils.data import DataLoader
            for workers in (0, 1):
                loader = DataLoader(torch.arange(4), batch_size=2, pin_memory=True, num_workers=workers)
                with warnings.catch_warnings(record=True) as told:
                    batches = [(batch.tolist(), batch.is_pinned()) for batch in loader]
                assert batches == [([0, 1], False), ([2, 3], False)] and loader.pin_memory
                print(*(each.message for each in told))
        """)
    if "events" in left_out:
        script += dedent("""
            first, last = (torch.Event("chip", enable_timing=True) for _ in range(2))
            first.record()
            last.record()
            try:
                first.elapsed_time(last)
            except NotImplementedError as error:
                print(error)
        """)
    status, output = run(script, CHIP_WITHOUT=left_out)
    assert status == 0, output
    assert "works" in output
    assert ('the driver "chip" of the chip device offers no pinned host memory' in output) == (
        "pinned" in left_out
    )
    ignored = (
        "'pin_memory' is ignored: the driver of the chip device offers no pinned host memory\n"
    )
    assert output.count(ignored) == (2 if "pinned" in left_out else 0)
    assert ('the driver "chip" of the chip device has no events' in output) == (
        "events" in left_out
    )


def test_a_driver_that_exports_no_memory_refuses_to_share_it() -> None:
    script = """
        import torch
        from multiprocessing import get_context
        from torch import nn

        spawn = get_context("spawn")
        receiver, sender = spawn.Pipe(duplex=False)
        queues = [spawn.Queue(), spawn.JoinableQueue()]
        x, linear = torch.ones(2, device="chip"), nn.Linear(1, 1).to("chip")
        calls = [x.share_memory_, x.untyped_storage().share_memory_, linear.share_memory]
        sent = [x, {"batch": [torch.ones(1), x]}, linear, nn.Parameter(x), x.untyped_storage()]
        for put in (sender.send, *(queue.put for queue in queues)):
            calls += [lambda put=put, each=each: put(each) for each in sent]
        refused = set()
        for call in calls:
            try:
                call()
                print("accepted")
            except opsmith.errors.NotShareable as error:
                refused.add(str(error))
        print(*refused)
        sender.send("the next one")
        assert receiver.recv() == "the next one"
        for queue in queues:
            queue.put("the next one")
            assert queue.get(timeout=60) == "the next one"
        assert not x.is_shared()
        torch.chip.ipc_collect()
    """
    status, output = run(script, CHIP_WITHOUT="sharing")
    assert (status, output) == (
        0,
        "memory of chip:0 cannot be shared with another process: the driver has no way to export it\n"
        "  remedy: hand over a copy in the CPU's memory, .cpu(), and move it to the device there\n",
    )


@pytest.mark.parametrize(
    ("lie", "ends", "text"),
    [
        ("", "0 [0.0, 7.0, 7.0]", ""),
        (
            "NULL import",
            "1 [0.0, 0.0, 0.0]",
            "returned OPSMITH_OK and NULL from `memory_import` on chip:1.",
        ),
    ],
)
def test_memory_that_another_process_imports(lie: str, ends: str, text: str) -> None:
    script = """
        import torch
        from multiprocessing import get_context

        x = torch.zeros(3, device="chip:1")
        process = get_context("spawn").Process(target=torch.Tensor.fill_, args=(x[1:], 7), daemon=True)
        process.start()
        process.join(90)
        torch.chip.ipc_collect()
        print(process.exitcode, x.tolist())
        del x, process
        print(torch.accelerator.memory_allocated(1))
    """
    status, output = run(script, CHIP_LIE=lie)
    assert status == 0, output
    assert f"{ends}\n0\n" in output
    assert text in output


def test_a_window_that_is_promised_and_missing() -> None:
    status, output = run(WORK, WINDOWED, CHIP_WITHOUT="host_window")
    assert status == 1
    assert (
        "has no host window (its entry `host_window` is NULL), and the description counts on one"
        in output
    )
    assert "add `host_window: off` to `driver` there" in output


def test_a_window_that_shows_nothing() -> None:
    status, output = run(WORK, WINDOWED, CHIP_LIE="no window")
    assert status == 1
    assert (
        'RuntimeError: the driver "chip" has a host window, but none for the 2097152 bytes that it '
        "allocated on chip:0. Let `host_window` give their address, or say `host_window: off` in the "
        "description."
    ) in output


def test_a_driver_that_works_with_its_window() -> None:
    status, output = run(WORK, WINDOWED)
    assert (status, output) == (0, "works\n")
