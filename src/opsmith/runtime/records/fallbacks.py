"""Counts of the calls that ran on the CPU, with their time, bytes, reasons and callers.

Two kinds run there in the device's place: those that fall back, and those of kernels that run on the host, on
copies of the device's memory (:attr:`~opsmith.plan.Place.COPIES`).

The counting is in ``csrc/opsmith/fallback`` and always on; only callers' lines are recorded
on request.  ``opsmith fallbacks`` has a program write its counts at exit, through
``OPSMITH_FALLBACK_REPORT``.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from opsmith.runtime.loaded import loaded_backend
from opsmith.runtime.records.exit_files import write_at_exit
from opsmith.runtime.records.library_folders import library_folders

if TYPE_CHECKING:
    from opsmith.plan import Plan

REPORT_VARIABLE = "OPSMITH_FALLBACK_REPORT"
"""A folder: at exit, each process that loaded a backend writes its counts there as ``<pid>.json``."""
CALLERS_VARIABLE = "OPSMITH_FALLBACK_CALLERS"
"""Not empty: callers' lines are recorded from the start."""


@dataclass(frozen=True)
class FallbackCount:
    """The cost of one operator overload on the CPU.

    Of the ``calls``, ``kernel_calls`` ran in a kernel on copies; the others fell back.  ``seconds`` is the
    time from the call to its return, waiting for the device included; ``bytes_moved`` what was copied
    between host and device, 0 with a host window.  ``callers`` maps
    ``file:line``, or the node of a backward, to calls; empty unless callers were asked for.  ``denied``
    are the calls that raised because the policy denies them; they are not among ``calls``.
    """

    operator: str
    calls: int
    seconds: float
    bytes_moved: int
    reason: str
    callers: Mapping[str, int] = field(default_factory=dict)
    denied: int = 0
    kernel_calls: int = 0


@dataclass(frozen=True)
class Fallbacks:
    """The counts by operator, those that took the most time first."""

    counts: tuple[FallbackCount, ...]

    @property
    def calls(self) -> int:
        return sum(count.calls for count in self.counts)

    @property
    def kernel_calls(self) -> int:
        """The calls that ran in a kernel on copies, of :attr:`calls`."""
        return sum(count.kernel_calls for count in self.counts)

    @property
    def seconds(self) -> float:
        return sum(count.seconds for count in self.counts)

    @property
    def bytes_moved(self) -> int:
        return sum(count.bytes_moved for count in self.counts)

    @property
    def denied(self) -> int:
        """The calls that raised because the policy denies them."""
        return sum(count.denied for count in self.counts)

    def __getitem__(self, operator: str) -> FallbackCount:
        """The counts of ``operator``; of one that never ran on the CPU all are 0."""
        for count in self.counts:
            if count.operator == operator:
                return count
        return FallbackCount(operator, 0, 0.0, 0, "it did not run on the CPU")

    def __str__(self) -> str:
        if not self.counts:
            return "no operator ran on the CPU"
        width = max(len(count.operator) for count in self.counts)
        rows = [f"{'operator':<{width}} {'calls':>9} {'ms':>11} {'MB moved':>9}  reason"]
        rows += [
            f"{count.operator:<{width}} {count.calls:>9,} {count.seconds * 1e3:>11,.2f} "
            f"{count.bytes_moved / 1e6:>9,.1f}  {count.reason}"
            for count in self.counts
        ]
        return "\n".join(rows)


def fallbacks(since: Fallbacks | None = None) -> Fallbacks:
    """The calls that ran on the CPU since a backend was loaded, or ``since`` an earlier answer.

    Raises :class:`~opsmith.errors.LoadError` where no backend is loaded.
    """
    plan = loaded_backend().plan
    before = {count.operator: count for count in since.counts} if since else {}
    counts = []
    for operator, calls, kernel_calls, denied, nanoseconds, moved, refusals, callers in _columns():
        old = before.get(operator, FallbackCount(operator, 0, 0.0, 0, ""))
        counts.append(
            FallbackCount(
                operator,
                calls - old.calls,
                max(0.0, nanoseconds / 1e9 - old.seconds),
                moved - old.bytes_moved,
                _reason(plan, operator, refusals, on_copies=kernel_calls > 0),
                {
                    caller: times - old.callers.get(caller, 0)
                    for caller, times in callers.items()
                    if times > old.callers.get(caller, 0)
                },
                denied - old.denied,
                kernel_calls - old.kernel_calls,
            )
        )
    return ranked(count for count in counts if count.calls or count.denied)


def ranked(counts: Iterator[FallbackCount]) -> Fallbacks:
    """``counts``, those that took the most time first."""
    return Fallbacks(tuple(sorted(counts, key=lambda count: (-count.seconds, count.operator))))


@dataclass
class CountedBlock:
    """The counts of :func:`count_fallbacks`; filled in at the end of the block."""

    fallbacks: Fallbacks = field(default_factory=lambda: Fallbacks(()))


@contextmanager
def count_fallbacks(*, callers: bool = True) -> Iterator[CountedBlock]:
    """Counts what runs on the CPU in all threads while the block runs, by default with the callers' lines.

    A caller's line is the innermost one of Python that is neither PyTorch's nor opsmith's; finding it
    costs some 20 µs for each call that runs there.

    Raises :class:`~opsmith.errors.LoadError` where no backend is loaded.
    """
    counted = CountedBlock()
    start = fallbacks()
    if callers:
        _callers.ask()
    try:
        yield counted
    finally:
        if callers:
            _callers.cease()
        counted.fallbacks = fallbacks(since=start)


class _Callers:
    """Whether callers' lines are wanted: as long as one who asked has not ceased."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking = 0

    def ask(self) -> None:
        self._change(1)

    def cease(self) -> None:
        self._change(-1)

    def _change(self, by: int) -> None:
        import torch

        with self._lock:
            self._asking += by
            left_out = [*library_folders(), "<eval_with_key>", _inductors_code()]
            torch.ops.opsmith.ask_for_fallback_callers(self._asking > 0, left_out)


def _inductors_code() -> str:
    """How the files begin in which Inductor keeps its code, without the import that would tell."""
    default = os.path.join(tempfile.gettempdir(), "torchinductor_")
    return os.path.abspath(os.environ.get("TORCHINDUCTOR_CACHE_DIR", default))


_callers = _Callers()


def start() -> None:
    """Does, in a process that has just loaded a backend, what the environment asks for."""
    if os.environ.get(CALLERS_VARIABLE):
        _callers.ask()
    if folder := os.environ.get(REPORT_VARIABLE):
        write_at_exit(folder, _report)


class FallbackReport(msgspec.Struct):
    """The report that a process writes at exit: the backend, its description and what ran on the CPU."""

    backend: str
    description: str
    fallbacks: Fallbacks


def _report() -> FallbackReport:
    loaded = loaded_backend()
    return FallbackReport(loaded.name, str(loaded.description), fallbacks())


def _columns() -> Iterator[tuple[str, int, int, int, int, int, dict[str, int], dict[str, int]]]:
    import torch

    return zip(*torch.ops.opsmith.fallback_counts(), strict=True)


def _reason(plan: Plan, operator: str, refusals: Mapping[str, int], *, on_copies: bool) -> str:
    """Why ``operator`` ran on the CPU, in the words of the plan and of the kernels that refused."""
    # Here: who loads a backend does without what plans.
    from opsmith.plan import Route

    reasons = [
        f"the kernel refused {times:,} {'call' if times == 1 else 'calls'}: {reason}"
        for reason, times in sorted(refusals.items(), key=lambda item: -item[1])
    ]
    entry = plan.by_name.get(operator)
    if entry is None:
        reasons.append("the plan does not list it: another library's operator")
    elif not reasons or on_copies or entry.is_on_cpu or entry.other_dtypes is Route.FALLBACK:
        reasons.append(entry.why)
    return "; ".join(reasons)
