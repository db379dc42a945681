"""A trace as people and programs look at it: indented text, Perfetto's JSON, a table of sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from opsmith.runtime.records.trace.traced_calls import (
    How,
    Total,
    TracedCall,
    TracedThread,
    TraceFilter,
)


def text(threads: Sequence[TracedThread], chosen: TraceFilter) -> Iterator[str]:
    """A line for each call that passes, under what it was called from; threads apart where there are several.

    What is called by something left out stands under the nearest that is shown.
    """
    for thread in threads:
        above = [*header(thread, threads)]
        for call, depth in _nested(thread.calls, chosen):
            yield from above
            above = []
            yield f"{'  ' * depth}{line(call)}"


def header(thread: TracedThread, threads: Sequence[TracedThread]) -> Iterator[str]:
    """The line above the calls of ``thread``; none where it is the only one of ``threads``."""
    if len(threads) > 1:
        several = len({each.process for each in threads}) > 1
        yield f"{f'process {thread.process}, ' if several else ''}{_name(thread)}:"


def _name(thread: TracedThread) -> str:
    return "main thread" if thread.is_main else f"thread {thread.thread}"


def _nested(calls: Iterable[TracedCall], chosen: TraceFilter) -> Iterator[tuple[TracedCall, int]]:
    """The calls that pass, each with the number of those shown that it is inside of."""
    shown: list[int] = []
    for call in calls:
        while shown and shown[-1] >= call.depth:
            shown.pop()
        if chosen.passes(call):
            yield call, len(shown)
            shown.append(call.depth)


def line(call: TracedCall) -> str:
    """One call in words."""
    parts = [f"[{call.how.value}] {call.operator}"]
    if call.key:
        parts.append(f"key={call.key}")
    if call.route:
        parts.append(f"route={call.route}")
    if call.tensors is not None:
        parts.append(f"({_tensors(call)})")
    if call.device:
        parts.append(call.device)
    parts.append("did not return" if call.nanoseconds is None else duration(call.nanoseconds))
    if call.raised:
        parts.append("raised")
    return " ".join(parts)


def _tensors(call: TracedCall) -> str:
    shown = [
        str(tensor) if tensor.device in ("", call.device) else f"{tensor.device} {tensor}"
        for tensor in call.tensors or ()
    ]
    return ", ".join([*shown, "…"] if call.more_tensors else shown)


def duration(nanoseconds: int) -> str:
    """``12.3 µs``, or in milliseconds or seconds."""
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds / 1e3:.1f} µs"


# ---- for programs


def perfetto(threads: Sequence[TracedThread], chosen: TraceFilter) -> Iterator[bytes]:
    """The trace event format, in pieces, as ui.perfetto.dev and chrome://tracing open it; times in µs."""
    encode = msgspec.json.encode
    begin = min((thread.calls[0].start for thread in threads if thread.calls), default=0)
    yield b'{"displayTimeUnit":"ns","traceEvents":['
    separator = b""
    for event in _events(threads, chosen, begin):
        yield separator + encode(event)
        separator = b",\n"
    yield b"]}\n"


def _events(
    threads: Sequence[TracedThread], chosen: TraceFilter, begin: int
) -> Iterator[dict[str, Any]]:
    for process in {thread.process: None for thread in threads}:
        yield _named("process_name", process, process, f"process {process}")
    for thread in threads:
        yield _named("thread_name", thread.process, thread.thread, _name(thread))
        last = max((call.start + (call.nanoseconds or 0) for call in thread.calls), default=0)
        for call in thread.calls:
            if chosen.passes(call):
                end = last if call.nanoseconds is None else call.start + call.nanoseconds
                yield {
                    "name": call.operator,
                    "cat": "backward" if call.in_backward else call.how.value,
                    "ph": "X",
                    "ts": (call.start - begin) / 1e3,
                    "dur": (end - call.start) / 1e3,
                    "pid": thread.process,
                    "tid": thread.thread,
                    "args": _details(call),
                }


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _details(call: TracedCall) -> dict[str, str]:
    details = {"how": call.how.value, "key": call.key, "route": call.route, "device": call.device}
    if call.tensors is not None:
        details["tensors"] = _tensors(call)
    if call.nanoseconds is None:
        details["end"] = "did not return"
    elif call.raised:
        details["end"] = "raised"
    return {name: value for name, value in details.items() if value}


class CallRow(msgspec.Struct, omit_defaults=True):
    """A call in the JSON of ``opsmith trace``; fields as those of :class:`TracedCall`."""

    how: str
    operator: str
    depth: int
    start_ns: int
    ns: int | None
    key: str = ""
    route: str = ""
    device: str = ""
    tensors: list[str] | None = None
    raised: bool = False
    backward: bool = False


def rows(thread: TracedThread, chosen: TraceFilter) -> Iterator[CallRow]:
    """The calls of a thread that pass, for JSON."""
    for call in thread.calls:
        if chosen.passes(call):
            yield CallRow(
                how=call.how.value,
                operator=call.operator,
                depth=call.depth,
                start_ns=call.start,
                ns=call.nanoseconds,
                key=call.key,
                route=call.route,
                device=call.device,
                tensors=None if call.tensors is None else [str(each) for each in call.tensors],
                raised=call.raised,
                backward=call.in_backward or call.how is How.NODE,
            )


def table(sums: Sequence[Total]) -> Iterator[str]:
    """The sums as lines of text."""
    names = [(total.operator, total.key, total.route) for total in sums]
    header = ("operator", "key", "route")
    widths = [max(map(len, column)) for column in zip(header, *names, strict=True)]
    numbers = f"{'calls':>9} {'total ms':>11} {'own ms':>11}"
    yield f"{_columns(header, widths)} {numbers}"
    for total, name in zip(sums, names, strict=True):
        yield (
            f"{_columns(name, widths)} {total.calls:>9,} {total.seconds * 1e3:>11,.3f} "
            f"{total.own_seconds * 1e3:>11,.3f}"
        )


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
