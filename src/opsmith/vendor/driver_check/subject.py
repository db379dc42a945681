"""The driver that a check works on: opened, with what every check asks of it again and again.

Statuses that no entry may return break the contract here, whatever is being checked.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from opsmith.driver.failures import DriverFailure, StatusUnknown
from opsmith.driver.named import driver_class
from opsmith.driver.opened import Note, OpenedDriver
from opsmith.driver.served import serve
from opsmith.driver.table import (
    EVENTS,
    GRAPHS,
    HOST,
    LAUNCH_FAILING_WORK,
    PINNED,
    QUERIES,
    RANGES,
    SHARING,
    Status,
)
from opsmith.vendor.driver_check.call_notes import CallNotes
from opsmith.vendor.driver_check.model import Broken, Needs

_PIECE = 65_521  # a prime: no address that is off by a round number finds the same bytes


class CheckedDriver(OpenedDriver):
    """An opened driver whose failures break the contract, unless a check says that it expects them."""

    def __init__(self, path: Path | str, note: Note) -> None:
        self.called: set[str] = set()
        super().__init__(path, note)

    def raw(self, entry: str, *arguments: Any) -> Any:
        self.called.add(entry)
        return super().raw(entry, *arguments)

    def call(self, entry: str, *arguments: Any) -> Status:
        try:
            status = super().call(entry, *arguments)
        except StatusUnknown as error:
            raise Broken("an opsmith_status (0 to 5)", error.message) from None
        if status is Status.NOT_READY and entry not in QUERIES:
            raise Broken(
                "OPSMITH_NOT_READY from the two queries only",
                f"`{entry}` returned OPSMITH_NOT_READY",
            )
        return status


class Opening(msgspec.Struct, frozen=True):
    """How a process opens a driver: its library, and the class behind it where there is one."""

    library: str
    host_window: bool
    source: str = ""
    name: str = ""

    def subject(self, notes: CallNotes) -> Subject:
        """The driver, opened in this process, once.  Raises :class:`OpsmithError`."""
        if self.name:
            path = Path(self.source)
            source = path if path.suffix == ".py" else self.source
            serve(driver_class(source, self.name), Path(self.library))
        return Subject(self, notes)


class Subject:
    """A driver, opened in this process; ``driver`` has its entries."""

    def __init__(self, opening: Opening, notes: CallNotes) -> None:
        self.driver = CheckedDriver(opening.library, notes)
        self.notes = notes
        self.opening = opening
        self.host_window = opening.host_window
        self.chance = random.Random(0)

    @property
    def called(self) -> tuple[str, ...]:
        """The entries that were called so far."""
        return tuple(sorted(self.driver.called))

    @property
    def devices(self) -> range:
        """The ordinals that exist."""
        return range(self.driver.device_count())

    def has(self, need: Needs) -> bool:
        """Whether the driver has what a check needs."""
        table = self.driver.table
        if need is Needs.TWO_DEVICES:
            return self.driver.device_count() > 1
        if need is Needs.HOST_WINDOW:
            return self.host_window and bool(table.host_window)
        if need is Needs.FAILING_WORK:
            return hasattr(self.driver.library, LAUNCH_FAILING_WORK)
        entries = {
            Needs.EVENTS: EVENTS,
            Needs.PINNED: PINNED,
            Needs.RANGES: RANGES,
            Needs.SHARING: SHARING,
            Needs.GRAPHS: GRAPHS,
            Needs.HOST_FUNCTION: ("stream_host_function",),
        }
        return all(getattr(table, entry) for entry in entries[need])

    def data(self, count: int) -> bytes:
        """``count`` bytes of chance, the same in each run; beyond 64 KiB they come again, at odd places."""
        piece = self.chance.randbytes(min(count, _PIECE))
        return (piece * (count // _PIECE + 1))[:count]

    # ---- what has to be given back ----

    @contextmanager
    def block(self, bytes_: int, device: int = 0) -> Iterator[int]:
        """Device memory, released at the end."""
        pointer = self.allocated(bytes_, device)
        yield pointer
        self.driver.release(pointer, device)

    def allocated(self, bytes_: int, device: int = 0) -> int:
        """Device memory, which is not NULL."""
        pointer = self.driver.allocate(bytes_, device)
        if not pointer:
            raise Broken("an address", f"`allocate` of {bytes_} bytes returned OPSMITH_OK and NULL")
        return pointer

    def stream(self, device: int = 0, priority: int = 0) -> AbstractContextManager[int]:
        """A stream, which is not NULL, destroyed at the end."""
        made = self.driver.stream(device, priority)
        return self._given(made, "a stream", "stream_create", "stream_destroy")

    def event(self, device: int = 0, timing: bool = True) -> AbstractContextManager[int]:
        """An event, which is not NULL, destroyed at the end."""
        made = self.driver.event(device, timing)
        return self._given(made, "an event", "event_create", "event_destroy")

    def pinned(self, bytes_: int) -> AbstractContextManager[int]:
        """Pinned host memory, released at the end."""
        pointer = self.driver.pinned(bytes_)
        return self._given(pointer, "an address", "pinned_allocate", "pinned_release")

    @contextmanager
    def _given(self, made: int, what: str, entry: str, end: str) -> Iterator[int]:
        if not made:
            raise Broken(what, f"`{entry}` returned OPSMITH_OK and NULL")
        yield made
        self.driver.check(end, made)

    # ---- what is done again and again ----

    def fill(self, pointer: int, value: int, bytes_: int, stream: int, device: int = 0) -> None:
        """Queues a fill."""
        self.driver.check("fill", device, pointer, value, bytes_, stream)

    def copy_within(self, to: int, source: int, bytes_: int, stream: int, device: int = 0) -> None:
        """Queues a copy within a device."""
        self.driver.check("copy", to, device, source, device, bytes_, stream)

    def read(self, pointer: int, bytes_: int, device: int = 0, stream: int | None = None) -> bytes:
        """The bytes at a device address; waits for the stream, as PyTorch does."""
        stream = stream or self.driver.default_stream(device)
        buffer = ctypes.create_string_buffer(bytes_)
        self.driver.check("copy", buffer, HOST, pointer, device, bytes_, stream)
        self.driver.synchronize(stream)
        return buffer.raw

    def write(self, pointer: int, data: bytes, device: int = 0, stream: int | None = None) -> None:
        """Writes bytes to a device address; waits for the stream, as PyTorch does."""
        stream = stream or self.driver.default_stream(device)
        self.driver.write(pointer, data, device, stream)
        self.driver.synchronize(stream)

    def host_copy(self, window: int, bytes_: int) -> bytes:
        """The bytes that the host reads at ``window``; a crash is told as one of reading them."""
        self.notes("reading host memory that the driver gave")
        content = ctypes.string_at(window, bytes_)
        self.notes("")
        return content

    def host_write(self, window: int, data: bytes) -> None:
        """The host writes ``data`` at ``window``; a crash is told as one of writing it."""
        self.notes("writing host memory that the driver gave")
        ctypes.memmove(window, data, len(data))
        self.notes("")

    def round_trip(self, what: str, device: int = 0) -> None:
        """Breaks unless the device still takes and gives back bytes; ``what`` came before."""
        data = self.data(1000)
        try:
            with self.block(1000, device) as pointer:
                self.write(pointer, data, device)
                found = self.read(pointer, 1000, device)
        except DriverFailure as failure:
            raise Broken(f"a device that works after {what}", failure.happened) from None
        expect_bytes(found, data, f"a copy to the device and back, after {what}")


def expect_bytes(found: bytes, wanted: bytes, what: str) -> None:
    """Breaks unless the bytes of ``what`` are as they were ``wanted``."""
    if found == wanted:
        return
    at = next(index for index, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
    wrong = sum(a != b for a, b in zip(found, wanted, strict=True))
    raise Broken(
        f"{what}: {len(wanted)} bytes as they were written",
        f"{wrong} of them differ, the first at offset {at} (0x{found[at]:02x} for 0x{wanted[at]:02x})",
    )
