"""A trace in short: the calls that a program itself made on its device, and what of them ran on the CPU.

``opsmith trace`` shows it where no option asks for certain calls.  Calls off the device and repetitions are
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from opsmith.runtime.records.trace.shown import duration, header, line
from opsmith.runtime.records.trace.traced_calls import TracedCall, TracedThread

_LONGEST = 2000
"""Items that may repeat as a whole, such as a step of training."""

_NAMED = 3
"""Operators that are named of those off the device."""


@dataclass(frozen=True)
class _Item:
    """A call as lines, or several off the device; those of one ``kind`` differ in sizes and times only."""

    kind: object
    lines: tuple[str, ...]
    nanoseconds: int


def short(threads: Sequence[TracedThread]) -> Iterator[str]:
    """The trace in short as lines of text."""
    for thread in threads:
        if items := [*_items(thread.calls)]:
            yield from header(thread, threads)
            yield from _lines(items)


def touches_device(calls: Iterable[TracedCall]) -> bool:
    """Whether any of ``calls`` is of a backend's device."""
    return any("PrivateUse1" in call.key for call in calls)


def _items(calls: Sequence[TracedCall]) -> Iterator[_Item]:
    off: list[TracedCall] = []
    for tree in _trees(calls):
        if not touches_device(tree):
            off.append(tree[0])
            continue
        if off:
            yield _counted(off)
            off = []
        yield _shown(tree)
    if off:
        yield _counted(off)


def _trees(calls: Sequence[TracedCall]) -> Iterator[Sequence[TracedCall]]:
    """Each call that is inside of no other, with all that is inside of it."""
    begin = 0
    for end in range(1, len(calls) + 1):
        if end == len(calls) or calls[end].depth <= calls[begin].depth:
            yield calls[begin:end]
            begin = end


def _counted(calls: Sequence[TracedCall]) -> _Item:
    counts = Counter(call.operator for call in calls)
    names = [name for name, _ in counts.most_common(_NAMED)]
    whole = sum(call.nanoseconds or 0 for call in calls)
    said = f"{len(calls):,} call{'s' if len(calls) > 1 else ''} off the device: {', '.join(names)}"
    said += f", … {duration(whole)}" if len(counts) > _NAMED else f" {duration(whole)}"
    return _Item(frozenset(counts), (said,), whole)


def _shown(tree: Sequence[TracedCall]) -> _Item:
    call = served = tree[0]
    for inner in tree[1:]:
        if served.key == "PrivateUse1" or inner.operator != call.operator:
            break
        served = inner  # the device's kernel stands for the keys above it
    inside = [] if served.ran_on_cpu else [_one(inner) for inner in tree if inner.ran_on_cpu]
    whole = _one(replace(call, key=served.key, route=served.route))
    return replace(
        whole,
        kind=(whole.kind, *(inner.kind for inner in inside)),
        lines=(*whole.lines, *(f"  {each}" for each in _lines(inside))),
    )


def _one(call: TracedCall) -> _Item:
    return _Item((call.operator, call.key, call.route), (line(call),), call.nanoseconds or 0)


def _lines(items: Sequence[_Item]) -> Iterator[str]:
    numbers: dict[object, int] = {}
    kinds = [numbers.setdefault(item.kind, len(numbers)) for item in items]
    begin = 0
    while begin < len(items):
        period, times = _repetition(items, kinds, begin)
        end = begin + period * times
        if times == 1:
            yield from items[begin].lines
        else:
            whole = sum(item.nanoseconds for item in items[begin:end])
            yield f"{times:,} times, {duration(whole)} in all, the last:"
            yield from (f"  {each}" for each in _lines(items[end - period : end]))
        begin = end


def _repetition(items: Sequence[_Item], kinds: Sequence[int], begin: int) -> tuple[int, int]:
    """The number of items from ``begin`` on that repeat, and how often they come: what saves most lines."""
    best, most = (1, 1), 0
    end = begin
    while True:
        try:
            end = kinds.index(kinds[begin], end + 1, begin + _LONGEST + 1)
        except ValueError:
            return best
        period, times = end - begin, 1
        block = kinds[begin:end]
        while kinds[begin + times * period : begin + (times + 1) * period] == block:
            times += 1
        saved = (times - 1) * sum(len(item.lines) for item in items[begin:end]) - 1
        if saved > most:
            best, most = (period, times), saved
