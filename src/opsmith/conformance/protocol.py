"""Messages between a run and its workers: one line of JSON a message, over pipes.

Beside the messages stands one small file that both map into memory, where the worker says what it is
about to do: when it crashes or hangs, that is all that is left to read.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import msgspec

from opsmith.conformance.results import Status


class Setting(msgspec.Struct):
    """The settings of all units, sent to a worker first.

    Where ``fuzz`` is given, tasks are random programs, whose texts load the backend by that name.
    """

    description: str
    samples: int
    seed: int
    kernels: str | None = None
    fuzz: str = ""


class Task(msgspec.Struct):
    """One entry in one dtype, and the checks to make of it."""

    entry: str
    dtype: str
    checks: list[str]


class Ready(msgspec.Struct, tag=True):
    """The worker has loaded the backend and the database; ``loaded`` says how the former came."""

    loaded: str


class Refusal(msgspec.Struct, tag=True):
    """The worker cannot begin."""

    message: str
    remedy: str = ""


class Ended(msgspec.Struct, tag=True):
    """One check of the task has ended."""

    check: str
    status: Status
    samples: int
    seconds: float
    message: str


class Done(msgspec.Struct, tag=True):
    """The task is done; ``operators`` are those that the device was asked for."""

    operators: list[str]


Message = Ready | Refusal | Ended | Done

_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: msgspec.Struct) -> bytes:
    """The message as a line."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message of a worker's line."""
    return _decoder.decode(line)


class Board:
    """The mapped file: the number of the sample that is running, whether on the device, and a note."""

    _LAYOUT = struct.Struct("<i?i")
    _NOTE = 1 << 16

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(self._LAYOUT.size + self._NOTE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self._LAYOUT.size + self._NOTE)
        self._length = 0

    def at(self, sample: int, *, on_device: bool) -> None:
        """Says what is about to run."""
        self._LAYOUT.pack_into(self._memory, 0, sample, on_device, self._length)

    def note(self, text: bytes) -> None:
        """Says what it is that will run, where the sample's number does not; nothing, if it is too long."""
        self._length = len(text) if len(text) <= self._NOTE else 0
        self._memory[self._LAYOUT.size : self._LAYOUT.size + self._length] = text[: self._length]

    def read(self) -> tuple[int, bool, bytes]:
        """The sample's number, whether it runs on the device, and the note."""
        sample, on_device, length = self._LAYOUT.unpack_from(self._memory, 0)
        return sample, on_device, self._memory[self._LAYOUT.size : self._LAYOUT.size + length]
