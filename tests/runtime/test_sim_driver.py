"""The sim driver alone, through its C table: no PyTorch in between."""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import opsmith
from opsmith.build.csrc import PUBLIC_HEADERS
from opsmith.build.toolchain import find_compiler
from opsmith.driver import HOST, DriverFailure, Status
from opsmith.driver.table import Handle, HostFunction, Properties, Table
from opsmith.vendor.driver_check.call_notes import CallNotes
from opsmith.vendor.driver_check.model import Verdict
from opsmith.vendor.driver_check.running import Target, check_driver
from sim_driver import SimDriver

PACKAGE = Path(opsmith.__file__).parent
SIM = PACKAGE / "drivers" / "sim"
TESTS = Path(__file__).parents[1]

MILLISECOND = 1000  # what `slow` counts in


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sim driver, compiled on its own."""
    path = tmp_path_factory.mktemp("sim") / "libsim.so"
    compiler = find_compiler(path.parent).command
    options = ["-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    sources = sorted(SIM.glob("*.cpp"))
    subprocess.run(
        [*compiler, *options, *warnings, "-I", PUBLIC_HEADERS, *sources, "-o", path], check=True
    )
    return path


@pytest.fixture
def driver(library: Path) -> Iterator[SimDriver]:
    """The driver, without faults; the test must release what it allocates on either device."""
    loaded = SimDriver(library)
    loaded.clear_faults()
    before = [loaded.statistics(device).live_bytes for device in range(2)]
    yield loaded
    loaded.clear_faults()
    assert [loaded.statistics(device).live_bytes for device in range(2)] == before


@pytest.fixture
def stream(driver: SimDriver) -> Iterator[int]:
    """A stream of device 0."""
    made = driver.stream()
    yield made
    driver.check("stream_destroy", made)


@pytest.fixture
def block(driver: SimDriver) -> Iterator[int]:
    """64 bytes of device 0."""
    made = driver.allocate(64)
    yield made
    driver.release(made)


def run_child(library: Path, code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` in another process, with the driver loaded as ``driver``."""
    head = f"import sys; sys.path.insert(0, {str(TESTS)!r})\nfrom sim_driver import *\n"
    head += f"from ctypes import *\ndriver = SimDriver({str(library)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", head + dedent(code)],
        capture_output=True,
        text=True,
        env=os.environ | settings,
        timeout=60,
    )


# ---- the contract ----


def test_the_header_is_plain_c(tmp_path: Path) -> None:
    source = tmp_path / "driver.c"
    source.write_text(
        '#include "opsmith_driver.h"\n#include "sim.h"\n'
        "const opsmith_driver *opsmith_get_driver(void) { return 0; }\n"
    )
    options = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-c"]
    compiler = [*find_compiler(tmp_path).command, "-x", "c"]
    command = [
        *compiler,
        *options,
        "-I",
        PUBLIC_HEADERS,
        "-I",
        SIM,
        source,
        "-o",
        tmp_path / "driver.o",
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stderr == ""


def test_the_table_is_complete(driver: SimDriver) -> None:
    assert driver.table.abi_version == 1
    assert driver.table.struct_size == ctypes.sizeof(Table)
    assert driver.table.name == b"sim"
    missing = [name for name, _ in Table._fields_ if not getattr(driver.table, name)]
    assert missing == []


def test_every_check_of_a_driver_passes(library: Path) -> None:
    report = check_driver(Target(library))
    assert [each for each in report.findings if each.verdict is not Verdict.PASSED] == []
    assert report.driver == "sim"


# Of each fault the checks that notice it.
NOTICED = {
    "allocate": {"allocations", "contents apart", "threads share"},
    "allocate:5": {"allocations", "memory used again"},
    "copy": {"copies from the host", "pageable copies", "copies leave nothing"},
    "copy:3": {"copies to the host", "copies between devices"},
    "fill": {"fills", "order on the default stream", "host functions", "events destroyed early"},
    "device_lost:1": {"device memory", "fills"},
}


@pytest.mark.parametrize("fault", NOTICED)
def test_checks_notice_an_injected_fault(fault: str, library: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_bytes(bytes(CallNotes.SIZE))
    result = run_child(
        library,
        f"""
        from pathlib import Path
        from opsmith.vendor.driver_check.checks import CHECKS
        from opsmith.vendor.driver_check.model import Broken
        from opsmith.vendor.driver_check.call_notes import CallNotes
        from opsmith.vendor.driver_check.subject import Opening, Subject
        subject = Subject(Opening({str(library)!r}, True), CallNotes(Path({str(notes)!r})))
        for check in CHECKS:
            if check.name in {NOTICED[fault]!r}:
                driver.clear_faults()
                driver.inject({fault!r})
                try:
                    check.run(subject)
                except (Broken, DriverFailure) as error:
                    print(check.name)
        """,
    )
    assert set(result.stdout.splitlines()) == NOTICED[fault], result.stderr


# ---- devices and settings ----


def test_two_devices_of_8_gib(driver: SimDriver) -> None:
    assert driver.get("device_count", ctypes.c_int) == 2
    free, total = ctypes.c_uint64(), ctypes.c_uint64()
    driver.check("device_memory", 1, ctypes.byref(free), ctypes.byref(total))
    assert (free.value, total.value) == (8 << 30, 8 << 30)
    properties = driver.get("device_properties", Properties, 1)
    assert properties.name == b"sim accelerator"
    assert (properties.total_memory, properties.alignment) == (8 << 30, 64)


def test_a_device_that_does_not_exist(driver: SimDriver) -> None:
    with pytest.raises(DriverFailure) as failure:
        driver.allocate(64, device=2)
    assert failure.value.status is Status.INVALID_ARGUMENT
    assert failure.value.text == "there is no device 2; there are 2"


def test_settings_change_devices_and_memory(library: Path) -> None:
    result = run_child(
        library,
        """
        print(driver.get("device_count", c_int))
        driver.release(driver.allocate(64 << 20))
        try:
            driver.allocate((64 << 20) + 1, 2)
        except DriverFailure as failure:
            print(failure)
        """,
        OPSMITH_SIM_DEVICES="3",
        OPSMITH_SIM_MEMORY="64MiB",
    )
    assert result.stdout.splitlines() == [
        "3",
        "OUT_OF_MEMORY: 67108865 bytes do not fit: 67108864 of 67108864 bytes are free on device 2",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        (
            "OPSMITH_SIM_DEVICES",
            "9",
            "OPSMITH_SIM_DEVICES is '9'; it must be an integer from 1 to 8",
        ),
        (
            "OPSMITH_SIM_MEMORY",
            "8 GB",
            "OPSMITH_SIM_MEMORY is '8 GB'; "
            "it must be a number of bytes up to 4 TiB, like 536870912 or 512MiB",
        ),
    ],
)
def test_a_bad_setting_is_named(library: Path, variable: str, value: str, text: str) -> None:
    code = 'print(driver.call("device_count", byref(c_int())).name, driver.last_error())'
    result = run_child(library, code, **{variable: value})
    assert result.stdout.strip() == f"FAILED {text}"


# ---- memory ----


def test_the_host_cannot_read_a_device_address(library: Path) -> None:
    result = run_child(library, "ctypes.string_at(driver.allocate(64), 1)")
    assert result.returncode == -signal.SIGSEGV


def test_the_host_cannot_write_a_device_address(library: Path) -> None:
    result = run_child(library, "ctypes.memset(driver.allocate(64), 1, 1)")
    assert result.returncode == -signal.SIGSEGV


def test_the_window_shows_the_same_bytes(driver: SimDriver) -> None:
    pointer = driver.allocate(1 << 20, device=1)
    window = driver.table.host_window(pointer)
    driver.write(pointer, b"written by copy", device=1)
    assert ctypes.string_at(window, 15) == b"written by copy"
    ctypes.memmove(window + 100, b"written by host", 15)
    assert driver.read(pointer + 100, 15, device=1) == b"written by host"
    assert driver.table.host_window(pointer + 100) == window + 100
    driver.release(pointer, device=1)


def test_other_addresses_have_no_window(driver: SimDriver) -> None:
    buffer = ctypes.create_string_buffer(8)
    assert driver.table.host_window(ctypes.addressof(buffer)) is None
    assert driver.table.host_window(None) is None


def test_blocks_are_aligned_and_disjoint(driver: SimDriver) -> None:
    sizes = [1, 63, 64, 65, 1000, 4096, 100_000, 1 << 20]
    blocks = [(driver.allocate(size), size) for size in sizes]
    assert all(start % 64 == 0 for start, _ in blocks)
    ordered = sorted(blocks)
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(ordered))
    for start, _ in blocks:
        driver.release(start)


def test_released_neighbours_become_one_block_again(driver: SimDriver) -> None:
    # 64 GiB of addresses lie behind 8 GiB of memory: without merging, 20 rounds would use them up.
    for _ in range(20):
        blocks = [driver.allocate(1 << 30) for _ in range(8)]
        for index in (1, 3, 5, 7, 0, 4, 2, 6):
            driver.release(blocks[index])
        whole = driver.allocate(8 << 30)
        assert whole == min(blocks)
        driver.release(whole)


def test_out_of_memory_is_exact_and_passes(driver: SimDriver) -> None:
    most = driver.allocate((8 << 30) - 64)
    with pytest.raises(DriverFailure) as failure:
        driver.allocate(65)
    assert failure.value.status is Status.OUT_OF_MEMORY
    assert failure.value.text == (
        "65 bytes do not fit: 64 of 8589934592 bytes are free on device 0"
    )
    last = driver.allocate(64)
    driver.release(most)
    driver.release(driver.allocate(65))
    driver.release(last)


def test_a_pointer_is_released_once(driver: SimDriver) -> None:
    pointer = driver.allocate(64)
    driver.release(pointer)
    for wrong, device in ((pointer, 0), (pointer + 64, 0), (pointer, 1)):
        with pytest.raises(DriverFailure, match=r"is not the start of a live allocation on device"):
            driver.release(wrong, device)


def test_memory_given_back_reads_as_zero_and_works_again(driver: SimDriver) -> None:
    # More than the driver keeps pages for, so that some blocks give theirs back.
    size = 256 << 20
    blocks = [driver.allocate(size) for _ in range(6)]
    for block in blocks:
        driver.write(block + size - 5, b"bytes")
    for block in blocks:
        driver.release(block)
    assert driver.statistics().kept_bytes <= (1 << 30)
    blocks = [driver.allocate(size) for _ in range(6)]
    for block in blocks:
        driver.write(block, b"again")
        assert driver.read(block, 5) == b"again"
    assert any(driver.read(block + size - 5, 5) == bytes(5) for block in blocks)
    for block in blocks:
        driver.release(block)


# ---- copies ----


@pytest.mark.parametrize("device", [0, 1])
def test_imported_memory_is_the_exporters(driver: SimDriver, device: int) -> None:
    blocks = [driver.allocate(100, device) for _ in range(3)]  # in the same page
    handles = [driver.exported(block, device) for block in blocks]
    before = driver.statistics(device).live_bytes, driver.memory(device)
    imported = [driver.imported(handle, device) for handle in handles]
    assert (driver.statistics(device).live_bytes, driver.memory(device)) == before
    assert len({*blocks, *imported}) == 6
    for number, (block, here) in enumerate(zip(blocks, imported, strict=True)):
        driver.write(block, bytes([number]) * 100, device)
        assert driver.read(here, 100, device) == bytes([number]) * 100
    window = driver.table.host_window(imported[1])
    ctypes.memset(window, 9, 100)
    assert [driver.read(block, 1, device)[0] for block in blocks] == [0, 9, 2]
    with pytest.raises(DriverFailure, match="is not the start of a live allocation"):
        driver.release(imported[0], device)
    for handle, here in zip(handles, imported, strict=True):
        os.close(handle.file)
        driver.check("memory_unimport", device, here)
        with pytest.raises(DriverFailure, match=f"is no imported memory of device {device}"):
            driver.check("memory_unimport", device, here)
    for block in blocks:
        driver.release(block, device)


def test_a_handle_that_is_none_is_refused(driver: SimDriver, block: int) -> None:
    with pytest.raises(DriverFailure, match="is not the start of a live allocation on device 0"):
        driver.exported(block + 64)
    handle = driver.exported(block)
    for offset, size in ((0, 0), (1 << 60, 64), (0, 1 << 60)):
        wrong = Handle.from_buffer_copy(handle)
        wrong.bytes[:16] = offset.to_bytes(8, "little") + size.to_bytes(8, "little")
        with pytest.raises(DriverFailure, match="the handle is none of memory_export"):
            driver.imported(wrong)
    os.close(handle.file)
    with pytest.raises(DriverFailure, match="the handle is none of memory_export"):
        driver.imported(handle)


def test_copies_between_host_and_devices(driver: SimDriver) -> None:
    data = random.Random(0).randbytes(3 << 20)
    first = driver.allocate(len(data), device=0)
    second = driver.allocate(len(data), device=1)
    driver.write(first, data)
    stream = driver.default_stream(1)
    driver.check("copy", second, 1, first, 0, len(data), stream)
    assert driver.read(second, len(data), device=1) == data
    driver.check("fill", 1, second, 0xAB, 1000, stream)
    assert driver.read(second, 1001, device=1) == b"\xab" * 1000 + data[1000:1001]
    driver.release(first, device=0)
    driver.release(second, device=1)


def test_mixed_up_addresses_are_refused(driver: SimDriver) -> None:
    pointer = driver.allocate(64)
    buffer = ctypes.create_string_buffer(64)
    stream = driver.default_stream(0)
    host = ctypes.addressof(buffer)
    cases = {
        (host, 0, pointer, 0): f"64 bytes at {host:#x} do not lie in the memory of device 0",
        (pointer, HOST, host, HOST): None,
        (pointer, 0, pointer, HOST): f"{pointer:#x} was given as a host address, "
        "but it is an address of device 0",
        (pointer, 1, pointer, 0): f"64 bytes at {pointer:#x} do not lie in the memory of device 1",
    }
    for (to, to_device, source, source_device), text in cases.items():
        with pytest.raises(DriverFailure) as failure:
            driver.check("copy", to, to_device, source, source_device, 64, stream)
        assert failure.value.status is Status.INVALID_ARGUMENT
        assert failure.value.text == (
            text or "the stream is of device 0, which takes no part in the copy"
        )
    driver.release(pointer)


# ---- streams ----


def test_an_idle_stream_has_no_thread(driver: SimDriver, block: int) -> None:
    before = driver.statistics().threads
    stream = driver.stream()
    driver.check("fill", 0, block, 1, 64, stream)
    assert driver.read(block, 64, stream=stream) == b"\x01" * 64
    assert driver.statistics().threads == before
    driver.check("stream_destroy", stream)


def test_a_stream_keeps_the_order_of_its_work(driver: SimDriver, stream: int) -> None:
    driver.inject("slow", 5 * MILLISECOND)
    pointer = driver.allocate(4096)
    pinned = driver.pinned(3 * 4096)
    for step in range(3):
        driver.check("fill", 0, pointer, step + 1, 4096, stream)
        driver.check("copy", pinned + step * 4096, HOST, pointer, 0, 4096, stream)
    assert driver.call("stream_query", stream) is Status.NOT_READY
    driver.check("stream_synchronize", stream)
    assert driver.call("stream_query", stream) is Status.OK
    assert ctypes.string_at(pinned, 3 * 4096) == b"\x01" * 4096 + b"\x02" * 4096 + b"\x03" * 4096
    driver.check("pinned_release", pinned)
    driver.release(pointer)


def test_a_pageable_copy_waits_and_keeps_its_turn(
    driver: SimDriver, stream: int, block: int
) -> None:
    driver.inject("slow", 5 * MILLISECOND)
    driver.check("fill", 0, block, 7, 64, stream)
    assert driver.read(block, 64, stream=stream) == b"\x07" * 64


def test_a_host_function_runs_after_earlier_work(
    driver: SimDriver, stream: int, block: int
) -> None:
    driver.inject("slow", 5 * MILLISECOND)
    seen: list[tuple[int, bytes, Status, str]] = []

    def look(argument: int) -> None:
        content = ctypes.string_at(driver.table.host_window(block), 1)
        waited = driver.call("stream_synchronize", stream)
        seen.append((argument, content, waited, driver.last_error()))

    callback = HostFunction(look)
    driver.check("fill", 0, block, 9, 64, stream)
    driver.check("stream_host_function", stream, callback, 42)
    driver.check("stream_synchronize", stream)
    own = "a host function may not wait for the stream that it runs on"
    assert seen == [(42, b"\x09", Status.INVALID_ARGUMENT, own)]


def test_who_queues_far_ahead_waits_for_the_stream(driver: SimDriver, stream: int) -> None:
    started, release = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        started.set()
        release.wait(60)

    first, other = HostFunction(wait), HostFunction(lambda _: None)
    queued: list[int] = []

    def queue() -> None:
        driver.check("stream_host_function", stream, first, 0)
        for number in range(3000):
            driver.check("stream_host_function", stream, other, number)
            queued.append(number)

    thread = threading.Thread(target=queue)
    thread.start()
    started.wait(60)
    thread.join(1)
    done = len(queued)
    release.set()
    thread.join(60)
    assert done == 1023  # and the first
    assert len(queued) == 3000
    driver.check("stream_synchronize", stream)


def test_destroying_a_stream_finishes_its_work(driver: SimDriver) -> None:
    before = driver.statistics()
    driver.inject("slow", 5 * MILLISECOND)
    stream = driver.stream()
    pointer = driver.allocate(64)
    driver.check("fill", 0, pointer, 3, 64, stream)
    driver.check("stream_destroy", stream)
    driver.clear_faults()
    assert driver.read(pointer, 64) == b"\x03" * 64
    after = driver.statistics()
    assert (after.streams, after.threads) == (before.streams, before.threads)
    driver.release(pointer)


# ---- events ----


def test_elapsed_time_covers_the_work_between(driver: SimDriver, stream: int, block: int) -> None:
    start, end = driver.event(), driver.event()
    driver.inject("slow", 10 * MILLISECOND)
    driver.check("event_record", start, stream)
    for _ in range(3):
        driver.check("fill", 0, block, 0, 64, stream)
    driver.check("event_record", end, stream)
    assert driver.call("event_query", end) is Status.NOT_READY
    driver.check("event_synchronize", end)
    assert driver.call("event_query", end) is Status.OK
    assert driver.get("event_elapsed", ctypes.c_double, start, end) >= 30.0
    assert driver.get("event_elapsed", ctypes.c_double, end, start) <= -30.0
    for event in (start, end):
        driver.check("event_destroy", event)


@pytest.mark.parametrize("waiting_device", [0, 1])
def test_a_stream_waits_for_an_event_of_another(driver: SimDriver, waiting_device: int) -> None:
    first, second = driver.stream(0), driver.stream(waiting_device)
    pointer = driver.allocate(64)
    target = driver.allocate(64, device=waiting_device)
    driver.check("fill", 0, pointer, 0, 64, first)
    event = driver.event()
    driver.inject("slow", 20 * MILLISECOND)
    # The second stream has one task to the first one's six: without the wait it would copy zeros.
    for step in range(6):
        driver.check("fill", 0, pointer, step + 1, 64, first)
    driver.check("event_record", event, first)
    driver.check("stream_wait_event", second, event)
    driver.check("copy", target, waiting_device, pointer, 0, 64, second)
    driver.check("event_destroy", event)  # the stream still waits for what it recorded
    driver.check("stream_synchronize", second)
    driver.clear_faults()
    assert driver.read(target, 64, device=waiting_device) == b"\x06" * 64
    for stream in (first, second):
        driver.check("stream_destroy", stream)
    driver.release(pointer)
    driver.release(target, device=waiting_device)


def test_an_event_that_was_not_recorded_is_done(driver: SimDriver) -> None:
    event = driver.event()
    assert driver.call("event_query", event) is Status.OK
    driver.check("event_synchronize", event)
    driver.check("stream_wait_event", driver.default_stream(), event)
    assert driver.call("stream_query", driver.default_stream()) is Status.OK
    driver.check("event_destroy", event)


def test_elapsed_time_needs_two_finished_events_with_timing(driver: SimDriver) -> None:
    stream = driver.default_stream()
    timed, other, untimed = driver.event(), driver.event(), driver.event(timing=False)
    driver.check("event_record", timed, stream)
    driver.check("event_record", untimed, stream)
    for end, text in (
        (untimed, "an event was created without timing"),
        (other, "an event was not recorded, or its stream has not reached it yet"),
    ):
        with pytest.raises(DriverFailure) as failure:
            driver.get("event_elapsed", ctypes.c_double, timed, end)
        assert failure.value.text == text
    for event in (timed, other, untimed):
        driver.check("event_destroy", event)


# ---- pinned memory ----


def test_pinned_ranges_are_known(driver: SimDriver) -> None:
    pinned = driver.pinned(100)
    contains = driver.table.pinned_contains
    assert [contains(pinned + offset) for offset in (-1, 0, 99, 100)] == [0, 1, 1, 0]
    driver.check("pinned_release", pinned)
    assert contains(pinned) == 0
    assert driver.call("pinned_release", pinned) is Status.INVALID_ARGUMENT


def test_a_pinned_copy_does_not_wait(driver: SimDriver) -> None:
    driver.inject("slow", 20 * MILLISECOND)
    stream = driver.stream()
    pointer = driver.allocate(64)
    pinned = driver.pinned(64)
    ctypes.memset(pinned, 5, 64)
    driver.check("copy", pointer, 0, pinned, HOST, 64, stream)
    assert driver.call("stream_query", stream) is Status.NOT_READY
    driver.check("stream_synchronize", stream)
    driver.clear_faults()
    assert driver.read(pointer, 64) == b"\x05" * 64
    driver.check("stream_destroy", stream)
    driver.check("pinned_release", pinned)
    driver.release(pointer)


# ---- faults ----


def test_injected_failures_pass(driver: SimDriver, block: int) -> None:
    stream = driver.default_stream()
    calls = {
        "allocate": (Status.OUT_OF_MEMORY, lambda: driver.release(driver.allocate(64))),
        "copy": (Status.FAILED, lambda: driver.read(block, 64)),
        "fill": (Status.FAILED, lambda: driver.check("fill", 0, block, 0, 64, stream)),
        "stream_query": (Status.FAILED, lambda: driver.check("stream_query", stream)),
        "event_destroy": (Status.FAILED, lambda: driver.check("event_destroy", driver.event())),
        "pinned_allocate": (
            Status.FAILED,
            lambda: driver.check("pinned_release", driver.pinned(64)),
        ),
    }
    for fault, (status, call) in calls.items():
        driver.inject(fault, 2)
        for _ in range(2):
            with pytest.raises(DriverFailure) as failure:
                call()
            assert failure.value.status is status
            assert failure.value.text == f"injected fault: {fault}"
        assert driver.calls_of(fault) == 2
        call()


def test_a_device_is_lost_after_some_calls(driver: SimDriver) -> None:
    stream = driver.default_stream()
    driver.inject("device_lost:0:2")
    assert [driver.call("stream_query", stream) for _ in range(4)] == (
        [Status.OK] * 2 + [Status.DEVICE_LOST] * 2
    )
    assert driver.call("stream_query", driver.default_stream(1)) is Status.OK
    assert driver.calls_of("device_lost:0") == 3


def test_a_lost_device_fails_alike_and_the_other_works(driver: SimDriver) -> None:
    pointer = driver.allocate(64, device=1)
    stream, event = driver.default_stream(1), driver.event(device=1)
    driver.inject("device_lost:1")
    for call in (
        lambda: driver.allocate(64, device=1),
        lambda: driver.read(pointer, 64, device=1, stream=stream),
        lambda: driver.check("fill", 1, pointer, 0, 64, stream),
        lambda: driver.check("stream_query", stream),
        lambda: driver.check("stream_synchronize", stream),
        lambda: driver.check("event_record", event, stream),
    ):
        with pytest.raises(DriverFailure) as failure:
            call()
        assert failure.value.status is Status.DEVICE_LOST
        assert failure.value.text == "device 1 is lost (injected fault: device_lost:1)"
    driver.release(driver.allocate(64, device=0))
    driver.clear_faults()
    driver.check("event_destroy", event)
    driver.release(pointer, device=1)


@pytest.mark.parametrize("fault", ["typo", "device_lost", "device_lost:8", "copy:", "copy:x", ""])
def test_an_unknown_fault_lists_the_known_ones(driver: SimDriver, fault: str) -> None:
    with pytest.raises(DriverFailure) as failure:
        driver.inject(fault)
    text = failure.value.text
    assert text.startswith(
        f"unknown fault '{fault}'; the faults are: device_properties, device_memory, allocate, release, "
    )
    assert text.endswith(
        "graph_dump, device_lost:D (D from 0 to 7), each also with :N, after N calls, and slow"
    )


def test_the_last_error_is_the_threads_own(driver: SimDriver) -> None:
    driver.call("allocate", 5, 64, None)
    theirs: list[str] = []
    thread = threading.Thread(target=lambda: theirs.append(driver.last_error()))
    thread.start()
    thread.join()
    assert theirs == [""]
    assert driver.last_error() == "there is no device 5; there are 2"


# ---- all at once ----


def test_eight_threads_share_two_devices(driver: SimDriver) -> None:
    before = [driver.statistics(device) for device in range(2)]
    shared = [driver.stream(device) for device in range(2)]
    wrong: list[str] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        device = seed % 2
        own = driver.stream(device)
        event = driver.event(device)
        for step in range(150):
            size = chance.choice([1, 100, 4096, 70_000, 3 << 20])
            stream = chance.choice([own, shared[device], driver.default_stream(device)])
            value = (seed * 31 + step) % 255 + 1
            pointer = driver.allocate(size, device)
            driver.check("fill", device, pointer, value, size, stream)
            driver.check("event_record", event, stream)
            driver.check("stream_wait_event", own, event)
            offset = chance.randrange(size)
            if driver.read(pointer + offset, 1, device, own) != bytes([value]):
                wrong.append(f"thread {seed} step {step}")
            driver.check("stream_synchronize", stream)
            driver.release(pointer, device)
        driver.check("event_destroy", event)
        driver.check("stream_destroy", own)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stream in shared:
        driver.check("stream_destroy", stream)
    assert wrong == []
    for device in range(2):
        after = driver.statistics(device)
        assert after.allocations - before[device].allocations == 4 * 150
        assert after.releases - before[device].releases == 4 * 150
        assert after.live_bytes == before[device].live_bytes
        assert after.streams == before[device].streams
