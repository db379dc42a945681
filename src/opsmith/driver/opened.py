"""A driver's table, called from Python: no PyTorch in between.

The checks of ``opsmith driver check`` and the tests of drivers stand on it.  Whoever gives it addresses that
do not exist gets what the driver makes of them, which may be a crash.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_double, c_int, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from opsmith.base import trusted_files
from opsmith.driver.failures import DriverFailure, StatusUnknown
from opsmith.driver.table import ABI_VERSION, GET_DRIVER, HOST, Handle, Properties, Status, Table
from opsmith.errors import DriverInvalid

Note = Callable[[str], None]
"""Told of each entry before it is called, and of ``""`` when it has returned."""


def open_library(path: Path | str) -> ctypes.CDLL:
    """The shared library ``path``.  Raises :class:`DriverInvalid` where it is none, or no driver."""
    try:
        library = trusted_files.open_library(path)
    except OSError as error:
        raise DriverInvalid(
            f"the driver cannot be opened: {error}",
            remedy=f"build the driver, and make sure that the libraries it needs can be found (ldd {path})",
        ) from None
    if not hasattr(library, GET_DRIVER):
        raise DriverInvalid(
            f"{path} is no opsmith driver: it does not export `{GET_DRIVER}`",
            remedy='declare it extern "C" with default visibility',
        )
    return library


def table_of(library: ctypes.CDLL, path: Path | str) -> Table:
    """The table that ``library`` hands out, of whatever version it is.

    Raises :class:`DriverInvalid` where there is none, or one of another version of the header.
    """
    get_driver = getattr(library, GET_DRIVER)
    get_driver.restype = POINTER(Table)
    pointer = get_driver()
    if not pointer:
        raise DriverInvalid(
            f"`{GET_DRIVER}` of {path} returned NULL", remedy="let it return the driver's table"
        )
    table: Table = pointer.contents
    size = ctypes.sizeof(Table)
    if (table.abi_version, table.struct_size) != (ABI_VERSION, size):
        raise DriverInvalid(
            f"the driver {path} was built with version {table.abi_version} of opsmith_driver.h (a table of "
            f"{table.struct_size} bytes), but this opsmith has version {ABI_VERSION} ({size} bytes)",
            remedy="rebuild the driver with this opsmith's header",
        )
    return table


class OpenedDriver:
    """A driver's entries as methods that raise :class:`DriverFailure`.

    Out-parameters are returned; ``call`` gives the bare status.  Sizes are in bytes.
    """

    def __init__(self, path: Path | str, note: Note = lambda entry: None) -> None:
        self.library = open_library(path)
        self.table = table_of(self.library, path)
        self.note = note

    def raw(self, entry: str, *arguments: Any) -> Any:
        """The return value of the entry, without a check."""
        self.note(entry)
        result = getattr(self.table, entry)(*arguments)
        self.note("")
        return result

    def call(self, entry: str, *arguments: Any) -> Status:
        """The entry's status.  Raises :class:`StatusUnknown` for a number that is none."""
        number: int = self.raw(entry, *arguments)
        try:
            return Status(number)
        except ValueError:
            raise StatusUnknown(entry, number) from None

    def last_error(self) -> str:
        """This thread's last error; raises :class:`DriverFailure` where it is NULL."""
        address = self.raw("last_error")
        if not address:
            raise DriverFailure("last_error", Status.FAILED, "last_error() returned NULL")
        return ctypes.string_at(address).decode(errors="replace")

    def check(self, entry: str, *arguments: Any) -> None:
        """Calls the entry; raises :class:`DriverFailure` unless it returns OK."""
        status = self.call(entry, *arguments)
        if status is not Status.OK:
            raise DriverFailure(entry, status, self.last_error())

    def get(self, entry: str, kind: Any, *arguments: Any) -> Any:
        """The value that an entry wrote to its last parameter, a pointer to a ``kind``."""
        value = kind()
        self.check(entry, *arguments, ctypes.byref(value))
        return value.value if hasattr(value, "value") else value

    # ---- devices ----

    def device_count(self) -> int:
        """The number of devices."""
        count: int = self.get("device_count", c_int)
        return count

    def properties(self, device: int = 0) -> Properties:
        """The properties of a device, from the driver."""
        found: Properties = self.get("device_properties", Properties, device)
        return found

    def memory(self, device: int = 0) -> tuple[int, int]:
        """The free and the total bytes of a device."""
        free, total = c_uint64(), c_uint64()
        self.check("device_memory", device, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    # ---- memory ----

    def allocate(self, bytes_: int, device: int = 0) -> int:
        """The address of new memory; 0 where the driver says OK and gives NULL."""
        pointer: int | None = self.get("allocate", c_void_p, device, bytes_)
        return pointer or 0

    def release(self, pointer: int, device: int = 0) -> None:
        """Gives memory back."""
        self.check("release", device, pointer)

    def pinned(self, bytes_: int) -> int:
        """The address of new pinned host memory; 0 where the driver says OK and gives NULL."""
        pointer: int | None = self.get("pinned_allocate", c_void_p, bytes_)
        return pointer or 0

    def read(self, pointer: int, bytes_: int, device: int = 0, stream: int | None = None) -> bytes:
        """The bytes at a device address, through an ordinary (pageable) copy."""
        buffer = ctypes.create_string_buffer(bytes_)
        self.check(
            "copy", buffer, HOST, pointer, device, bytes_, stream or self.default_stream(device)
        )
        return buffer.raw

    def write(self, pointer: int, data: bytes, device: int = 0, stream: int | None = None) -> None:
        """Copies ``data`` to a device address."""
        self.check(
            "copy", pointer, device, data, HOST, len(data), stream or self.default_stream(device)
        )

    # ---- memory shared with other processes ----

    def exported(self, pointer: int, device: int = 0) -> Handle:
        """The handle of an allocation for another process; its file, if any, is the caller's."""
        handle: Handle = self.get("memory_export", Handle, device, pointer)
        return handle

    def imported(self, handle: Handle, device: int = 0) -> int:
        """The address of memory of another process; 0 where the driver says OK and gives NULL."""
        pointer: int | None = self.get("memory_import", c_void_p, device, ctypes.byref(handle))
        return pointer or 0

    # ---- streams and events ----

    def stream(self, device: int = 0, priority: int = 0) -> int:
        """A new stream; 0 where the driver says OK and gives NULL."""
        stream: int | None = self.get("stream_create", c_void_p, device, priority)
        return stream or 0

    def default_stream(self, device: int = 0) -> int:
        """The device's default stream; 0 where the driver says OK and gives NULL."""
        stream: int | None = self.get("default_stream", c_void_p, device)
        return stream or 0

    def synchronize(self, stream: int) -> None:
        """Waits until the stream's work is done."""
        self.check("stream_synchronize", stream)

    def event(self, device: int = 0, timing: bool = True) -> int:
        """A new event; 0 where the driver says OK and gives NULL."""
        event: int | None = self.get("event_create", c_void_p, device, int(timing))
        return event or 0

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds between two events."""
        milliseconds: float = self.get("event_elapsed", c_double, start, end)
        return milliseconds
