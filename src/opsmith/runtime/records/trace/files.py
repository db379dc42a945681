"""Reads the files that a traced process wrote: ``csrc/trace/record.h`` says what is in them.

They are read after the process has ended, however it ended, so a last record may be cut off.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from opsmith.plan import Route
from opsmith.runtime.records.trace.traced_calls import (
    UNDEFINED,
    How,
    TracedCall,
    TracedTensor,
    TracedThread,
)

_HEADER = struct.Struct("<16sQQII16sQ")
_FIRST_RECORD = 128
_RECORD = struct.Struct("<QQIHHHbbBBBB")
_MAGIC = b"opsmith trace 1\0"
_NO_SIZES = 255
_RAISED, _MORE_TENSORS = 1, 2
_HOW = (How.CALL, How.REDISPATCH, How.CALL_BOXED, How.NODE, How.MODULE)
# Kind in record.h: kernel, math kernel, default backend kernel, backend fallback, autograd kernel.
_ROUTES = (
    Route.KERNEL.value,
    Route.COMPOSITE.value,
    Route.COMPOSITE.value,
    Route.FALLBACK.value,
    "",
)


def read_threads(folder: Path, *, shapes: bool) -> dict[int, list[TracedThread]]:
    """The threads by process, each process's main thread first, then in the order in which they began."""
    found: dict[int, list[TracedThread]] = {}
    names: dict[int, _Names] = {}
    for path in sorted(folder.glob("*.calls")):
        content = path.read_bytes()
        if len(content) < _FIRST_RECORD or not content.startswith(_MAGIC):
            continue
        _, used, dropped, process, thread, name, _ = _HEADER.unpack_from(content)
        if process not in names:
            names[process] = _Names(folder / f"{process}.names")
        calls = tuple(_calls(content, _FIRST_RECORD + used, names[process], shapes))
        if calls or dropped:
            found.setdefault(process, []).append(
                TracedThread(process, thread, name.rstrip(b"\0").decode(), calls, dropped)
            )
    for threads in found.values():
        threads.sort(key=lambda each: (not each.is_main, _start(each)))
    return dict(sorted(found.items(), key=lambda item: _start(item[1][0])))


def _start(thread: TracedThread) -> int:
    return thread.calls[0].start if thread.calls else 0


class _Names:
    """A process's file of names: a line for each name, number of PyTorch's and look at the clock."""

    def __init__(self, path: Path) -> None:
        self.names: list[str] = []
        self.keys: dict[int, str] = {}
        self.dtypes: dict[int, str] = {}
        self.devices: dict[int, str] = {}
        clock: list[tuple[int, int]] = []
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "N":
                self.names.append(rest)
                continue
            number, _, value = rest.partition(" ")
            if kind == "C":
                clock.append((int(number), int(value)))
            elif kind in "KTD":
                {"K": self.keys, "T": self.dtypes, "D": self.devices}[kind][int(number)] = value
        # A process that was killed as it began, or found the disk full, told no times.
        clock = clock or [(0, 0)]
        (self._ticks, self._nanoseconds), (ticks, nanoseconds) = clock[0], clock[-1]
        self._per = (nanoseconds - self._nanoseconds, max(1, ticks - self._ticks))
        self.known: dict[bytes, tuple[TracedTensor, ...]] = {}

    def name(self, number: int) -> str:
        return self.names[number] if number < len(self.names) else f"#{number}"

    def time(self, ticks: int) -> int:
        """Nanoseconds since 1970."""
        nanoseconds, per_ticks = self._per
        return self._nanoseconds + (ticks - self._ticks) * nanoseconds // per_ticks

    def device(self, kind: int, index: int) -> str:
        name = self.devices.get(kind, str(kind))
        return f"{name}:{index}" if index >= 0 and name != "cpu" else name

    def tensors(self, details: bytes) -> tuple[TracedTensor, ...]:
        if details not in self.known:
            self.known[details] = tuple(self._tensors(details))
        return self.known[details]

    def _tensors(self, details: bytes) -> Iterator[TracedTensor]:
        words = struct.unpack(f"<{len(details) // 8}Q", details)
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word == (1 << 64) - 1:
                yield UNDEFINED
                continue
            index = (word >> 16) & 255
            dims = word >> 24
            shape = None if dims == _NO_SIZES else words[at : at + dims]
            at += len(shape or ())
            device = self.device((word >> 8) & 255, index if index < 128 else -1)
            yield TracedTensor(self.dtypes.get(word & 255, "?"), shape, device)


def _calls(content: bytes, end: int, names: _Names, shapes: bool) -> Iterator[TracedCall]:
    at = _FIRST_RECORD
    end = min(end, len(content))
    nodes: list[int] = []  # the depths of those that the current call is inside of
    while at + _RECORD.size <= end:
        fields = _RECORD.unpack_from(content, at)
        start, finish, name, key, words, depth, device, index, how, kind, flags, _ = fields
        at += _RECORD.size
        details = content[at : at + 8 * words]
        at += 8 * words
        if not start:
            return  # the process ended as it wrote this
        while nodes and nodes[-1] >= depth:
            nodes.pop()
        came = _HOW[how]
        is_call = came not in (How.NODE, How.MODULE)
        began = names.time(start)
        yield TracedCall(
            how=came,
            operator=names.name(name),
            key=names.keys.get(key, str(key)) if is_call else "",
            route=_route(names.keys.get(key, ""), kind) if is_call else "",
            tensors=names.tensors(details) if is_call and shapes else None,
            more_tensors=bool(flags & _MORE_TENSORS),
            device=names.device(device, index) if device >= 0 else "",
            start=began,
            nanoseconds=names.time(finish) - began if finish else None,
            depth=depth,
            raised=bool(flags & _RAISED),
            in_backward=bool(nodes),
        )
        if came is How.NODE:
            nodes.append(depth)


def _route(key: str, kind: int) -> str:
    """The route, as far as the dispatcher itself knows it; else empty."""
    route = _ROUTES[kind]
    return route if key == "PrivateUse1" or route == Route.COMPOSITE.value else ""
