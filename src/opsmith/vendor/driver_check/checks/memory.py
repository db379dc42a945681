"""Device memory: what is handed out, how much of it there is, and what happens where it ends."""

from __future__ import annotations

import itertools
from ctypes import byref, c_void_p

from opsmith.driver.failures import DriverFailure
from opsmith.driver.table import Status
from opsmith.vendor.driver_check.model import Broken, check
from opsmith.vendor.driver_check.subject import Subject, expect_bytes

_SIZES = (1, 63, 64, 65, 1000, 4096, 100_000, 1 << 20)


@check(
    "allocations start at a multiple of the alignment, and none lies in another",
    notice="tensors overwrite each other, or kernels that rely on the alignment crash",
)
def allocations(subject: Subject) -> None:
    live: list[tuple[int, int, int]] = []
    for device in subject.devices:
        alignment = subject.driver.properties(device).alignment
        for size in _SIZES:
            pointer = subject.allocated(size, device)
            live.append((pointer, size, device))
            if pointer % alignment:
                raise Broken(
                    f"a multiple of {alignment}", f"{size} bytes were given at {pointer:#x}"
                )
    for (start, size, _), (following, _, _) in itertools.pairwise(sorted(live)):
        if start + size > following:
            raise Broken(
                "addresses of its own for each",
                f"{size} bytes at {start:#x} reach beyond the allocation at {following:#x}",
            )
    for pointer, _, device in live:
        subject.driver.release(pointer, device)


@check(
    "what is written to one allocation changes no other",
    notice="tensors change when others are written",
)
def contents_apart(subject: Subject) -> None:
    size = 5000
    blocks = [
        (subject.allocated(size, device), device) for device in subject.devices for _ in range(6)
    ]
    for value, (pointer, device) in enumerate(blocks, start=1):
        subject.fill(pointer, value, size, subject.driver.default_stream(device), device)
    for value, (pointer, device) in enumerate(blocks, start=1):
        what = f"allocation {value} of {len(blocks)}, each filled with another value"
        expect_bytes(subject.read(pointer, size, device), bytes([value]) * size, what)
    for pointer, device in blocks:
        subject.driver.release(pointer, device)


@check(
    "what `device_memory` calls free can be allocated",
    notice="torch.OutOfMemoryError although most of the memory is free",
)
def free_memory(subject: Subject) -> None:
    for device in subject.devices:
        free, _ = subject.driver.memory(device)
        size = max(free // 16, 1)
        held: list[int] = []
        try:
            for _ in range(14):  # the rest is left for what the driver itself needs
                held.append(subject.allocated(size, device))
        except DriverFailure as failure:
            raise Broken(
                f"room for 14 times {size} bytes, 7/8 of what was free on device {device}",
                f"with {len(held)} of these allocated {failure.happened}",
            ) from None
        for pointer in held:
            subject.driver.release(pointer, device)


@check(
    "released memory is used again",
    notice="a program that runs long enough ends with torch.OutOfMemoryError",
)
def memory_used_again(subject: Subject) -> None:
    for device in subject.devices:
        free, _ = subject.driver.memory(device)
        size = max(free // 8, 1)
        for done in range(40):
            try:
                pointer = subject.allocated(size, device)
            except DriverFailure as failure:
                raise Broken(
                    f"room for {size} bytes, an eighth of what was free",
                    f"after {done} of these were allocated and released, {failure.happened}",
                ) from None
            subject.driver.release(pointer, device)


@check(
    "`device_memory` follows what is allocated and released",
    notice="torch.accelerator.get_memory_info() says that memory is free which is not",
)
def memory_accounted(subject: Subject) -> None:
    for device in subject.devices:
        before, total = subject.driver.memory(device)
        # Half of it has to be seen: drivers may hand out memory from larger pieces.
        size = before // 4
        with subject.block(size, device):
            during, _ = subject.driver.memory(device)
        after, _ = subject.driver.memory(device)
        if before - during < size // 2:
            raise Broken(
                f"fewer free bytes with {size} of them allocated",
                f"{before} of {total} were free before, and {during} after",
            )
        if after - during < size // 2:
            raise Broken(
                "the bytes free again after `release`",
                f"{during} were free before it, and {after} after it",
            )


@check(
    "more memory than the device has is OPSMITH_OUT_OF_MEMORY",
    notice="a tensor that is too large raises AcceleratorError in the place of OutOfMemoryError, or "
    "none at all, and the program crashes when it is used",
)
def allocations_too_large(subject: Subject) -> None:
    driver = subject.driver
    for device in subject.devices:
        _, total = driver.memory(device)
        for size in (total + 1, total * 2, 1 << 46, (1 << 64) - 64, (1 << 64) - 1):
            status = driver.call("allocate", device, size, byref(c_void_p()))
            # No tensor has the last ones: refusing them in another way would do.
            if status is Status.OUT_OF_MEMORY or (size >> 63 and status is Status.INVALID_ARGUMENT):
                continue
            raise Broken(
                "OPSMITH_OUT_OF_MEMORY",
                f"`allocate` of {size} bytes returned OPSMITH_{status.name}, on a device of {total}",
            )
    subject.round_trip("an allocation that was too large")


@check(
    "a device that is full says OPSMITH_OUT_OF_MEMORY, and has room again when memory is released",
    notice="the program cannot go on with smaller tensors after torch.OutOfMemoryError, or crashes later",
)
def out_of_memory(subject: Subject) -> None:
    for device in subject.devices:
        free, total = subject.driver.memory(device)
        size = max(free // 16, 1)
        held: list[int] = []
        try:
            while size * len(held) <= total:
                held.append(subject.allocated(size, device))
            raise Broken(
                f"at most {total} bytes, which is all that device {device} has",
                f"{len(held)} allocations of {size} bytes succeeded: {size * len(held)} bytes",
            )
        except DriverFailure as failure:
            if failure.status is not Status.OUT_OF_MEMORY:
                raise
        if not held:
            raise Broken(f"room for {size} bytes", f"there is none, and {free} were free")
        subject.driver.release(held.pop(), device)
        held.append(subject.allocated(size, device))
        for pointer in held:
            subject.driver.release(pointer, device)
        subject.round_trip("running out of memory", device)
