"""Another process, for checks of memory that processes share: it imports, reads and writes when it is told.

Started by :func:`importer`: ``python -m opsmith.vendor.driver_check.importer OPENING SOCKET``, with the
files of the handles that it is to import.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import sizeof
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import msgspec

from opsmith.driver.failures import DriverFailure
from opsmith.driver.table import Handle, Status
from opsmith.vendor.driver_check.call_notes import CallNotes
from opsmith.vendor.driver_check.model import Broken
from opsmith.vendor.driver_check.subject import Opening, Subject

_THIS = "opsmith.vendor.driver_check.importer"
_WAITING = "waiting for a process that imports memory"


class Importer:
    """A process that has the driver open too; a call of the driver's that fails there raises here."""

    def __init__(self, subject: Subject, connection: Connection) -> None:
        self._subject = subject
        self._connection = connection

    def imported(self, handle: Handle, device: int) -> int:
        """The address there of what was exported here, which is not NULL."""
        address = int(self._ask("imported", bytes(handle), device))
        if not address:
            raise Broken("an address", "`memory_import` returned OPSMITH_OK and NULL")
        return address

    def unimport(self, pointer: int, device: int) -> None:
        """Gives it up there."""
        self._ask("unimport", pointer, device)

    def read(self, pointer: int, bytes_: int, device: int) -> bytes:
        """The bytes at an address there."""
        found: bytes = self._ask("read", pointer, bytes_, device)
        return found

    def write(self, pointer: int, data: bytes, device: int) -> None:
        """Writes bytes there."""
        self._ask("write", pointer, data, device)

    def read_window(self, pointer: int, bytes_: int) -> bytes:
        """The bytes that the host sees there."""
        found: bytes = self._ask("read_window", pointer, bytes_)
        return found

    def free_memory(self, device: int) -> int:
        """The free bytes of a device, as the driver tells there."""
        return int(self._ask("free_memory", device))

    def _ask(self, what: str, *arguments: Any) -> Any:
        self._subject.notes(_WAITING)
        try:
            self._connection.send((what, *arguments))
            failure, answer = self._connection.recv()
        except (EOFError, OSError):
            raise Broken(
                "a process that goes on after it imports memory", f"it ended in `{what}`"
            ) from None
        self._subject.notes("")
        if failure:
            entry, status, text = failure
            raise DriverFailure(entry, Status(status), text)
        return answer


@contextmanager
def importer(subject: Subject, handles: Sequence[Handle]) -> Iterator[Importer]:
    """A process that may import ``handles``; it ends, without giving them up, when this does."""
    files = [handle.file for handle in handles if handle.file >= 0]
    here, there = Pipe()
    opening = msgspec.json.encode(subject.opening).decode()
    command = [sys.executable, "-m", _THIS, opening, str(there.fileno())]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[there.fileno(), *files])
    there.close()
    try:
        yield Importer(subject, here)
    finally:
        process.kill()
        process.wait()
        here.close()


class _Told:
    """The operations of the importing process."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def imported(self, handle: bytes, device: int) -> int:
        assert len(handle) == sizeof(Handle)
        return self._subject.driver.imported(Handle.from_buffer_copy(handle), device)

    def unimport(self, pointer: int, device: int) -> None:
        self._subject.driver.check("memory_unimport", device, pointer)

    def read(self, pointer: int, bytes_: int, device: int) -> bytes:
        return self._subject.read(pointer, bytes_, device)

    def write(self, pointer: int, data: bytes, device: int) -> None:
        self._subject.write(pointer, data, device)

    def read_window(self, pointer: int, bytes_: int) -> bytes:
        window = self._subject.driver.raw("host_window", pointer)
        return self._subject.host_copy(window, bytes_) if window else b""

    def free_memory(self, device: int) -> int:
        return self._subject.driver.memory(device)[0]


def main() -> None:
    """Does what it is told until nobody is there."""
    connection = Connection(int(sys.argv[2]))
    opening = msgspec.json.decode(sys.argv[1], type=Opening)
    # Its file loses its name at once: this process is ended by a signal as often as not.
    with tempfile.NamedTemporaryFile(prefix="opsmith-driver-check-") as notes:
        notes.write(bytes(CallNotes.SIZE))
        notes.flush()
        told = _Told(opening.subject(CallNotes(Path(notes.name))))
    with contextlib.suppress(EOFError, OSError):
        while True:
            what, *arguments = connection.recv()
            try:
                connection.send((None, getattr(told, what)(*arguments)))
            except DriverFailure as failure:
                connection.send(((failure.entry, int(failure.status), failure.text), None))
    os._exit(0)  # without the end of the interpreter: a driver's threads may still run


if __name__ == "__main__":
    main()
