"""A rank that calls a driver's table of collectives, without PyTorch; for ``test_cuda_collectives.py``.

``python nccl_rank.py DRIVER PART``, with RANK, SIZE and DEVICE in the environment, and ID, the file by which
ranks find each other.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable
from ctypes import c_int, c_size_t, c_void_p
from pathlib import Path

from opsmith.driver import OpenedDriver


class _Table(ctypes.Structure):
    _fields_ = (
        ("versions", ctypes.c_uint32 * 2),
        ("name", ctypes.c_char_p),
        ("last_error", c_void_p),
        ("make_id", c_void_p),
        ("join", c_void_p),
        ("leave", c_void_p),
        ("all_reduce", c_void_p),
        ("broadcast", c_void_p),
        ("all_gather", c_void_p),
        ("reduce_scatter", c_void_p),
        ("all_to_all", c_void_p),
    )


driver = OpenedDriver(sys.argv[1])
driver.library.opsmith_get_collectives.restype = ctypes.POINTER(_Table)
rank, size, device = (int(os.environ[name]) for name in ("RANK", "SIZE", "DEVICE"))
# By opsmith_element: how struct packs it; bfloat16 is the upper half of float32.
FORMATS = ("f", "d", "e", "bfloat16", "q", "i", "b", "B")
REDUCTIONS: tuple[Callable[[int, int], int], ...] = (
    lambda a, b: a + b,
    lambda a, b: a * b,
    min,
    max,
)


def packed(element: int, *values: int) -> bytes:
    if FORMATS[element] == "bfloat16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{FORMATS[element]}", *values)


class Communicator:
    """The rank's part in a group of all, and a stream of its own."""

    def __init__(self) -> None:
        found = driver.library.opsmith_get_collectives()
        if not found:
            raise RuntimeError(driver.last_error())
        self._table = found.contents
        self._own = c_void_p()
        group, file = ctypes.create_string_buffer(128), Path(os.environ["ID"])
        if rank == 0:
            self._call("make_id", group)
            file.with_suffix(".new").write_bytes(group.raw)
            file.with_suffix(".new").rename(file)
        while not file.exists():
            time.sleep(0.01)
        group.raw = file.read_bytes()
        places = c_int(rank), c_int(size), c_int(device)
        self._call("join", group, *places, ctypes.byref(self._own))
        self.stream = driver.stream(device)

    def _call(self, entry: str, *arguments: object) -> None:
        if ctypes.CFUNCTYPE(c_int)(getattr(self._table, entry))(*arguments):
            raise RuntimeError(driver.last_error())

    def queue(self, entry: str, *arguments: object) -> None:
        self._call(entry, self._own, *arguments, c_void_p(self.stream))

    def leave(self) -> None:
        ctypes.CFUNCTYPE(None)(self._table.leave)(self._own)

    def memory(self, data: bytes, room: int = 0) -> c_void_p:
        """``data`` on the device, at the beginning of ``room`` bytes."""
        pointer = driver.allocate(max(room, len(data)), device)
        driver.write(pointer, data, device, self.stream)
        return c_void_p(pointer)

    def expect(self, pointer: c_void_p, data: bytes) -> None:
        found = driver.read(pointer.value or 0, len(data), device, self.stream)
        assert found == data, (found[:16], data[:16])


def values() -> None:
    """Each collective, in place too, whatever the group's size up to two."""
    made = Communicator()
    rows = ((3, 2), (2, 5))[:size]
    for element, reduction in ((e, r) for e in range(len(FORMATS)) for r in range(len(REDUCTIONS))):
        reduced = [
            each[0] if size == 1 else REDUCTIONS[reduction](*each)
            for each in zip(*rows, strict=True)
        ]
        kind = c_int(element), c_int(reduction)
        x = made.memory(packed(element, *rows[rank]))
        made.queue("all_reduce", x, x, c_size_t(2), *kind)
        made.expect(x, packed(element, *reduced))
        x = made.memory(packed(element, *rows[rank][:size]))
        for out in (made.memory(b"", 8), x):
            made.queue("reduce_scatter", x, out, c_size_t(1), *kind)
            made.expect(out, packed(element, reduced[rank]))

    parts = [bytes([each, each + 100] * (1 << 20)) for each in range(size)]  # more than a step
    own, every, bytes_ = parts[rank], b"".join(parts), c_size_t(len(parts[0]))
    x = made.memory(own)
    made.queue("broadcast", x, bytes_, c_int(size - 1))
    made.expect(x, parts[-1])
    room = made.memory(own, len(every))
    for source in (made.memory(own), room):
        made.queue("all_gather", source, room, bytes_)
        made.expect(room, every)
        driver.write(room.value or 0, own, device, made.stream)
    place = c_void_p((room.value or 0) + rank * len(own))
    driver.write(place.value or 0, own, device, made.stream)
    made.queue("all_gather", place, room, bytes_)
    made.expect(room, every)
    x, room = made.memory(own * size), made.memory(b"", len(every))
    for out in (room, x):
        made.queue("all_to_all", x, out, bytes_)
        made.expect(out, every)

    # In the stream's order, before and behind the collective.
    x = made.memory(b"\0", 1)
    driver.check("fill", device, x, 1 + rank, 1, made.stream)
    made.queue("all_reduce", x, x, c_size_t(1), c_int(FORMATS.index("B")), c_int(0))
    made.expect(x, bytes([sum(range(1, size + 1))]))
    made.leave()


def joining() -> None:
    """Joins, and says what it is told."""
    try:
        Communicator()
    except RuntimeError as error:
        print(error)


def pending() -> None:
    """Rank 0 leaves what rank 1 never calls, and its stream goes on."""
    made = Communicator()
    if rank == 0:
        x = made.memory(b"\1")
        made.queue("all_reduce", x, x, c_size_t(1), c_int(FORMATS.index("B")), c_int(0))
        print(driver.call("stream_query", made.stream).name)
        made.leave()
        driver.synchronize(made.stream)


PARTS = {part.__name__: part for part in (values, joining, pending)}
if __name__ == "__main__":
    PARTS[sys.argv[2]]()
