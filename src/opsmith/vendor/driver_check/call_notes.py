"""In which entry of a driver each thread is, for whoever finds the process crashed or hanging.

The checking process writes to a file of fixed size, which its parent reads when there is no answer.
"""

from __future__ import annotations

import mmap
import threading
from pathlib import Path

_SLOT = 64
_SLOTS = 16


class CallNotes:
    """In which entry each thread of the checking process is, in a file of fixed size."""

    SIZE = _SLOT * _SLOTS

    def __init__(self, path: Path) -> None:
        self._file = open(path, "r+b")  # noqa: SIM115 - open as long as the process
        self._bytes = mmap.mmap(self._file.fileno(), self.SIZE)
        self._own = threading.local()
        self._taken = 0
        self._lock = threading.Lock()

    def __call__(self, entry: str) -> None:
        slot: int | None = getattr(self._own, "slot", None)
        if slot is None:
            with self._lock:
                slot = self._own.slot = self._taken % _SLOTS
                self._taken += 1
        self._bytes[slot * _SLOT : (slot + 1) * _SLOT] = entry.encode()[:_SLOT].ljust(_SLOT, b"\0")

    @staticmethod
    def read(path: Path) -> tuple[str, ...]:
        """The entries that did not return, without repetition."""
        content = path.read_bytes()
        slots = (content[start : start + _SLOT] for start in range(0, len(content), _SLOT))
        return tuple(dict.fromkeys(slot.rstrip(b"\0").decode() for slot in slots if slot[0]))
