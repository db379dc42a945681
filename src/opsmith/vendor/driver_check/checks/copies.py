"""Copies and fills: every direction, odd sizes, places within allocations, and nothing beside them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from opsmith.driver.table import HOST
from opsmith.vendor.driver_check.model import Needs, check
from opsmith.vendor.driver_check.subject import Subject, expect_bytes

_SIZES = (1, 3, 7, 64, 65, 255, 4096, 4097, 65_537, (1 << 20) + 1)
_OFFSETS = (0, 1, 63)
_MARGIN = 64
_BESIDE = b"\xee" * _MARGIN


def _cases(subject: Subject) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Sizes with offsets; last one at which drivers tend to do something else than for small ones."""
    yield from ((size, _OFFSETS) for size in _SIZES)
    yield min((33 << 20) + 1, subject.driver.memory()[0] // 8), (1,)


@check(
    "bytes copied from the host arrive, at any size and place, and change nothing beside them",
    notice="`tensor.to(device)` gives wrong values, or changes other tensors",
)
def copies_from_the_host(subject: Subject) -> None:
    stream = subject.driver.default_stream()
    for size, offsets in _cases(subject):
        data = subject.data(size)
        for offset in offsets:
            whole = size + offset + 2 * _MARGIN
            with subject.block(whole) as block:
                subject.fill(block, 0xEE, whole, stream)
                subject.write(block + _MARGIN + offset, data)
                found = subject.read(block, whole)
            what = f"a copy of {size} bytes to offset {_MARGIN + offset} of an allocation"
            expect_bytes(found, _BESIDE + b"\xee" * offset + data + _BESIDE, what)


@check(
    "bytes copied to the host arrive, at any size and place, and change nothing beside them",
    notice="`tensor.cpu()` gives wrong values, or overwrites memory of the host",
)
def copies_to_the_host(subject: Subject) -> None:
    stream = subject.driver.default_stream()
    for size, offsets in _cases(subject):
        data = subject.data(size + 128)
        with subject.block(size + 128) as block:
            subject.write(block, data)
            for offset in offsets:
                host = ctypes.create_string_buffer(
                    _BESIDE + bytes(size) + _BESIDE, size + 2 * _MARGIN
                )
                to = ctypes.addressof(host) + _MARGIN
                subject.driver.check("copy", to, HOST, block + offset, 0, size, stream)
                subject.driver.synchronize(stream)
                what = f"a copy of {size} bytes from offset {offset} of an allocation"
                wanted = _BESIDE + data[offset : offset + size] + _BESIDE
                expect_bytes(host.raw, wanted, what)


@check(
    "bytes copied within a device arrive, and change nothing beside them",
    notice="`tensor.clone()` and `tensor.copy_()` give wrong values",
)
def copies_within_a_device(subject: Subject) -> None:
    for device in subject.devices:
        stream = subject.driver.default_stream(device)
        for size in _SIZES:
            data = subject.data(size)
            whole = size + 3 * _MARGIN
            with subject.block(size, device) as source, subject.block(whole, device) as to:
                subject.write(source, data, device)
                subject.fill(to, 0xEE, whole, stream, device)
                subject.copy_within(to + _MARGIN + 1, source, size, stream, device)
                found = subject.read(to, whole, device)
            wanted = _BESIDE + b"\xee" + data + (_BESIDE * 2)[1:]
            expect_bytes(found, wanted, f"a copy of {size} bytes within device {device}")


@check(
    "bytes copied from one device to another arrive, on a stream of either",
    notice="`tensor.to('<device>:1')` gives wrong values or raises",
    needs=(Needs.TWO_DEVICES,),
)
def copies_between_devices(subject: Subject) -> None:
    for stream_device in (0, 1):
        stream = subject.driver.default_stream(stream_device)
        for size in _SIZES:
            data = subject.data(size)
            with subject.block(size, 0) as source, subject.block(size, 1) as to:
                subject.write(source, data, 0)
                subject.driver.check("copy", to, 1, source, 0, size, stream)
                subject.driver.synchronize(stream)
                found = subject.read(to, size, 1)
            what = (
                f"a copy of {size} bytes from device 0 to 1 on a stream of device {stream_device}"
            )
            expect_bytes(found, data, what)


@check(
    "memory of the host that is not pinned may be altered as soon as `copy` returns",
    notice="`tensor.to(device)` gives what the CPU tensor held later, from time to time",
)
def pageable_copies(subject: Subject) -> None:
    size = min(4 << 20, subject.driver.memory()[0] // 8)
    data = subject.data(size)
    with subject.stream() as stream, subject.block(size) as block, subject.block(size) as other:
        host = ctypes.create_string_buffer(data, size)
        for value in range(8):
            subject.fill(other, value, size, stream)
        subject.driver.check("copy", block, 0, host, HOST, size, stream)
        ctypes.memset(host, 0xFF, size)
        found = subject.read(block, size, stream=stream)
        expect_bytes(found, data, "a copy to the device, whose source changed when it had returned")
        for value in range(8):
            subject.fill(block, value, size, stream)
        subject.driver.check("copy", host, HOST, block, 0, size, stream)
        found = host.raw
        subject.driver.synchronize(stream)
    expect_bytes(found, b"\x07" * size, "a copy to the host, when it had returned")


@check(
    "`fill` sets every byte that it is to set, and no other",
    notice="kernels that fill memory through the driver give wrong values, or change other tensors",
)
def fills(subject: Subject) -> None:
    for device in subject.devices:
        stream = subject.driver.default_stream(device)
        for size in _SIZES:
            whole = size + 3 * _MARGIN
            with subject.block(whole, device) as block:
                for value in (0xEE, 0x00, 0xAB):
                    start, count = (0, whole) if value == 0xEE else (_MARGIN + 1, size)
                    subject.fill(block + start, value, count, stream, device)
                found = subject.read(block, whole, device)
            wanted = _BESIDE + b"\xee" + b"\xab" * size + (_BESIDE * 2)[1:]
            expect_bytes(found, wanted, f"a fill of {size} bytes on device {device}")
