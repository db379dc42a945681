"""``opsmith driver check``: good drivers pass, and for each check there are drivers that it catches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opsmith.build.csrc import PUBLIC_HEADERS
from opsmith.build.toolchain import find_compiler
from opsmith.vendor.driver_check.checks import CHECKS
from opsmith.vendor.driver_check.model import Finding, Report, Verdict
from opsmith.vendor.driver_check.running import OPENING, Target, check_driver, check_one

CHIP = Path(__file__).with_name("chip.cpp")

# A driver's lie (chip.cpp), the check that has to fail, and its message.
LIES = {
    "NULL table": ("library", "returned NULL"),
    "version 9": ("library", "was built with version 9 of opsmith_driver.h (a table of 304 bytes)"),
    "short table": ("library", "(a table of 296 bytes), but this opsmith has version 1 (304 bytes)"),
    "no copy": ("entries", "NULL: copy"),
    "half the events": ("entries", "NULL: event_elapsed"),
    "half of pinned memory": ("entries", "NULL: pinned_contains"),
    "half of sharing": ("entries", "NULL: memory_unimport"),
    "half of ranges": ("entries", "NULL: range_pop"),
    "half of graphs": ("entries", "NULL: graph_dump"),
    "flat ranges": ("nested ranges", "`range_push` returned OPSMITH_INVALID_ARGUMENT: a range is open"),
    "count changes": ("device count", "it gave 1, 2"),
    "no devices": ("device count", "it gave 0"),
    "no name": ("device properties", "the name of device 0 is empty"),
    "no memory": ("device properties", "`total_memory` of device 0 is 0"),
    "alignment of 48": ("device properties", "`alignment` of device 0 is 48"),
    "more free than total": ("device memory", "device 0 has 536870912 free of 268435456"),
    "any ordinal": ("ordinals out of range", "`device_properties` for device -1 returned OPSMITH_OK"),
    "null error": ("last error", "it is NULL before any call has failed"),
    "two lines": ("last error", "the text of a failed call has 2 lines"),
    "empty error": ("last error", "the text of a failed call is empty"),
    "shared error": ("last error of each thread", "a new thread is told 'there is no device 2'"),
    "NULL allocation": ("allocations", "`allocate` of 1 bytes returned OPSMITH_OK and NULL"),
    "misaligned": ("allocations", "65 bytes were given at"),
    "overlap": ("allocations", "reach beyond the allocation at"),
    "aliased": ("contents apart", "5000 of them differ, the first at offset 0 (0x03 for 0x01)"),
    "forgets failures": ("late failures", "`stream_synchronize` returned OPSMITH_OK after work that failed"),
    "keeps half": ("free memory", "with 8 of these allocated `allocate` returned OPSMITH_OUT_OF_MEMORY"),
    "never used again": ("memory used again", "after 8 of these were allocated and released"),
    "constant memory": ("memory accounted", "268435456 of 268435456 were free before, and 268435456 after"),
    "memory stays gone": ("memory accounted", "201326592 were free before it, and 201326592 after it"),
    "too large is truncated": (
        "allocations too large",
        "`allocate` of 268435457 bytes returned OPSMITH_OK, on a device of 268435456",
    ),
    "out of memory is a failure": ("allocations too large", "returned OPSMITH_FAILED"),
    "overcommit": ("out of memory", "17 allocations of 16777216 bytes succeeded"),
    "full for ever": ("out of memory", "`allocate` returned OPSMITH_OUT_OF_MEMORY"),
    "short copies": ("copies from the host", "1 of them differ, the first at offset 64"),
    "wide copies": ("copies from the host", "8 of them differ, the first at offset 65 (0x"),
    "offsets ignored": ("copies from the host", "of them differ, the first at offset 0"),
    "short reads": ("copies to the host", "1 of them differ, the first at offset 64"),
    "wide reads": ("copies to the host", "of them differ, the first at offset 65"),
    "no copies within": ("copies within a device", "of them differ, the first at offset 65 (0xee for"),
    "no copies between": ("copies between devices", "differ, the first at offset 0"),
    "late reads": ("pageable copies", "(0xff for"),
    "late writes": ("pageable copies", "(0xff for 0x07)"),
    "short fills": ("fills", "differ, the first at offset"),
    "fills with zero": ("fills", "(0x00 for 0xee)"),
    "NULL default stream": ("default streams", "that of device 0 is NULL"),
    "many default streams": ("default streams", "and then 0x"),
    "unordered": ("order on the default stream", "8388608 of them differ"),
    "unordered when urgent": ("order on created streams", "differ"),
    "NULL stream": ("order on created streams", "`stream_create` returned OPSMITH_OK and NULL"),
    "never idle": ("idle after synchronize", "it returned OPSMITH_NOT_READY"),
    "does not wait": ("synchronize waits", "8388608 of them differ"),
    "always idle": ("query tells of pending work", "(0x00 for 0x0f)"),
    "destroyed with its work": ("destroyed streams", "(0x00 for 0x03)"),
    "no host functions": ("host functions", "[] when the stream was waited for, [] later"),
    "host functions twice": ("host functions", "[1, 1, 2, 2, 3, 3, 4, 4, 5, 5] when"),
    "host functions at once": ("host functions in turn", "they saw ["),
    "not recorded is pending": ("events not recorded", "it returned OPSMITH_NOT_READY"),
    "NULL event": ("events not recorded", "`event_create` returned OPSMITH_OK and NULL"),
    "events at once": ("events wait for work", "of them differ"),
    "waits for nothing": ("streams wait for events", "(0x00 for 0x0c)"),
    "destroyed events are forgotten": ("events destroyed early", "(0x00 for 0x0c)"),
    "recorded once": ("events recorded again", "(0x00 for 0x0c)"),
    "negative time": ("elapsed time", "`event_elapsed` gave -2"),
    "seconds": ("elapsed time", "`event_elapsed` gave 0.02"),
    "microseconds": ("elapsed time", "`event_elapsed` gave 2"),
    "pinned everywhere": ("pinned ranges", "`pinned_contains` returned 1"),
    "pinned nowhere": ("pinned ranges", "`pinned_contains` returned 0"),
    "NULL pinned memory": ("pinned ranges", "`pinned_allocate` returned OPSMITH_OK and NULL"),
    "pinned is ignored": ("pinned copies", "differ"),
    "window in pages": ("window distance", "and that of byte 0 at 0x"),
    "no window": ("window distance", "gave NULL"),
    "window of everything": ("window of the host", "`host_window` gave 0x"),
    "window elsewhere": ("window contents", "of them differ"),
    "imports copies": ("imported contents", "of them differ, the first at offset 0"),
    "NULL import": ("imported contents", "`memory_import` returned OPSMITH_OK and NULL"),
    "imports once": ("imported again", "`memory_import` returned OPSMITH_FAILED: it is imported"),
    "imports take memory": ("imported again", "are missing"),
    "imports move memory": ("importers that end", "of them differ"),
    "one bounce buffer": ("threads at once", "of them differ"),
    "streams of one thread": ("threads share", "`stream_destroy` returned OPSMITH_FAILED: the stream is of"),
    "records nothing": ("recorded work", "1000 of them differ, the first at offset 0"),
    "runs graphs once": ("recorded work", "(0x01 for 0x02)"),
    "NULL graph": ("recorded work", "`capture_end` returned OPSMITH_OK and NULL"),
    "records one stream": ("recorded streams", "`stream_is_captured` says otherwise"),
    "waits while captured": ("refusals while captured", "of a captured stream returned OK"),
    "leak of allocations": ("allocations leave nothing", "more"),
    "leak of copies": ("copies leave nothing", "more"),
    "leak of streams": ("streams leave nothing", "more"),
    "leak of files": ("streams leave nothing", "there are 2000 more"),
    "leak of events": ("events leave nothing", "more"),
    "leak of pinned memory": ("pinned memory leaves nothing", "more"),
    # Lies that no single check is about.
    "status 77": ("fills", "`fill` returned 77, which is no status"),
    "not ready": ("fills", "`fill` returned OPSMITH_NOT_READY"),
    "crash": ("copies from the host", "the process was ended by signal SIGSEGV in `copy`"),
    "exit": ("fills", "the process ended with status 3 in `fill`: the firmware is missing"),
    "hang": ("idle after synchronize", "`stream_synchronize` did not return within 2 s"),
}  # fmt: skip


@pytest.fixture(scope="session")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver of chip.cpp."""
    path = tmp_path_factory.mktemp("chip") / "libchip.so"
    compiler = find_compiler(path.parent).command
    options = ["-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = [*compiler, *options, *warnings, "-I", PUBLIC_HEADERS, CHIP, "-o", path]
    subprocess.run(command, check=True)
    return path


def test_a_good_driver_passes(chip: Path) -> None:
    report = check_driver(Target(chip))
    assert {f.name: f.happened for f in report.findings if f.verdict is not Verdict.PASSED} == {}
    assert report.driver == "chip"
    assert len(report.findings) == 1 + len(CHECKS)


# In the default run the first lie of each check, and what ends or stops the process.
_FIRST = {name: lie for lie, (name, _) in reversed(LIES.items())}.values()
_ENDS = ("status 77", "crash", "exit", "hang")


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lie, marks=[] if lie in (*_FIRST, *_ENDS) else pytest.mark.nightly)
        for lie in LIES
    ],
)
def test_a_lie_is_caught(lie: str, chip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHIP_LIE", lie)
    name, text = LIES[lie]
    (check,) = (each for each in (OPENING, *CHECKS) if each.name == name)
    found = check_one(check, Target(chip), seconds=2 if lie == "hang" else 60)
    assert found.verdict is Verdict.FAILED
    assert found.expected
    assert text in found.happened
    assert found.notice


def test_the_cause_of_several_failures_stands_first() -> None:
    def failed(name: str, *entries: str) -> Finding:
        called = ("device_count", *entries)
        return Finding(name=name, promise="", verdict=Verdict.FAILED, entries=called)

    report = Report(
        "chip",
        (
            failed("streams", "allocate", "copy", "fill", "stream_synchronize"),
            failed("device properties", "device_properties"),
            failed("fills", "allocate", "fill"),
            failed("ranges", "range_push"),
            failed("events", "allocate", "event_record", "fill"),
        ),
    )
    shown = [(cause.name, [each.name for each in others]) for cause, others in report.causes()]
    assert shown == [
        ("device properties", []),
        ("ranges", []),
        ("fills", ["events", "streams"]),
    ]


def test_every_check_catches_something() -> None:
    assert {check.name for check in CHECKS} <= {name for name, _ in LIES.values()}
