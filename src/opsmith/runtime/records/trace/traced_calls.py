"""The records of a trace as values: threads and the calls in them, with filters and routes.

Knows neither how it was recorded (``recording``) nor how it is written (``files``) or shown (``shown``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase

from opsmith.plan import Entry, Place, Plan, Route
from opsmith.schema import qualified


class How(Enum):
    """How something came to run; the value is what is shown in brackets."""

    CALL = "call"
    REDISPATCH = "redispatch"
    CALL_BOXED = "callBoxed"
    NODE = "backward"
    MODULE = "module"


@dataclass(frozen=True, slots=True)
class TracedTensor:
    """A tensor among a call's arguments; ``shape`` is None where it cannot be known."""

    dtype: str
    shape: tuple[int, ...] | None
    device: str

    def __str__(self) -> str:
        sizes = "?" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.dtype}[{sizes}]"


UNDEFINED = TracedTensor("undefined", (), "")
"""A Tensor that there is none of."""


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A kernel that the dispatcher ran; or a node of a backward, or the forward of a module.

    ``operator`` is the operator with its namespace and overload, the node's name or the module's path.
    ``key`` is the dispatch key of the kernel, empty for nodes and modules.  ``route`` is how the plan
    serves the operator on the loaded device, for kernels of that device; ``composite`` for those in
    which PyTorch decomposes.  ``tensors`` are None where shapes are not recorded; ``more_tensors``: there
    are more than these.  ``start`` is in nanoseconds since 1970; ``nanoseconds`` None where it has not
    returned.  ``depth`` counts what of the same thread it ran inside of.  ``in_backward``: it ran inside
    of a node.
    """

    how: How
    operator: str
    key: str
    route: str
    tensors: tuple[TracedTensor, ...] | None
    more_tensors: bool
    device: str
    start: int
    nanoseconds: int | None
    depth: int
    raised: bool
    in_backward: bool = False

    @property
    def ran_on_cpu(self) -> bool:
        """Whether it is the device's and had the CPU compute."""
        return self.route == Route.FALLBACK.value or self.route.endswith((_FELL_BACK, _ON_COPIES))


_FELL_BACK = ", fell back"
_ON_COPIES = ", on copies"


@dataclass(frozen=True)
class TracedThread:
    """The calls of one thread, in the order in which they began; ``dropped`` are those beyond the limit."""

    process: int
    thread: int
    name: str
    calls: tuple[TracedCall, ...]
    dropped: int = 0

    @property
    def is_main(self) -> bool:
        """Whether it is its process's first thread."""
        return self.process == self.thread


@dataclass(frozen=True)
class TraceFilter:
    """Which calls to show; what is empty, or None, lets all pass.

    ``operators`` and ``keys`` may hold wildcards; ``add`` stands for all overloads.  ``depth`` is the
    number of levels, counted from the calls that the program made itself.
    """

    operators: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    depth: int | None = None

    def passes(self, call: TracedCall) -> bool:
        return (
            (not self.operators or any(names(name, call.operator) for name in self.operators))
            and (not self.keys or any(fnmatchcase(call.key, key) for key in self.keys))
            and (not self.routes or bool(_routes(call).intersection(self.routes)))
            and (self.depth is None or call.depth < self.depth)
        )


def names(pattern: str, operator: str) -> bool:
    """Whether ``pattern`` means ``operator``, whose namespace and overload it may leave out."""
    full = operator if "::" in pattern else operator.rpartition("::")[2]
    return fnmatchcase(full, pattern) or fnmatchcase(full.partition(".")[0], pattern)


def _routes(call: TracedCall) -> set[str]:
    """The routes by which ``call`` can be asked for."""
    route = call.route.removesuffix(_ON_COPIES).removesuffix(_FELL_BACK)
    return {route, Route.FALLBACK.value} if call.route.endswith(_FELL_BACK) else {route}


def routed(
    threads: Iterable[TracedThread], plan: Plan | None, changed: Mapping[str, str] | None = None
) -> tuple[TracedThread, ...]:
    """``threads`` with the routes of ``plan``; ``changed`` are those of a process that differ.

    A kernel that handed its call to the CPU has the route ``kernel, fell back``, and one that computes on
    the host, on copies, ``kernel, on copies``.
    """
    if plan is None:
        return tuple(threads)
    entries = {qualified(name): entry for name, entry in plan.by_name.items()}
    return tuple(
        replace(thread, calls=tuple(_routed(thread.calls, entries, plan.unlisted, changed or {})))
        for thread in threads
    )


def _routed(
    calls: tuple[TracedCall, ...],
    entries: Mapping[str, Entry],
    unlisted: Route,
    changed: Mapping[str, str],
) -> Iterator[TracedCall]:
    for index, call in enumerate(calls):
        if call.key != "PrivateUse1":
            yield call
            continue
        route = changed.get(call.operator, call.route)
        entry = None if call.operator in changed else entries.get(call.operator)
        if entry is not None:
            route = entry.route.value
        elif route == Route.FALLBACK.value:
            route = unlisted.value
        if route != Route.FALLBACK.value and _fell_back(calls, index):
            route += _FELL_BACK
        elif route != Route.FALLBACK.value and entry is not None and entry.place is Place.COPIES:
            route += _ON_COPIES
        yield replace(call, route=route)


def _fell_back(calls: tuple[TracedCall, ...], index: int) -> bool:
    call = calls[index]
    for inner in calls[index + 1 :]:
        if inner.depth <= call.depth:
            return False
        if (
            inner.depth == call.depth + 1
            and inner.how is How.REDISPATCH
            and inner.operator == call.operator
            and inner.key == "CPU"
        ):
            return True
    return False


# ---- sums


@dataclass(frozen=True)
class Total:
    """The time of an operator's calls at one key: with what they called and, ``own_seconds``, without."""

    operator: str
    key: str
    route: str
    calls: int
    seconds: float
    own_seconds: float


@dataclass
class _Sum:
    calls: int = 0
    nanoseconds: int = 0
    own: int = 0
    open: int = field(default=0)


def totals(threads: Iterable[TracedThread], chosen: TraceFilter) -> tuple[Total, ...]:
    """The sums by operator, key and route, those that took the most time of their own first.

    Calls that did not return count with no time.
    """
    sums: dict[tuple[str, str, str], _Sum] = {}
    for thread in threads:
        stack: list[tuple[int, _Sum, bool]] = []
        for call in thread.calls:
            while stack and stack[-1][0] >= call.depth:
                stack.pop()[1].open -= 1
            took = call.nanoseconds or 0
            if stack:
                stack[-1][1].own -= took if stack[-1][2] else 0
            total = sums.setdefault((call.operator, call.key, call.route), _Sum())
            passes = chosen.passes(call)
            if passes:
                total.calls += 1
                total.own += took
                # A call inside of one like it is in that one's time already.
                total.nanoseconds += 0 if total.open else took
            total.open += 1
            stack.append((call.depth, total, passes))
        for _, total, _ in stack:
            total.open -= 1
    return tuple(
        sorted(
            (
                Total(*name, total.calls, total.nanoseconds / 1e9, max(0, total.own) / 1e9)
                for name, total in sums.items()
                if total.calls
            ),
            key=lambda total: (-total.own_seconds, total.operator, total.key),
        )
    )
