"""``opsmith_driver.h`` as ctypes sees it: the table of a driver, its entries by their groups, its statuses.

Holds the layout only.  :mod:`opsmith.driver.opened` calls a table, :mod:`opsmith.driver.served` fills one.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from typing import Any

ABI_VERSION = 1
"""``OPSMITH_DRIVER_ABI_VERSION``."""

HOST = -1
"""The "device" of a host address in ``copy``."""

GET_DRIVER = "opsmith_get_driver"
"""The one symbol that a driver exports."""
LAUNCH_FAILING_WORK = "opsmith_launch_failing_work"
"""One that it may export for ``opsmith driver check``."""

HostFunction = CFUNCTYPE(None, c_void_p)
"""The function type that ``stream_host_function`` takes."""


class Status(IntEnum):
    """``opsmith_status``."""

    OK = 0
    NOT_READY = 1
    OUT_OF_MEMORY = 2
    INVALID_ARGUMENT = 3
    FAILED = 4
    DEVICE_LOST = 5


class Properties(ctypes.Structure):
    """``opsmith_device_properties``."""

    _fields_ = (
        ("name", c_char * 128),
        ("architecture", c_char * 64),
        ("total_memory", c_uint64),
        ("alignment", c_uint32),
        ("multiprocessors", c_uint32),
    )


class Handle(ctypes.Structure):
    """``opsmith_memory_handle``."""

    _fields_ = (("bytes", c_uint8 * 64), ("file", c_int32))


def _entry(*arguments: Any, result: Any = c_int) -> Any:
    return CFUNCTYPE(result, *arguments)


class Table(ctypes.Structure):
    """``opsmith_driver``."""

    _fields_ = (
        ("abi_version", c_uint32),
        ("struct_size", c_uint32),
        ("name", c_char_p),
        ("last_error", _entry(result=c_void_p)),
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
        ("range_push", _entry(c_char_p)),
        ("range_pop", _entry()),
        ("memory_export", _entry(c_int, c_void_p, POINTER(Handle))),
        ("memory_import", _entry(c_int, POINTER(Handle), POINTER(c_void_p))),
        ("memory_unimport", _entry(c_int, c_void_p)),
        ("capture_begin", _entry(c_void_p)),
        ("capture_end", _entry(c_void_p, POINTER(c_void_p))),
        ("stream_is_captured", _entry(c_void_p, POINTER(c_int))),
        ("graph_launch", _entry(c_void_p, c_void_p)),
        ("graph_destroy", _entry(c_void_p)),
        ("graph_dump", _entry(c_void_p, c_char_p)),
    )


STREAMS = (
    "default_stream",
    "stream_create",
    "stream_destroy",
    "stream_query",
    "stream_synchronize",
)
EVENTS = (
    "event_create",
    "event_destroy",
    "event_record",
    "event_query",
    "event_synchronize",
    "event_elapsed",
    "stream_wait_event",
)
PINNED = ("pinned_allocate", "pinned_release", "pinned_contains")
RANGES = ("range_push", "range_pop")
SHARING = ("memory_export", "memory_import", "memory_unimport")
GRAPHS = (
    "capture_begin",
    "capture_end",
    "stream_is_captured",
    "graph_launch",
    "graph_destroy",
    "graph_dump",
)
REQUIRED = (
    "name",
    "last_error",
    "device_count",
    "device_properties",
    "device_memory",
    "allocate",
    "release",
    "copy",
    "fill",
    *STREAMS,
)
# Only these may say that work is pending.
QUERIES = frozenset({"stream_query", "event_query"})
