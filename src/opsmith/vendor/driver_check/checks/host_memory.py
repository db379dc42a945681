"""Memory that the host reads and writes: pinned memory, and the window to the device's."""

from __future__ import annotations

import ctypes

from opsmith.driver.table import HOST
from opsmith.vendor.driver_check.model import Broken, Needs, check
from opsmith.vendor.driver_check.subject import Subject, expect_bytes

_SIZES = (1, 100, 4096, 100_000)


@check(
    "`pinned_contains` knows pinned memory from other memory, to the byte",
    notice="`tensor.is_pinned()` is wrong, and copies that should wait do not",
    needs=(Needs.PINNED,),
)
def pinned_ranges(subject: Subject) -> None:
    def contains(address: int) -> int:
        return int(subject.driver.raw("pinned_contains", address))

    host = ctypes.create_string_buffer(64)
    if contains(ctypes.addressof(host)) or contains(0):
        raise Broken("0 for other memory of the host", "`pinned_contains` returned 1")
    for size in _SIZES:
        with subject.pinned(size) as pinned:
            for offset, wanted in ((0, 1), (size - 1, 1), (size, 0)):
                if offset == size and contains(pinned + offset):
                    continue  # the next allocation may start there, or a page end later
                if bool(contains(pinned + offset)) != bool(wanted):
                    raise Broken(
                        f"{wanted} for offset {offset} of {size} pinned bytes",
                        f"`pinned_contains` returned {1 - wanted}",
                    )
        if contains(pinned):
            raise Broken("0 once it is released", "`pinned_contains` returned 1")


@check(
    "pinned memory is memory that the host reads and writes, and that copies take from and give to",
    notice="`tensor.pin_memory().to(device)` gives wrong values or crashes",
    needs=(Needs.PINNED,),
)
def pinned_copies(subject: Subject) -> None:
    for size in _SIZES:
        data = subject.data(size)
        stream = subject.driver.default_stream()
        with (
            subject.pinned(size) as source,
            subject.pinned(size) as to,
            subject.block(size) as block,
        ):
            subject.host_write(source, data)
            subject.host_write(to, bytes(size))
            expect_bytes(subject.host_copy(source, size), data, f"{size} bytes of pinned memory")
            subject.driver.check("copy", block, 0, source, HOST, size, stream)
            subject.driver.check("copy", to, HOST, block, 0, size, stream)
            subject.driver.synchronize(stream)
            found = subject.host_copy(to, size)
        expect_bytes(found, data, f"{size} bytes from pinned memory to the device and back")


@check(
    "the host window is at one distance within an allocation",
    notice="operators that run on the CPU compute with other tensors' values, or crash",
    needs=(Needs.HOST_WINDOW,),
)
def window_distance(subject: Subject) -> None:
    for device in subject.devices:
        for size in (64, 4096, 3 << 20):
            with subject.block(size, device) as block:
                first = _window(subject, block)
                for offset in (1, size // 2, size - 1):
                    found = _window(subject, block + offset)
                    if found - first != offset:
                        raise Broken(
                            f"the window of byte {offset} at {first + offset:#x}",
                            f"it is at {found:#x}, and that of byte 0 at {first:#x}",
                        )


@check(
    "there is a host window to device memory only",
    notice="memory of the host is taken for the device's, and is read at a wrong place",
    needs=(Needs.HOST_WINDOW,),
)
def window_of_the_host(subject: Subject) -> None:
    host = ctypes.create_string_buffer(64)
    for what, address in (("memory of the host", ctypes.addressof(host)), ("NULL", 0)):
        found = subject.driver.raw("host_window", address)
        # Where the host addresses the device's memory itself, an address of either is its own window.
        if found and found != address:
            raise Broken(f"NULL for {what}", f"`host_window` gave {found:#x}")


@check(
    "the host and the device see each other's bytes through the window",
    notice="operators that run on the CPU compute with values from before",
    needs=(Needs.HOST_WINDOW,),
)
def window_contents(subject: Subject) -> None:
    for device in subject.devices:
        stream = subject.driver.default_stream(device)
        size = 100_000
        data = subject.data(size)
        with subject.block(size, device) as block:
            window = _window(subject, block)
            subject.write(block, data, device)
            expect_bytes(subject.host_copy(window, size), data, "the window after a copy")
            subject.fill(block, 0x5A, size, stream, device)
            subject.driver.synchronize(stream)
            found = subject.host_copy(window, size)
            expect_bytes(found, b"\x5a" * size, "the window after a fill")
            subject.host_write(window, data)
            found = subject.read(block, size, device)
            expect_bytes(found, data, "a copy of what the host wrote through the window")


def _window(subject: Subject, address: int) -> int:
    found = subject.driver.raw("host_window", address)
    if not found:
        raise Broken(
            "the host's address of device memory", f"`host_window` of {address:#x} gave NULL"
        )
    return int(found)
