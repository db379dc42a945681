"""A driver in Python as a table of C: an instance's methods as callbacks, its exceptions as statuses.

The callbacks go to the small library of ``drivers/python``, which callers open like any driver.  ctypes takes
the interpreter's lock for each call, whichever thread it comes from; the library keeps calls away once the
interpreter ends.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import inspect
import itertools
import os
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opsmith.base.trusted_files import open_library
from opsmith.driver.failures import DeviceError, InvalidArgument
from opsmith.driver.python_driver import DeviceProperties, Driver, MemoryHandle
from opsmith.driver.table import (
    ABI_VERSION,
    EVENTS,
    GRAPHS,
    HOST,
    PINNED,
    RANGES,
    SHARING,
    STREAMS,
    Handle,
    Properties,
    Status,
    Table,
)
from opsmith.errors import DriverInvalid, Location

_REQUIRED = ("device_properties", "device_memory", "allocate", "release", "copy", "fill")
_SETS = {
    "streams": STREAMS,
    "events": EVENTS,
    "pinned memory": PINNED,
    "ranges": RANGES,
    "sharing": SHARING,
    "graphs": GRAPHS,
}
_ALONE = ("stream_host_function", "host_window")
_HANDLE_BYTES = Handle.bytes.size
# Callbacks and the instances behind them live as long as the process.
_kept: list[object] = []


def serve(driver: type[Driver], library: Path) -> None:
    """Has the built library of ``drivers/python`` serve an instance of ``driver``, for this process.

    Raises :class:`DriverInvalid` for a class that leaves out what is required, or whose instance cannot be
    made.
    """
    overridden = _overridden(driver)
    try:
        instance = driver()
    except Exception as error:
        raise DriverInvalid(
            f"the driver `{driver.__qualname__}` cannot be made: {_text(error)}",
            location=_place(driver),
            remedy="let the class be made without arguments",
        ) from error
    opened = open_library(library)
    table = _Callbacks(instance, opened).table(overridden)
    opened.opsmith_python_driver_open(ctypes.byref(table))
    _kept.append(table)
    owner = os.getpid()

    def close() -> None:
        if os.getpid() == owner:  # in a forked child nothing calls the driver
            opened.opsmith_python_driver_close()

    atexit.register(close)


def _overridden(driver: type[Driver]) -> frozenset[str]:
    """The methods that the class has of its own, once they are known to be enough."""
    own = frozenset(
        name
        for name in (*_REQUIRED, *itertools.chain(*_SETS.values()), *_ALONE)
        if getattr(driver, name) is not getattr(Driver, name)
    )
    missing = [name for name in _REQUIRED if name not in own]
    if missing:
        raise DriverInvalid(
            f"the driver `{driver.__qualname__}` has no `{missing[0]}`, which is required",
            location=_place(driver),
            remedy=f"define it: def {missing[0]}{_signature(missing[0])}",
        )
    for what, names in _SETS.items():
        missing = [name for name in names if name not in own]
        if missing and len(missing) < len(names):
            raise DriverInvalid(
                f"the driver `{driver.__qualname__}` has {len(names) - len(missing)} of the {len(names)} "
                f"methods for {what}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
                location=_place(driver),
                remedy="define all of them or none",
            )
    if "stream_host_function" in own and "stream_create" not in own:
        raise DriverInvalid(
            f"the driver `{driver.__qualname__}` has `stream_host_function`, but no streams",
            location=_place(driver),
            remedy=f"define {', '.join(STREAMS)} too, or leave it out",
        )
    return own


def _signature(method: str) -> str:
    return str(inspect.signature(getattr(Driver, method))).replace("'", "")


def _place(driver: type[Driver]) -> Location | None:
    try:
        path, line = inspect.getsourcefile(driver), inspect.getsourcelines(driver)[1]
    except (OSError, TypeError):
        return None
    return Location(Path(path), line) if path else None


def _text(error: BaseException) -> str:
    """``error`` in one line."""
    if isinstance(error, DeviceError):
        said = error.message
    else:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return " ".join(said.split())


def _placed_text(error: BaseException) -> str:
    """``error`` in one line, with the line of the driver that did not mean to raise it."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, DeviceError) or not frames or frames[-1].filename == __file__:
        return _text(error)
    return f"{_text(error)} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def _status(error: BaseException) -> Status:
    if isinstance(error, DeviceError):
        return error.status
    return Status.OUT_OF_MEMORY if isinstance(error, MemoryError) else Status.FAILED


class _Handles:
    """Python objects by the numbers that stand for them in C."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._objects: dict[int, Any] = {}
        self._next = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, value: Any) -> int:
        with self._lock:
            handle = next(self._next)
            self._objects[handle] = value
        return handle

    def find(self, handle: int | None) -> Any:
        try:
            return self._objects[handle or 0]
        except KeyError:
            raise InvalidArgument(f"there is no {self._what} {handle}") from None

    def drop(self, handle: int | None) -> None:
        self._objects.pop(handle or 0, None)


class _Callbacks:
    """The entries of the table, each around a method of ``driver``."""

    def __init__(self, driver: Driver, library: ctypes.CDLL) -> None:
        self._driver = driver
        self._set_error = library.opsmith_python_driver_set_error
        self._set_error.restype = None
        self._set_error.argtypes = [ctypes.c_char_p]
        self._streams = _Handles("stream")
        self._events = _Handles("event")
        self._graphs = _Handles("graph")
        self._default_streams: dict[int, int] = {}
        self._making_default = threading.Lock()
        self._has_streams = False

    def table(self, overridden: frozenset[str]) -> Table:
        """A table with the required entries, and the optional ones whose methods are ``overridden``."""
        self._has_streams = "stream_create" in overridden
        name = str(self._driver.name).encode()
        table = Table(abi_version=ABI_VERSION, struct_size=ctypes.sizeof(Table), name=name)
        for entry, kind in Table._fields_:
            if entry == "device_count" or entry in overridden:
                body = getattr(self, f"_{entry}")
                if entry not in {"pinned_contains", "host_window"}:
                    body = self._with_status(body)
                setattr(table, entry, kind(body))
        return table

    def _with_status(self, body: Callable[..., Status | None]) -> Callable[..., int]:
        def entry(*arguments: Any) -> int:
            try:
                status = body(*arguments)
            except BaseException as error:  # none may reach the caller, which is C
                self._set_error(_placed_text(error).encode(errors="replace"))
                return int(_status(error))
            return int(status or Status.OK)

        return entry

    # ---- devices ----

    @functools.cached_property
    def _count(self) -> int:
        return int(self._driver.device_count())

    def _device_count(self, count: Any) -> None:
        count[0] = self._count

    def _known(self, device: int) -> int:
        if not 0 <= device < self._count:
            raise InvalidArgument(f"there is no device {device}; there are {self._count}")
        return device

    def _device_properties(self, device: int, properties: Any) -> None:
        found = self._returned(
            "device_properties",
            self._driver.device_properties(self._known(device)),
            DeviceProperties,
        )
        properties[0] = Properties(
            str(found.name).encode()[:127],
            str(found.architecture).encode()[:63],
            found.total_memory,
            found.alignment,
            found.multiprocessors,
        )

    def _device_memory(self, device: int, free: Any, total: Any) -> None:
        free[0], total[0] = self._driver.device_memory(self._known(device))

    @staticmethod
    def _returned(method: str, value: Any, kind: type) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"`{method}` returned {value!r}, not {kind.__name__}")
        return value

    def _address(self, method: str, value: Any) -> int:
        address = int(self._returned(method, value, int))
        if address <= 0:
            raise ValueError(f"`{method}` returned {address}, which is no address")
        return address

    # ---- memory ----

    def _allocate(self, device: int, nbytes: int, pointer: Any) -> None:
        address = self._driver.allocate(self._known(device), nbytes)
        pointer[0] = self._address("allocate", address)

    def _release(self, device: int, pointer: int | None) -> None:
        self._driver.release(self._known(device), pointer or 0)

    def _copy(
        self,
        destination: int | None,
        destination_device: int,
        source: int | None,
        source_device: int,
        nbytes: int,
        stream: int | None,
    ) -> None:
        for device in (destination_device, source_device):
            if device != HOST:
                self._known(device)
        self._driver.copy(
            destination or 0,
            destination_device,
            source or 0,
            source_device,
            nbytes,
            self._stream(stream),
        )

    def _fill(
        self, device: int, destination: int | None, value: int, nbytes: int, stream: int | None
    ) -> None:
        stream = self._stream(stream)
        self._driver.fill(self._known(device), destination or 0, value, nbytes, stream)

    # ---- streams ----

    def _stream(self, handle: int | None) -> Any:
        return self._streams.find(handle) if self._has_streams else None

    def _default_stream(self, device: int, stream: Any) -> None:
        self._known(device)
        with self._making_default:
            if device not in self._default_streams:
                made = self._driver.default_stream(device)
                self._default_streams[device] = self._streams.add(made)
        stream[0] = self._default_streams[device]

    def _stream_create(self, device: int, priority: int, stream: Any) -> None:
        stream[0] = self._streams.add(self._driver.stream_create(self._known(device), priority))

    def _stream_destroy(self, stream: int | None) -> None:
        if stream in self._default_streams.values():
            raise InvalidArgument("a device's default stream is never destroyed")
        self._driver.stream_destroy(self._stream(stream))
        self._streams.drop(stream)

    def _stream_query(self, stream: int | None) -> Status:
        done = self._driver.stream_query(self._stream(stream))
        return Status.OK if self._returned("stream_query", done, bool) else Status.NOT_READY

    def _stream_synchronize(self, stream: int | None) -> None:
        self._driver.stream_synchronize(self._stream(stream))

    def _stream_host_function(
        self, stream: int | None, function: Any, argument: int | None
    ) -> None:
        self._driver.stream_host_function(self._stream(stream), lambda: function(argument))

    # ---- events ----

    def _event_create(self, device: int, timing: int, event: Any) -> None:
        made = self._driver.event_create(self._known(device), bool(timing))
        event[0] = self._events.add(made)

    def _event_destroy(self, event: int | None) -> None:
        self._driver.event_destroy(self._events.find(event))
        self._events.drop(event)

    def _event_record(self, event: int | None, stream: int | None) -> None:
        self._driver.event_record(self._events.find(event), self._stream(stream))

    def _event_query(self, event: int | None) -> Status:
        done = self._driver.event_query(self._events.find(event))
        return Status.OK if self._returned("event_query", done, bool) else Status.NOT_READY

    def _event_synchronize(self, event: int | None) -> None:
        self._driver.event_synchronize(self._events.find(event))

    def _event_elapsed(self, start: int | None, end: int | None, milliseconds: Any) -> None:
        first, last = self._events.find(start), self._events.find(end)
        milliseconds[0] = float(self._driver.event_elapsed(first, last))

    def _stream_wait_event(self, stream: int | None, event: int | None) -> None:
        self._driver.stream_wait_event(self._stream(stream), self._events.find(event))

    # ---- sharing ----

    def _memory_export(self, device: int, pointer: int | None, handle: Any) -> None:
        exported = self._driver.memory_export(self._known(device), pointer or 0)
        found = self._returned("memory_export", exported, MemoryHandle)
        if len(found.data) > _HANDLE_BYTES:
            raise ValueError(
                f"`memory_export` returned {len(found.data)} bytes; a handle has room for {_HANDLE_BYTES}"
            )
        padded = bytes(found.data).ljust(_HANDLE_BYTES, b"\0")
        handle[0] = Handle(
            (ctypes.c_uint8 * _HANDLE_BYTES)(*padded), -1 if found.file is None else found.file
        )

    def _memory_import(self, device: int, handle: Any, pointer: Any) -> None:
        given = handle[0]
        file = None if given.file < 0 else given.file
        found = MemoryHandle(bytes(given.bytes), file)
        address = self._driver.memory_import(self._known(device), found)
        pointer[0] = self._address("memory_import", address)

    def _memory_unimport(self, device: int, pointer: int | None) -> None:
        self._driver.memory_unimport(self._known(device), pointer or 0)

    # ---- graphs ----

    def _capture_begin(self, stream: int | None) -> None:
        self._driver.capture_begin(self._stream(stream))

    def _capture_end(self, stream: int | None, graph: Any) -> None:
        graph[0] = self._graphs.add(self._driver.capture_end(self._stream(stream)))

    def _stream_is_captured(self, stream: int | None, is_captured: Any) -> None:
        answer = self._driver.stream_is_captured(self._stream(stream))
        is_captured[0] = self._returned("stream_is_captured", answer, bool)

    def _graph_launch(self, graph: int | None, stream: int | None) -> None:
        self._driver.graph_launch(self._graphs.find(graph), self._stream(stream))

    def _graph_destroy(self, graph: int | None) -> None:
        self._driver.graph_destroy(self._graphs.find(graph))
        self._graphs.drop(graph)

    def _graph_dump(self, graph: int | None, path: bytes) -> None:
        self._driver.graph_dump(self._graphs.find(graph), os.fsdecode(path))

    # ---- pinned memory and the window: no status, so what goes wrong is a "no" ----

    def _pinned_allocate(self, nbytes: int, pointer: Any) -> None:
        pointer[0] = self._address("pinned_allocate", self._driver.pinned_allocate(nbytes))

    def _pinned_release(self, pointer: int | None) -> None:
        self._driver.pinned_release(pointer or 0)

    def _pinned_contains(self, pointer: int | None) -> Any:
        return self._answered(False, self._driver.pinned_contains, pointer)

    def _host_window(self, pointer: int | None) -> Any:
        return self._answered(None, self._driver.host_window, pointer)

    # ---- ranges ----

    def _range_push(self, text: bytes) -> None:
        self._driver.range_push(text.decode(errors="replace"))

    def _range_pop(self) -> None:
        self._driver.range_pop()

    # ---- answers without a status ----

    def _answered(self, otherwise: Any, method: Callable[[int], Any], pointer: int | None) -> Any:
        if not pointer:
            return otherwise
        try:
            return method(pointer)
        except BaseException as error:  # as above
            self._set_error(_text(error).encode(errors="replace"))
            return otherwise
