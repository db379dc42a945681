"""Drivers that are classes in Python: as a table of C, in PyTorch, and what is wrong with them."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

import fork_server
import needs
from opsmith.build.driver_library import build_driver
from opsmith.description import PythonDriver, python_driver_of
from opsmith.driver import AddressRange, InvalidArgument, OutOfMemory, host_bytes
from opsmith.errors import Location
from opsmith.vendor.driver_check.checks import CHECKS
from opsmith.vendor.driver_check.model import Verdict
from opsmith.vendor.driver_check.running import Target, check_driver, check_one

HERE = Path(__file__).parent
Describe = Callable[[str], Path]

# The smallest driver.
CHIP = """
import numpy as np

import opsmith.driver
from opsmith.driver import HOST, AddressRange, DeviceProperties, Driver, host_bytes


class Chip(Driver):
    name = "chip"

    def __init__(self):
        self.memory = np.zeros(1 << 26, np.uint8)
        self.addresses = AddressRange(len(self.memory))

    def device_properties(self, device):
        return DeviceProperties("chip in numpy", total_memory=len(self.memory))

    def device_memory(self, device):
        return len(self.memory) - self.addresses.live_bytes, len(self.memory)

    def allocate(self, device, nbytes):
        return self.addresses.allocate(nbytes)

    def release(self, device, address):
        self.addresses.release(address)

    def at(self, address, device, nbytes):
        if device == HOST:
            return np.frombuffer(host_bytes(address, nbytes), np.uint8)
        offset = self.addresses.offset(address, nbytes)
        return self.memory[offset : offset + nbytes]

    def copy(self, destination, destination_device, source, source_device, nbytes, stream):
        to = self.at(destination, destination_device, nbytes)
        to[:] = self.at(source, source_device, nbytes)

    def fill(self, device, destination, value, nbytes, stream):
        self.at(destination, device, nbytes)[:] = value
"""


@pytest.fixture(scope="session")
def library() -> Path:
    """The library that connects C to a driver class in Python."""
    named = PythonDriver(HERE / "queued_chip.py", "QueuedChip")
    return build_driver("python", python_driver_of(named, Location(HERE), host_window=True))


@pytest.fixture
def chip(tmp_path: Path) -> Describe:
    """Writes a backend ``chip`` whose driver is ``CHIP`` with more text; returns its ``backend.yaml``."""

    def write(more: str = "") -> Path:
        (tmp_path / "driver.py").write_text(CHIP + more)
        backend = tmp_path / "backend.yaml"
        backend.write_text(
            'backend: chip\ndriver: {python: "driver.py:Chip", host_window: off}\nlibraries: []\n'
        )
        return backend

    return write


def run(backend: Path, script: str, **settings: str) -> subprocess.CompletedProcess[str]:
    program = f"import opsmith\nopsmith.load({str(backend)!r})\nimport torch\n{dedent(script)}"
    return fork_server.run(
        [sys.executable, "-c", program], env={**os.environ, **settings}, timeout=300
    )


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr[done.stderr.rindex("opsmith.errors.") :].strip()


# ---- the contract ----


# In the default run what each set of optional entries is for.
BY_DAY = frozenset(
    "entries,ordinals out of range,order on created streams,query tells of pending work,host functions,"
    "streams wait for events,pinned copies,window contents,nested ranges,"
    "imported contents,recorded work,recorded streams,threads at once".split(",")
)


@pytest.mark.parametrize("checks", ["some", pytest.param("all", marks=pytest.mark.nightly)])
def test_a_driver_with_everything_optional_passes(checks: str, library: Path) -> None:
    target = Target(library, python=PythonDriver(HERE / "queued_chip.py", "QueuedChip"))
    chosen = [check for check in CHECKS if checks == "all" or check.name in BY_DAY]
    report = check_driver(target, chosen)
    assert [each for each in report.findings if each.verdict is not Verdict.PASSED] == []
    assert report.driver == "queued"


def test_a_driver_with_nothing_optional(library: Path, tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(CHIP)
    target = Target(library, python=PythonDriver(tmp_path / "driver.py", "Chip"))
    names = ("ordinals out of range", "out of memory", "threads at once", "default streams")
    checks = [check for check in CHECKS if check.name in names]
    report = check_driver(target, checks)
    assert [each.verdict for each in report.findings] == [Verdict.PASSED] * 5
    (events,) = (check for check in CHECKS if check.name == "elapsed time")
    found = check_one(events, target)
    assert found.verdict is Verdict.SKIPPED
    assert found.happened.startswith("the driver has no events: ")


@pytest.mark.parametrize(
    ("statement", "check", "text"),
    [
        ("return 17", "allocations", "17 is no multiple"),
        ("return None", "allocations", "TypeError: `allocate` returned None, not int"),
        ("return 0", "allocations", "ValueError: `allocate` returned 0, which is no address"),
        ("raise KeyError('page 7')", "allocations", "OPSMITH_FAILED: KeyError: 'page 7' (driver.py:41)"),
        ("raise MemoryError", "allocations", "OPSMITH_OUT_OF_MEMORY: MemoryError"),
        ("raise opsmith.driver.DeviceLost('it\\nburns')", "fills", "OPSMITH_DEVICE_LOST: it"),
        ("import os; os.abort()", "fills", "ended by signal SIGABRT in `allocate`"),
        ("while True: pass", "fills", "`allocate` did not return within 2 s"),
    ],
)  # fmt: skip
def test_what_a_method_does_wrong(
    statement: str, check: str, text: str, library: Path, tmp_path: Path
) -> None:
    wrong = f"\n    def allocate(self, device, nbytes):\n        {statement}\n"
    (tmp_path / "driver.py").write_text(CHIP + wrong)
    (chosen,) = (each for each in CHECKS if each.name == check)
    target = Target(library, python=PythonDriver(tmp_path / "driver.py", "Chip"))
    found = check_one(chosen, target, seconds=2 if "while" in statement else 60)
    assert found.verdict is Verdict.FAILED
    if statement == "return 17":
        assert (found.expected, found.happened) == (
            "a multiple of 64",
            "1 bytes were given at 0x11",
        )
    else:
        assert text in found.happened


# ---- in PyTorch ----


def test_pytorch_on_a_driver_in_python(chip: Describe) -> None:
    done = run(
        chip(),
        """
        import threading
        x = torch.arange(6.0, device="chip").reshape(2, 3).requires_grad_()
        (x @ x.T).relu().sum().backward()
        print(x.grad.tolist(), torch.chip.get_device_properties(0).name)

        def work(n, results=[]):
            y = torch.full((1000,), float(n), device="chip", requires_grad=True)
            for _ in range(20):
                y.grad = None
                (y * y).sum().backward()
            results.append((n, y.grad.sum().item()))
            return results

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(sorted(work(8)))
        kept = x * 2  # alive when the interpreter ends
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[[6.0, 10.0, 14.0], [6.0, 10.0, 14.0]] chip in numpy",
        str([(n, n * 2000.0) for n in range(9)]),
    ]


def test_errors_keep_their_kind_and_text(chip: Describe) -> None:
    backend = chip(
        """

class Checked(Chip):
    broken = False

    def copy(self, *arguments):
        if Checked.broken:
            raise ZeroDivisionError("in the\\ndriver")
        super().copy(*arguments)


Chip = Checked
"""
    )
    done = run(
        backend,
        """
        import sys
        x = torch.ones(3).to("chip")
        (driver,) = (m for name, m in sys.modules.items() if name.startswith("opsmith_file_"))
        driver.Checked.broken = True
        try:
            x.cpu()
        except torch.AcceleratorError as error:
            print(error)
        driver.Checked.broken = False
        print(x.tolist())
        try:
            torch.empty(1 << 30, device="chip")
        except torch.OutOfMemoryError as error:
            print(str(error).partition("The driver says: ")[2])
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "could not copy a tensor to the host on chip:0: ZeroDivisionError: in the driver (driver.py:46) "
        "(OPSMITH_FAILED). "
        "The device is still usable.",
        "[1.0, 1.0, 1.0]",
        "4294967296 bytes do not fit: 65011712 of 67108864 are free",
    ]


@pytest.fixture
def queued(tmp_path: Path) -> Path:
    """The description of a backend on queued_chip.py."""
    backend = tmp_path / "backend.yaml"
    backend.write_text(
        f'backend: queued\ndriver: {{python: "{HERE}/queued_chip.py:QueuedChip"}}\nlibraries: []\n'
    )
    return backend


@pytest.mark.nightly
@needs.feature("GRAPHS")
def test_graphs_of_a_driver_in_python(queued: Path) -> None:
    done = run(
        queued,
        """
        x, y = torch.ones(3, device="queued"), torch.zeros(3, device="queued")
        graph = torch.accelerator.Graph()
        with graph:
            y.copy_(x)
        print(y.tolist())
        x.fill_(5)
        graph.replay()
        print(y.tolist())
        """,
    )
    assert (done.returncode, done.stdout) == (0, "[0.0, 0.0, 0.0]\n[5.0, 5.0, 5.0]\n"), done.stderr


@pytest.mark.nightly
def test_memory_of_a_driver_in_python_is_shared(queued: Path) -> None:
    done = run(
        queued,
        """
        from multiprocessing import get_context

        x = torch.zeros(3, device="queued:1")
        process = get_context("spawn").Process(target=torch.Tensor.fill_, args=(x[1:], 7), daemon=True)
        process.start()
        process.join(120)
        torch.queued.ipc_collect()
        print(process.exitcode, x.tolist())
        del x, process
        print(torch.accelerator.memory_allocated(1))
        """,
    )
    assert (done.returncode, done.stdout) == (0, "0 [0.0, 7.0, 7.0]\n0\n"), done.stderr


def test_import_torch_brings_a_driver_in_python(chip: Describe) -> None:
    backend = chip()
    run(backend, "")  # built here
    script = "import torch\nprint(torch.ones(2, device='chip').tolist())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OPSMITH_AUTOLOAD": str(backend), "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "[1.0, 1.0]\n"), done.stderr


def test_a_forked_child_neither_calls_the_driver_nor_waits(chip: Describe) -> None:
    done = run(
        chip(),
        """
        import os
        x = torch.ones(3, device="chip")
        child = os.fork()
        if child == 0:
            try:
                x + 1
            except RuntimeError as error:
                print(error, flush=True)
            raise SystemExit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + 1).tolist())
        """,
    )
    assert done.stdout.splitlines() == [
        "Cannot re-initialize chip in forked subprocess. To use chip with multiprocessing, you must use the "
        "'spawn' start method: torch.multiprocessing.set_start_method(\"spawn\")",
        "7 [2.0, 2.0, 2.0]",
    ], done.stderr


# ---- what cannot be a driver ----


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("\n    fill = Driver.fill\n", "the driver `Chip` has no `fill`, which is required"),
        (
            "\n    def event_create(self, device, timing): pass\n",
            "the driver `Chip` has 1 of the 7 methods for events: event_destroy, event_record, event_query, "
            "event_synchronize, event_elapsed, stream_wait_event are missing",
        ),
        (
            "\n    def stream_host_function(self, stream, function): function()\n",
            "the driver `Chip` has `stream_host_function`, but no streams",
        ),
        (
            "\n    def __init__(self): raise OSError('no board')\n",
            "the driver `Chip` cannot be made: OSError: no board",
        ),
    ],
)
def test_a_class_that_is_not_enough(chip: Describe, more: str, message: str) -> None:
    backend = chip(more)
    text = error_of(run(backend, ""))
    assert text.startswith(
        f"opsmith.errors.DriverInvalid: {backend.parent}/driver.py:8: {message}\n"
    )


def test_a_class_that_is_not_there(chip: Describe) -> None:
    backend = chip()
    (backend.parent / "driver.py").write_text(
        "from opsmith.driver import Driver\nclass Chop(Driver): pass\n"
    )
    assert error_of(run(backend, "")) == (
        f"opsmith.errors.DriverInvalid: {backend}:2:1: `{backend.parent}/driver.py` has no class `Chip`; its "
        "drivers are Chop\n  remedy: write class Chip(opsmith.driver.Driver), or name another"
    )


def test_a_class_of_another_kind(chip: Describe) -> None:
    backend = chip()
    (backend.parent / "driver.py").write_text("class Chip: pass\n")
    assert (
        f"`{backend.parent}/driver.py` has a `Chip`, which is no class of opsmith.driver.Driver's kind\n"
        in error_of(run(backend, ""))
    )


def test_a_file_that_cannot_be_imported(chip: Describe) -> None:
    backend = chip()
    (backend.parent / "driver.py").write_text("import nothing_of_that_name\n")
    assert error_of(run(backend, "")).startswith(
        f"opsmith.errors.DriverInvalid: {backend}:2:1: `{backend.parent}/driver.py` cannot be imported: "
        "ModuleNotFoundError: No module named 'nothing_of_that_name'"
    )


# ---- addresses ----


def test_addresses_are_given_out_again_and_never_twice() -> None:
    addresses = AddressRange(1000, alignment=128)
    first, second, third = (addresses.allocate(100) for _ in range(3))
    assert first == addresses.start and first % 128 == 0
    assert (second - first, third - second) == (128, 128)
    addresses.release(second)
    assert addresses.allocate(128) == second
    assert addresses.live_bytes == 328
    assert addresses.offset(third + 99, 1) == 355
    with pytest.raises(
        InvalidArgument, match=r"2 bytes at .* do not lie in an allocation of the device"
    ):
        addresses.offset(third + 99, 2)
    with pytest.raises(InvalidArgument, match="is not the start of a live allocation"):
        addresses.release(first + 1)
    with pytest.raises(OutOfMemory, match=r"^700 bytes do not fit: 672 of 1000 are free$"):
        addresses.allocate(700)
    with pytest.raises(InvalidArgument, match="are no range of addresses"):
        AddressRange(1000, alignment=3)


def test_threads_share_addresses() -> None:
    addresses = AddressRange(1 << 20)
    given: list[int] = []

    def work() -> None:
        mine = [addresses.allocate(64) for _ in range(200)]
        given.extend(mine)
        for address in mine[::2]:
            addresses.release(address)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert addresses.live_bytes == 8 * 100 * 64
    assert all(a != b for a, b in itertools.pairwise(sorted(addresses._offsets)))


def test_the_host_cannot_touch_an_address_of_the_device() -> None:
    script = """
        import ctypes
        from opsmith.driver import AddressRange
        ctypes.string_at(AddressRange(4096).allocate(1), 1)
    """
    done = subprocess.run([sys.executable, "-c", dedent(script)])
    assert done.returncode == -signal.SIGSEGV


def test_host_bytes_are_the_hosts() -> None:
    memory = ctypes.create_string_buffer(b"abcdef")
    view = host_bytes(ctypes.addressof(memory) + 1, 3)
    assert bytes(view) == b"bcd"
    view[0] = ord("X")
    assert memory.raw[:6] == b"aXcdef"
