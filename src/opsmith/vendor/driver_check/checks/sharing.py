"""Memory that another process imports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from opsmith.driver.table import Handle
from opsmith.vendor.driver_check.importer import importer
from opsmith.vendor.driver_check.model import Broken, Needs, check
from opsmith.vendor.driver_check.subject import Subject, expect_bytes

# As opsmith's allocator asks for, and what is no whole number of pages.
_SIZES = (2 << 20, 100_000)
_TIMES = 200


@check(
    "memory that another process imports holds the same bytes, whoever writes them",
    notice="tensors that were sent to another process have wrong values there",
    needs=(Needs.SHARING,),
)
def imported_contents(subject: Subject) -> None:
    for size in _SIZES:
        with _exported(subject, size) as exported:
            for device, (block, _) in enumerate(exported):
                subject.write(block, subject.data(size + device)[device:], device)
            with importer(subject, [handle for _, handle in exported]) as other:
                for device, (block, handle) in enumerate(exported):
                    there = other.imported(handle, device)
                    data = subject.read(block, size, device)
                    found = other.read(there, size, device)
                    expect_bytes(found, data, f"{size} bytes, read by another process")
                    if subject.has(Needs.HOST_WINDOW):
                        found = other.read_window(there, size) or bytes(size)
                        expect_bytes(found, data, "the host window of imported memory")
                    written = subject.data(size)
                    other.write(there, written, device)
                    found = subject.read(block, size, device)
                    expect_bytes(found, written, f"{size} bytes, written by another process")
                    later = written[1:] + b"\0"
                    subject.write(block, later, device)
                    found = other.read(there, size, device)
                    expect_bytes(found, later, "bytes that were written after the import")
                    other.unimport(there, device)
                    expect_bytes(subject.read(block, size, device), later, "memory given up there")


@check(
    "an allocation can be imported again, also while it is, and each time is given up",
    notice="a program that receives many tensors ends with an error",
    needs=(Needs.SHARING,),
)
def imported_again(subject: Subject) -> None:
    size = _SIZES[0]
    data = subject.data(size)
    with _exported(subject, size) as exported:
        block, handle = exported[0]
        subject.write(block, data)
        with importer(subject, [handle]) as other:
            kept = other.imported(handle, 0)
            free = other.free_memory(0)
            for _ in range(_TIMES):
                there = other.imported(handle, 0)
                expect_bytes(other.read(there, 64, 0), data[:64], "memory that is imported again")
                other.unimport(there, 0)
            expect_bytes(other.read(kept, size, 0), data, "memory whose other import was given up")
            if (lost := free - other.free_memory(0)) > size:
                raise Broken(
                    f"as many free bytes as before {_TIMES} imports", f"{lost} are missing"
                )


@check(
    "memory can be released when a process that imported it has ended",
    notice="a receiver that crashes takes the sender's memory with it",
    needs=(Needs.SHARING,),
)
def importers_that_end(subject: Subject) -> None:
    size = _SIZES[0]
    data = subject.data(size)
    with _exported(subject, size) as exported:
        block, handle = exported[0]
        subject.write(block, data)
        with importer(subject, [handle]) as other:
            other.imported(handle, 0)
        expect_bytes(subject.read(block, size), data, "memory whose importer has ended")
    subject.round_trip("a process that imported memory and ended")


@contextmanager
def _exported(subject: Subject, size: int) -> Iterator[list[tuple[int, Handle]]]:
    """A block of each device, and its handle; all released at the end, and the files closed."""
    made: list[tuple[int, Handle]] = []
    for device in subject.devices:
        block = subject.allocated(size, device)
        made.append((block, subject.driver.exported(block, device)))
    yield made
    for device, (block, handle) in enumerate(made):
        if handle.file >= 0:
            os.close(handle.file)
        subject.driver.release(block, device)
