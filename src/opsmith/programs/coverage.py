"""How much of PyTorch a backend serves, and how much of a program: by route, and what falls back.

Reads the plan, and of a program the calls that the runtime recorded.  ``opsmith coverage`` prints it, the
report shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opsmith.explain.advice import Advice, FallenBack, kernels_to_write
from opsmith.json_files import read_checked
from opsmith.plan import Entry, Plan, Route, decompositions
from opsmith.plan.kept_plans import decoded_entries
from opsmith.programs.process import Program
from opsmith.runtime.calls import REPORT_VARIABLE, Call, Calls, CallsReport, merged
from opsmith.schema import Catalogue

# ---- of a backend


@dataclass(frozen=True)
class Coverage:
    """How a backend serves a set of operators.

    ``routes`` has how many take each route, every route included.  Of the ``total``, ``on_cpu`` come to
    the fallback, by their own route or in what they are decomposed into, and ``refused`` to an error.
    """

    name: str
    total: int
    routes: Mapping[str, int]
    on_cpu: int
    refused: int


def backend_coverage(plan: Plan, catalogue: Catalogue) -> tuple[Coverage, ...]:
    """The coverage of all of ATen, and of the operators that PyTorch tags Core ATen."""
    reach = _Reach(plan, catalogue)
    known = [name for name in plan.by_name if name in catalogue.operators]
    core = [name for name in known if "core" in catalogue.operators[name].tags]
    return (_coverage("ATen", known, reach), _coverage("core ATen", core, reach))


def reached_routes(plan: Plan, catalogue: Catalogue) -> dict[str, frozenset[Route]]:
    """For each operator, the routes that a call comes to: its own, and those of its parts."""
    reach = _Reach(plan, catalogue)
    return {name: reach.of(name) for name in plan.by_name}


def entries_coverage(name: str, entries: Mapping[str, Iterable[str]], plan: Plan) -> Coverage:
    """The coverage of calls of which all operators that each makes are known, such as OpInfo's entries.

    The route of one is the least preferred that an operator in it takes, besides ``composite``.
    """
    reached = [
        frozenset(_route(plan, operator) for operator in called) for called in entries.values()
    ]
    return _summed(name, [least_preferred(routes) for routes in reached], reached)


def _coverage(name: str, operators: Iterable[str], reach: _Reach) -> Coverage:
    listed = list(operators)
    return _summed(
        name,
        [reach.plan.by_name[each].route for each in listed],
        [reach.of(each) for each in listed],
    )


def _summed(name: str, routes: list[Route], reached: list[frozenset[Route]]) -> Coverage:
    counted = Counter(routes)
    return Coverage(
        name=name,
        total=len(routes),
        routes={route.value: counted[route] for route in Route},
        on_cpu=sum(Route.FALLBACK in each for each in reached),
        refused=sum(bool(each & {Route.DENIED, Route.MISSING}) for each in reached),
    )


def least_preferred(routes: frozenset[Route]) -> Route:
    """The last of ``routes`` in the order of preference, besides ``composite``."""
    order = list(Route)
    leaves = routes - {Route.COMPOSITE} or routes
    return max(leaves, key=order.index, default=Route.COMPOSITE)


def _route(plan: Plan, operator: str) -> Route:
    entry = plan.by_name.get(operator)
    return plan.unlisted if entry is None else entry.route


class _Reach:
    """The routes that a call of an operator comes to, through what it is decomposed into."""

    def __init__(self, plan: Plan, catalogue: Catalogue) -> None:
        self.plan = plan
        self._catalogue = catalogue
        self._known: dict[str, frozenset[Route]] = {}

    def of(self, name: str) -> frozenset[Route]:
        if name not in self._known:
            self._known[name] = frozenset()  # meanwhile: a composite may call itself
            route, operator = _route(self.plan, name), self._catalogue.operators.get(name)
            found = frozenset({route})
            if route is Route.COMPOSITE and operator is not None:
                for calls in decompositions(operator, self._catalogue):
                    found = found.union(*map(self.of, calls))
            self._known[name] = found
        return self._known[name]


# ---- of a program

FORMAT = 1
"""The version of the file's format; a file of a newer one is refused."""


@dataclass(frozen=True)
class RouteUse:
    """The calls that took a route, by how many operators, and their own time in seconds."""

    route: str
    operators: int
    calls: int
    seconds: float


@dataclass(frozen=True)
class OperatorUse:
    """The calls of one operator by a program on the device.

    ``seconds`` is the operators' own time, without that of the operators they call.  Of the ``calls``,
    ``fell_back`` ran on the CPU, in ``fallback_seconds``.  ``bytes_moved`` were copied between host and
    device, because the driver has no host window.
    """

    name: str
    route: str
    library: str
    calls: int
    seconds: float
    fell_back: int
    fallback_seconds: float
    why: str
    bytes_moved: int = 0


@dataclass(frozen=True)
class ProgramCoverage:
    """How a backend served a program.

    ``status`` is its exit status.  ``routes`` has the routes that were used, in the plan's order of
    preference, and ``operators`` those that took most time first; calls that fell back are the route
    ``fallback``'s, whatever the plan has for other dtypes.  ``elsewhere`` are the calls on Tensors of other
    devices.  ``kernels`` is what to write next.
    """

    program: str
    backend: str
    torch: str
    status: int
    routes: tuple[RouteUse, ...]
    operators: tuple[OperatorUse, ...]
    kernels: tuple[Advice, ...]
    elsewhere: int
    format: int = FORMAT

    @property
    def calls(self) -> int:
        """The calls on the device."""
        return sum(route.calls for route in self.routes)

    @property
    def seconds(self) -> float:
        """The time in operators on the device."""
        return sum(route.seconds for route in self.routes)

    @property
    def fallback_seconds(self) -> float:
        """The time of what fell back."""
        return sum(operator.fallback_seconds for operator in self.operators)


def run_recorded(
    program: Program, *, backend: str | None
) -> tuple[int, str | None, Calls, tuple[Entry, ...]]:
    """Runs ``program`` to its end: its status, its backend's description, what it called, and its kernels.

    The last are the plan's entries that kernels in Python served in it.
    The description is None where no process of the program loaded a backend.  Raises
    :class:`~opsmith.errors.FileMissing`.
    """
    status, reports = program.run_reporting(REPORT_VARIABLE, CallsReport, backend=backend)
    description = reports[0].description if reports else None
    registered = {
        entry.name: entry for report in reports for entry in decoded_entries(report.registered)
    }
    calls = merged([report.calls for report in reports])
    return status, description, calls, tuple(registered.values())


def program_coverage(
    program: str, status: int, calls: Calls, plan: Plan, catalogue: Catalogue, share: float
) -> ProgramCoverage:
    """The coverage of ``calls`` by ``plan``'s backend, with the kernels that save ``share`` of the time."""
    used: dict[str, list[Call]] = {}
    for call in calls.tree:
        if call.on_device and not call.is_backward and call.calls:
            used.setdefault(call.operator, []).append(call)
    operators = sorted(
        (_use(name, each, plan) for name, each in used.items()),
        key=lambda use: (-use.seconds, use.name),
    )
    return ProgramCoverage(
        program=program,
        backend=plan.backend,
        torch=plan.torch,
        status=status,
        routes=_by_route(operators),
        operators=tuple(operators),
        kernels=kernels_to_write(_fallen(calls), plan, catalogue, share),
        elsewhere=sum(
            call.calls for call in calls.tree if not call.on_device and not call.is_backward
        ),
    )


def _use(name: str, calls: list[Call], plan: Plan) -> OperatorUse:
    entry = plan.by_name.get(name)
    return OperatorUse(
        name=name,
        route=_route(plan, name).value,
        library="" if entry is None else entry.library,
        calls=sum(call.calls for call in calls),
        seconds=sum(call.own_seconds for call in calls),
        fell_back=sum(call.fell_back for call in calls),
        fallback_seconds=sum(call.fallback_seconds for call in calls),
        why="the plan does not list it: another library's operator" if entry is None else entry.why,
        bytes_moved=sum(call.bytes_moved for call in calls),
    )


def _by_route(operators: list[OperatorUse]) -> tuple[RouteUse, ...]:
    fallback = Route.FALLBACK.value
    rows: dict[str, list[tuple[int, float]]] = {}
    for use in operators:
        if use.fell_back:
            rows.setdefault(fallback, []).append((use.fell_back, use.fallback_seconds))
        if served := use.calls - use.fell_back:
            # A fallback that is not counted as one is the runtime's own, and still the CPU's.
            rows.setdefault(use.route, []).append((served, use.seconds - use.fallback_seconds))
    return tuple(
        RouteUse(
            route.value,
            len(rows[route.value]),
            sum(calls for calls, _ in rows[route.value]),
            sum(seconds for _, seconds in rows[route.value]),
        )
        for route in Route
        if route.value in rows
    )


def _fallen(calls: Calls) -> list[FallenBack]:
    within: list[frozenset[str]] = []
    fallen = []
    for call in calls.tree:
        above = frozenset[str]() if call.parent < 0 else within[call.parent]
        within.append(above if call.is_backward else above | {call.operator})
        if call.fell_back:
            fallen.append(
                FallenBack(call.operator, call.fell_back, call.fallback_seconds, within=above)
            )
    return fallen


# ---- the file


def read_coverage(path: Path) -> ProgramCoverage:
    """The coverage that ``opsmith coverage --output FILE PROGRAM`` wrote to ``path``.

    Raises :class:`~opsmith.errors.FileMissing`, or :class:`~opsmith.errors.ResultsInvalid` for a file
    that holds none, or is of a newer version.
    """
    remedy = "write it with `opsmith coverage --output FILE PROGRAM`"
    return read_checked(path, ProgramCoverage, FORMAT, "coverage of a program", remedy)
