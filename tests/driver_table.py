"""opsmith_driver.h and sim.h as ctypes see them: tests call a driver without PyTorch."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from pathlib import Path
from typing import Any

HOST = -1
HostFunction = CFUNCTYPE(None, c_void_p)


class Status(IntEnum):
    OK = 0
    NOT_READY = 1
    OUT_OF_MEMORY = 2
    INVALID_ARGUMENT = 3
    FAILED = 4
    DEVICE_LOST = 5


class Properties(ctypes.Structure):
    _fields_ = [
        ("name", c_char * 128),
        ("architecture", c_char * 64),
        ("total_memory", c_uint64),
        ("alignment", c_uint32),
        ("multiprocessors", c_uint32),
    ]


class Statistics(ctypes.Structure):
    """``opsmith_sim_device_statistics`` of drivers/sim/sim.h."""

    _fields_ = [
        (name, c_uint64)
        for name in "allocations releases live_bytes peak_bytes kept_bytes streams threads".split()
    ]


def _entry(*arguments: Any, result: Any = c_int) -> Any:
    return CFUNCTYPE(result, *arguments)


class Table(ctypes.Structure):
    _fields_ = [
        ("abi_version", c_uint32),
        ("struct_size", c_uint32),
        ("name", c_char_p),
        ("last_error", _entry(result=c_char_p)),
        ("device_count", _entry(POINTER(c_int))),
        ("device_properties", _entry(c_int, POINTER(Properties))),
        ("device_memory", _entry(c_int, POINTER(c_uint64), POINTER(c_uint64))),
        ("allocate", _entry(c_int, c_size_t, POINTER(c_void_p))),
        ("release", _entry(c_int, c_void_p)),
        ("copy", _entry(c_void_p, c_int, c_void_p, c_int, c_size_t, c_void_p)),
        ("fill", _entry(c_int, c_void_p, c_uint8, c_size_t, c_void_p)),
        ("default_stream", _entry(c_int, POINTER(c_void_p))),
        ("stream_create", _entry(c_int, c_int, POINTER(c_void_p))),
        ("stream_destroy", _entry(c_void_p)),
        ("stream_query", _entry(c_void_p)),
        ("stream_synchronize", _entry(c_void_p)),
        ("stream_host_function", _entry(c_void_p, HostFunction, c_void_p)),
        ("event_create", _entry(c_int, c_int, POINTER(c_void_p))),
        ("event_destroy", _entry(c_void_p)),
        ("event_record", _entry(c_void_p, c_void_p)),
        ("event_query", _entry(c_void_p)),
        ("event_synchronize", _entry(c_void_p)),
        ("event_elapsed", _entry(c_void_p, c_void_p, POINTER(c_double))),
        ("stream_wait_event", _entry(c_void_p, c_void_p)),
        ("pinned_allocate", _entry(c_size_t, POINTER(c_void_p))),
        ("pinned_release", _entry(c_void_p)),
        ("pinned_contains", _entry(c_void_p)),
        ("host_window", _entry(c_void_p, result=c_void_p)),
    ]


class DriverFailure(Exception):
    """A call that did not return OPSMITH_OK."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(f"{status.name}: {text}")
        self.status = status
        self.text = text


class Driver:
    """A driver's entries as methods that raise :class:`DriverFailure`.

    Out-parameters are returned; ``call`` gives the bare status.
    """

    def __init__(self, path: Path | str) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.opsmith_get_driver.restype = POINTER(Table)
        self.table: Table = self.library.opsmith_get_driver().contents

    def call(self, entry: str, *arguments: Any) -> Status:
        return Status(getattr(self.table, entry)(*arguments))

    def last_error(self) -> str:
        text: bytes = self.table.last_error()
        return text.decode()

    def check(self, entry: str, *arguments: Any) -> None:
        status = self.call(entry, *arguments)
        if status is not Status.OK:
            raise DriverFailure(status, self.last_error())

    def get(self, entry: str, kind: Any, *arguments: Any) -> Any:
        """What an entry wrote to its last parameter, a pointer to a ``kind``."""
        value = kind()
        self.check(entry, *arguments, ctypes.byref(value))
        return value.value if hasattr(value, "value") else value

    def allocate(self, bytes_: int, device: int = 0) -> int:
        pointer: int = self.get("allocate", c_void_p, device, bytes_)
        return pointer

    def release(self, pointer: int, device: int = 0) -> None:
        self.check("release", device, pointer)

    def pinned(self, bytes_: int) -> int:
        pointer: int = self.get("pinned_allocate", c_void_p, bytes_)
        return pointer

    def stream(self, device: int = 0) -> int:
        stream: int = self.get("stream_create", c_void_p, device, 0)
        return stream

    def default_stream(self, device: int = 0) -> int:
        stream: int = self.get("default_stream", c_void_p, device)
        return stream

    def event(self, device: int = 0, timing: bool = True) -> int:
        event: int = self.get("event_create", c_void_p, device, int(timing))
        return event

    def read(self, pointer: int, bytes_: int, device: int = 0, stream: int | None = None) -> bytes:
        """The bytes at a device address, through an ordinary (pageable) copy."""
        buffer = ctypes.create_string_buffer(bytes_)
        self.check(
            "copy", buffer, HOST, pointer, device, bytes_, stream or self.default_stream(device)
        )
        return buffer.raw

    def write(self, pointer: int, data: bytes, device: int = 0, stream: int | None = None) -> None:
        self.check(
            "copy", pointer, device, data, HOST, len(data), stream or self.default_stream(device)
        )

    # ---- sim.h ----

    def inject(self, fault: str, count: int = 1) -> None:
        if self.library.opsmith_sim_inject(fault.encode(), ctypes.c_long(count)) != 0:
            raise DriverFailure(Status.INVALID_ARGUMENT, self.last_error())

    def clear_faults(self) -> None:
        self.library.opsmith_sim_clear_faults()

    def statistics(self, device: int = 0) -> Statistics:
        statistics = Statistics()
        if self.library.opsmith_sim_statistics(device, ctypes.byref(statistics)) != 0:
            raise DriverFailure(Status.INVALID_ARGUMENT, self.last_error())
        return statistics
