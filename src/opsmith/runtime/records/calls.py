"""Recording the operator calls of a program: how often, how long, from where, and what fell back.

``csrc/opsmith/profile`` records, only while it is asked to.  ``opsmith coverage`` has a program write
what was recorded at exit, through ``OPSMITH_CALLS_REPORT``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from opsmith.runtime.loaded import loaded_backend
from opsmith.runtime.records.exit_files import write_at_exit

if TYPE_CHECKING:
    from opsmith.plan import Plan, Route

REPORT_VARIABLE = "OPSMITH_CALLS_REPORT"
"""A folder: at exit, each process that loaded a backend writes its calls there as ``<pid>.json``."""


@dataclass(frozen=True)
class Call:
    """All calls of one operator from one place in the tree of calls.

    ``operator`` is its name as the plan has it, or that of a node of the autograd graph (``AddBackward0``,
    with ``is_backward``), ``parent`` the call that was running, by its place in the tree; -1: none.
    ``on_device``: a Tensor or device among the arguments is the backend's.  Of the ``calls``,
    ``fell_back`` fell back to the CPU, and ``on_copies`` ran in a kernel on the host, on copies.  ``seconds``
    is the time of all calls, ``own_seconds`` without that of the calls inside them, ``fallback_seconds`` and
    ``copies_seconds`` the parts of it of those two.  ``bytes_moved`` is what was copied between host and
    device for the calls themselves, which it is for kernels and fallbacks without a host window.
    """

    operator: str
    parent: int
    is_backward: bool
    on_device: bool
    calls: int
    seconds: float
    own_seconds: float
    fell_back: int
    fallback_seconds: float
    on_copies: int
    copies_seconds: float
    bytes_moved: int


@dataclass(frozen=True)
class Calls:
    """Recorded calls as a tree: the parent of each stands before it."""

    tree: tuple[Call, ...] = ()

    @cached_property
    def by_operator(self) -> Mapping[str, int]:
        """The calls of each operator, nested ones too, on any device."""
        counts: Counter[str] = Counter()
        for call in self.tree:
            if not call.is_backward and call.calls:
                counts[call.operator] += call.calls
        return dict(counts)

    def by_route(self, plan: Plan) -> dict[Route, int]:
        """The calls of ATen operators by the route that ``plan`` gives each."""
        # Here: who loads a backend does without what plans.
        from opsmith.plan import Route

        counts = dict.fromkeys(Route, 0)
        for name, calls in self.by_operator.items():
            entry = plan.by_name.get(name)
            if entry is not None:
                counts[entry.route] += calls
        return counts


class RecordedBlock:
    """The calls that :func:`record_calls` recorded; filled in at the end of the block."""

    calls: Calls = Calls()


@contextmanager
def record_calls() -> Iterator[RecordedBlock]:
    """Records every operator call of all threads, nested ones too, while the block runs.

    Costs about 400 ns a call inside, nothing outside.  Recording is of the whole process: a block inside
    another ends the outer one's.
    """
    import torch

    block = RecordedBlock()
    torch.ops.opsmith.record_calls(True)
    try:
        yield block
    finally:
        torch.ops.opsmith.record_calls(False)
        block.calls = _recorded()


def _recorded() -> Calls:
    """The recorded calls of all threads, as one tree."""
    import torch

    rows = [
        Call(
            name,
            parent,
            bool(back),
            bool(there),
            calls,
            total / 1e9,
            own / 1e9,
            fell,
            fallback / 1e9,
            on_copies,
            copies / 1e9,
            moved,
        )
        for name, parent, back, there, calls, total, own, fell, fallback, on_copies, copies, moved in zip(
            *torch.ops.opsmith.recorded_calls(), strict=True
        )
    ]
    return merged([Calls(tuple(rows))])


def merged(several: Sequence[Calls]) -> Calls:
    """The calls of several threads or processes as one tree."""
    tree: list[Call] = []
    places: dict[tuple[int, str, bool, bool], int] = {}
    for calls in several:
        here: list[int] = []
        for call in calls.tree:
            parent = -1 if call.parent < 0 else here[call.parent]
            key = (parent, call.operator, call.is_backward, call.on_device)
            place = places.setdefault(key, len(tree))
            if place == len(tree):
                tree.append(replace(call, parent=parent))
            else:
                tree[place] = _sum(tree[place], call)
            here.append(place)
    return Calls(tuple(tree))


def _sum(one: Call, other: Call) -> Call:
    return replace(
        one,
        calls=one.calls + other.calls,
        seconds=one.seconds + other.seconds,
        own_seconds=one.own_seconds + other.own_seconds,
        fell_back=one.fell_back + other.fell_back,
        fallback_seconds=one.fallback_seconds + other.fallback_seconds,
        on_copies=one.on_copies + other.on_copies,
        copies_seconds=one.copies_seconds + other.copies_seconds,
        bytes_moved=one.bytes_moved + other.bytes_moved,
    )


def start() -> None:
    """Does, in a process that has just loaded a backend, what the environment asks for."""
    if folder := os.environ.get(REPORT_VARIABLE):
        import torch

        torch.ops.opsmith.record_calls(True)
        write_at_exit(folder, _report)


class CallsReport(msgspec.Struct):
    """The report that a process writes at exit: the backend's description and the recorded calls.

    ``registered`` are the plan's entries that Python kernels of the process serve, as JSON.
    """

    description: str
    calls: Calls
    registered: str = "[]"


def _report() -> CallsReport:
    from opsmith.plan.kept_plans import encoded_entries

    loaded = loaded_backend()
    return CallsReport(
        str(loaded.description), _recorded(), encoded_entries(loaded.registered_entries)
    )
