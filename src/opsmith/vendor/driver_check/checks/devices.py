"""The table itself, and what a driver says of its devices."""

from __future__ import annotations

from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from opsmith.driver.failures import DriverFailure
from opsmith.driver.table import (
    EVENTS,
    GRAPHS,
    PINNED,
    RANGES,
    REQUIRED,
    SHARING,
    Properties,
    Status,
)
from opsmith.vendor.driver_check.model import Broken, check
from opsmith.vendor.driver_check.subject import Subject

# The most devices that the runtime has room for: kMostDevices.
_MOST_DEVICES = 64


@check(
    "the table has every required entry, and each optional set as a whole",
    notice="opsmith.load() raises DriverInvalid",
)
def entries(subject: Subject) -> None:
    table = subject.driver.table
    missing = [name for name in REQUIRED if not getattr(table, name)]
    if missing:
        raise Broken("every required entry", f"NULL: {', '.join(missing)}")
    for what, names in (
        ("events", EVENTS),
        ("pinned memory", PINNED),
        ("ranges", RANGES),
        ("memory shared between processes", SHARING),
        ("graphs", GRAPHS),
    ):
        absent = [name for name in names if not getattr(table, name)]
        if absent and len(absent) < len(names):
            raise Broken(
                f"all {len(names)} entries for {what}, or none", f"NULL: {', '.join(absent)}"
            )


@check(
    "`device_count` gives the same number each time, from 1 to 64",
    notice="torch.accelerator.device_count() is wrong, or opsmith.load() raises DriverInvalid",
)
def device_count(subject: Subject) -> None:
    counts = {subject.driver.device_count() for _ in range(3)}
    if len(counts) > 1 or not 1 <= min(counts) <= _MOST_DEVICES:
        said = ", ".join(map(str, sorted(counts)))
        raise Broken(f"one number from 1 to {_MOST_DEVICES}", f"it gave {said}")


@check(
    "`device_properties` tells a name, the memory and an alignment that is a power of two",
    notice="torch.<device>.get_device_properties() shows nonsense",
)
def device_properties(subject: Subject) -> None:
    for device in subject.devices:
        found = subject.driver.properties(device)
        where = f"device {device}"
        if not found.name:
            raise Broken("a name", f"the name of {where} is empty")
        if not found.total_memory:
            raise Broken("the device's memory in bytes", f"`total_memory` of {where} is 0")
        alignment = found.alignment
        if not alignment or alignment & (alignment - 1):
            raise Broken("a power of two", f"`alignment` of {where} is {alignment}")


@check(
    "`device_memory` tells no more free bytes than there are",
    notice="torch.accelerator.get_memory_info() and the texts of torch.OutOfMemoryError are wrong",
)
def device_memory(subject: Subject) -> None:
    for device in subject.devices:
        free, total = subject.driver.memory(device)
        if total == 0 or free > total:
            raise Broken(
                "free bytes up to the total, which is above 0",
                f"device {device} has {free} free of {total}",
            )


@check(
    "a device that does not exist is refused, by every entry that takes an ordinal",
    notice="`torch.ones(3, device='<device>:9')` crashes or uses another device",
)
def ordinals_out_of_range(subject: Subject) -> None:
    driver = subject.driver
    stream = driver.default_stream()
    count = driver.device_count()
    with subject.block(64) as block:
        out = byref(c_void_p())
        calls: dict[str, tuple[Any, ...]] = {
            "device_properties": (byref(Properties()),),
            "device_memory": (byref(c_uint64()), byref(c_uint64())),
            "allocate": (64, out),
            "fill": (block, 0, 64, stream),
            "default_stream": (out,),
            "stream_create": (0, out),
        }
        if driver.table.event_create:
            calls["event_create"] = (1, out)
        for entry, arguments in calls.items():
            for ordinal in (-1, count, 1000):
                _refused(driver.call(entry, c_int(ordinal), *arguments), entry, ordinal)
    subject.round_trip("refusing ordinals")


def _refused(status: Status, entry: str, ordinal: int) -> None:
    if status not in (Status.INVALID_ARGUMENT, Status.FAILED):
        raise Broken(
            "OPSMITH_INVALID_ARGUMENT",
            f"`{entry}` for device {ordinal} returned OPSMITH_{status.name}",
        )


def a_failure(subject: Subject) -> DriverFailure:
    """A failure of the driver, of a call that no driver can serve."""
    driver = subject.driver
    missing = driver.device_count()
    for provoke in (
        lambda: driver.properties(missing),
        lambda: driver.memory(missing),
        lambda: driver.allocate(1 << 62),
    ):
        try:
            provoke()
        except DriverFailure as failure:
            return failure
    raise Broken("a failure", f"device {missing}, which does not exist, has properties and memory")
