"""Checks for leaks in thousands of calls: memory of the device and of the host, threads, open files."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_size_t
from itertools import pairwise
from pathlib import Path

from opsmith.vendor.driver_check.model import Broken, Needs, check
from opsmith.vendor.driver_check.subject import Subject

_CYCLES = 2000
# A cycle's share of what may be left: Python itself is not quite even.
_BYTES_A_CYCLE = 16
_FEW = 8


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def _host_bytes() -> int:
    """The bytes that are allocated with malloc in this process; 0 where the C library cannot tell."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo
    found: _Mallinfo = mallinfo()
    return int(found.uordblks + found.hblkhd)


def _count(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def _measured(subject: Subject) -> dict[str, int]:
    free, _ = subject.driver.memory()
    return {
        "bytes of the device": -free,
        "bytes of the host": _host_bytes(),
        "threads": _count("/proc/self/task"),
        "open files": _count("/proc/self/fd"),
    }


def _expect_nothing_left(subject: Subject, what: str, cycle: Callable[[], None]) -> None:
    """Breaks if cycles leave something again and again, once as many others have shown what is kept for good.

    Once is not enough: a GPU's driver that keeps a pool takes a page of 2 MiB for it, once in thousands.
    """
    found: list[dict[str, int]] = []
    for _ in range(3):
        for _ in range(_CYCLES):
            cycle()
        subject.driver.synchronize(subject.driver.default_stream())
        found.append(_measured(subject))
    for kind in found[0]:
        allowed = _CYCLES * _BYTES_A_CYCLE if kind.startswith("bytes") else _FEW
        left = [after[kind] - before[kind] for before, after in pairwise(found)]
        if min(left) > allowed:
            raise Broken(
                f"as many {kind} in use after {_CYCLES} {what} as before",
                f"there are {left[0]} more",
            )


@check(
    "thousands of allocations that are released leave nothing behind",
    notice="memory fills up while a program runs",
)
def allocations_leave_nothing(subject: Subject) -> None:
    stream = subject.driver.default_stream()

    def cycle() -> None:
        with subject.block(10_000) as block:
            subject.fill(block, 1, 100, stream)
            subject.driver.synchronize(stream)

    _expect_nothing_left(subject, "allocations", cycle)


@check(
    "thousands of copies leave nothing behind",
    notice="memory fills up while a program runs",
)
def copies_leave_nothing(subject: Subject) -> None:
    data = subject.data(1000)
    with subject.block(1000) as block:

        def cycle() -> None:
            subject.write(block, data)
            subject.read(block, 1000)

        _expect_nothing_left(subject, "copies each way", cycle)


@check(
    "thousands of streams that are destroyed leave nothing behind",
    notice="memory or threads run out while a program runs",
)
def streams_leave_nothing(subject: Subject) -> None:
    with subject.block(64) as block:

        def cycle() -> None:
            with subject.stream() as stream:
                subject.fill(block, 1, 64, stream)
                subject.driver.synchronize(stream)

        _expect_nothing_left(subject, "streams", cycle)


@check(
    "thousands of events that are destroyed leave nothing behind",
    notice="memory fills up while a program runs",
    needs=(Needs.EVENTS,),
)
def events_leave_nothing(subject: Subject) -> None:
    stream = subject.driver.default_stream()

    def cycle() -> None:
        with subject.event() as event:
            subject.driver.check("event_record", event, stream)
            subject.driver.check("event_synchronize", event)

    _expect_nothing_left(subject, "events", cycle)


@check(
    "thousands of pinned allocations that are released leave nothing behind",
    notice="a data loader with pin_memory fills the host's memory",
    needs=(Needs.PINNED,),
)
def pinned_memory_leaves_nothing(subject: Subject) -> None:
    def cycle() -> None:
        with subject.pinned(10_000) as pinned:
            subject.driver.raw("pinned_contains", pinned)

    _expect_nothing_left(subject, "pinned allocations", cycle)
