"""How much of PyTorch, and of a program, a backend serves: by route, and by where it is computed.

Reads the plan, and of a program the calls that the runtime recorded.  ``opsmith coverage`` prints it, the
report shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opsmith.base.json_files import JsonFile
from opsmith.observe.explain.advice import Advice, HostCalls, kernels_to_write
from opsmith.observe.programs.process import Program
from opsmith.plan import Entry, Place, Plan, Route, decompositions
from opsmith.plan.kept_plans import decoded_entries
from opsmith.runtime.records.calls import REPORT_VARIABLE, Call, Calls, CallsReport, merged
from opsmith.schema import Catalogue

# ---- of a backend


@dataclass(frozen=True)
class Coverage:
    """How a backend serves a set of operators.

    ``routes`` has how many take each route, every route included, and ``places`` how many are computed at
    each place, the host's where a part of what they are decomposed into is; not those of whose parts nothing
    is known.  Of the ``total``, ``on_cpu`` come to the fallback, by their own route or in their parts, and
    ``refused`` to an error.
    """

    name: str
    total: int
    routes: Mapping[str, int]
    on_cpu: int
    refused: int
    places: Mapping[str, int] = field(default_factory=dict)


def backend_coverage(plan: Plan, catalogue: Catalogue) -> tuple[Coverage, ...]:
    """The coverage of all of ATen, and of the operators that PyTorch tags Core ATen."""
    reach = _Reach(plan, catalogue)
    known = [name for name in plan.by_name if name in catalogue.operators]
    core = [name for name in known if "core" in catalogue.operators[name].tags]
    return (_coverage("ATen", known, reach), _coverage("core ATen", core, reach))


def reached_routes(plan: Plan, catalogue: Catalogue) -> dict[str, frozenset[Route]]:
    """For each operator, the routes that a call comes to: its own, and those of its parts."""
    reach = _Reach(plan, catalogue)
    return {name: _routes(reach.of(name)) for name in plan.by_name}


def entries_coverage(name: str, entries: Mapping[str, Iterable[str]], plan: Plan) -> Coverage:
    """The coverage of calls of which all operators that each makes are known, such as OpInfo's entries.

    The route of one is the least preferred that an operator in it takes, besides ``composite``.
    """
    reached = [
        frozenset(_service(plan, operator) for operator in called) for called in entries.values()
    ]
    return _summed(name, [least_preferred(_routes(each)) for each in reached], reached)


def _coverage(name: str, operators: Iterable[str], reach: _Reach) -> Coverage:
    listed = list(operators)
    return _summed(
        name,
        [reach.plan.by_name[each].route for each in listed],
        [reach.of(each) for each in listed],
    )


def _summed(name: str, routes: list[Route], reached: list[frozenset[_Service]]) -> Coverage:
    counted = Counter(routes)
    refused = [bool(_routes(each) & {Route.DENIED, Route.MISSING}) for each in reached]
    places = Counter(
        _farthest(each) for each, is_refused in zip(reached, refused, strict=True) if not is_refused
    )
    return Coverage(
        name=name,
        total=len(routes),
        routes={route.value: counted[route] for route in Route},
        on_cpu=sum(Route.FALLBACK in _routes(each) for each in reached),
        refused=sum(refused),
        places={place.value: places[place] for place in Place},
    )


# The route of an operator and its place.
_Service = tuple[Route, Place | None]


def _routes(services: frozenset[_Service]) -> frozenset[Route]:
    return frozenset(route for route, _ in services)


def _farthest(services: frozenset[_Service]) -> Place | None:
    """The place of ``services`` that is farthest from the device; None where none is known."""
    order = list(Place)
    places = {place for _, place in services if place is not None}
    return max(places, key=order.index, default=None)


def least_preferred(routes: frozenset[Route]) -> Route:
    """The last of ``routes`` in the order of preference, besides ``composite``."""
    order = list(Route)
    leaves = routes - {Route.COMPOSITE} or routes
    return max(leaves, key=order.index, default=Route.COMPOSITE)


def _service(plan: Plan, operator: str) -> _Service:
    entry = plan.by_name.get(operator)
    if entry is None:
        return plan.unlisted, plan.host if plan.unlisted is Route.FALLBACK else None
    return entry.route, entry.place


class _Reach:
    """The routes and places that a call of an operator comes to, through what it is decomposed into."""

    def __init__(self, plan: Plan, catalogue: Catalogue) -> None:
        self.plan = plan
        self._catalogue = catalogue
        self._known: dict[str, frozenset[_Service]] = {}

    def of(self, name: str) -> frozenset[_Service]:
        if name not in self._known:
            self._known[name] = frozenset()  # meanwhile: a composite may call itself
            service, operator = _service(self.plan, name), self._catalogue.operators.get(name)
            if service[0] is Route.COMPOSITE and operator is not None and operator.view:
                service = Route.COMPOSITE, Place.DEVICE  # it computes nothing
            found = frozenset({service})
            if service[0] is Route.COMPOSITE and operator is not None:
                for calls in decompositions(operator, self._catalogue):
                    found = found.union(*map(self.of, calls))
            self._known[name] = found
        return self._known[name]


# ---- of a program

FORMAT = 1
"""The version of the file's format; a file of a newer one is refused."""


@dataclass(frozen=True)
class RouteUse:
    """The calls that took a route and were computed at a place, with their own time in seconds."""

    route: str
    operators: int
    calls: int
    seconds: float
    place: str = ""


@dataclass(frozen=True)
class OperatorUse:
    """The calls of one operator by a program on the device.

    ``seconds`` is the operators' own time, without that of the operators they call.  Of the ``calls``,
    ``fell_back`` fell back to the CPU, in ``fallback_seconds``, and ``on_copies`` ran in a kernel on the
    host, on copies, in ``copies_seconds``.  ``place`` is the plan's, of the others.  ``bytes_moved`` were
    copied between host and device, because the driver has no host window.
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
    place: str = ""
    on_copies: int = 0
    copies_seconds: float = 0.0

    @property
    def host_seconds(self) -> float:
        """The time of what the CPU computed in the device's place."""
        return self.fallback_seconds + self.copies_seconds


@dataclass(frozen=True)
class ProgramCoverage:
    """How a backend served a program.

    ``status`` is its exit status.  ``routes`` has the routes that were used, in the plan's order of
    preference and by place, and ``operators`` those that took most time first; calls that fell back are the
    route ``fallback``'s, whatever the plan has for other dtypes.  ``elsewhere`` are the calls on Tensors of
    other devices.  ``kernels`` is what to write next.
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
        """The calls on the device's Tensors."""
        return sum(route.calls for route in self.routes)

    @property
    def seconds(self) -> float:
        """The time in operators on the device's Tensors."""
        return sum(route.seconds for route in self.routes)

    @property
    def host_seconds(self) -> float:
        """The time of what the CPU computed in the device's place."""
        return sum(operator.host_seconds for operator in self.operators)

    def at(self, place: Place) -> tuple[int, float]:
        """The calls that were computed at ``place``, and their time in seconds."""
        uses = [use for use in self.routes if use.place == place.value]
        return sum(use.calls for use in uses), sum(use.seconds for use in uses)


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
        routes=_by_route(operators, plan),
        operators=tuple(operators),
        kernels=kernels_to_write(_of_host(calls), plan, catalogue, share),
        elsewhere=sum(
            call.calls for call in calls.tree if not call.on_device and not call.is_backward
        ),
    )


def _use(name: str, calls: list[Call], plan: Plan) -> OperatorUse:
    entry = plan.by_name.get(name)
    route, place = _service(plan, name)
    return OperatorUse(
        name=name,
        route=route.value,
        place="" if place is None else place.value,
        library="" if entry is None else entry.library,
        calls=sum(call.calls for call in calls),
        seconds=sum(call.own_seconds for call in calls),
        fell_back=sum(call.fell_back for call in calls),
        fallback_seconds=sum(call.fallback_seconds for call in calls),
        on_copies=sum(call.on_copies for call in calls),
        copies_seconds=sum(call.copies_seconds for call in calls),
        why="the plan does not list it: another library's operator" if entry is None else entry.why,
        bytes_moved=sum(call.bytes_moved for call in calls),
    )


def _by_route(operators: list[OperatorUse], plan: Plan) -> tuple[RouteUse, ...]:
    copies = Place.COPIES.value
    rows: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for use in operators:
        # A fallback that is not counted as one is the runtime's own, and still the CPU's.
        served = use.calls - use.fell_back - use.on_copies
        for route, place, calls, seconds in (
            (Route.FALLBACK.value, plan.host.value, use.fell_back, use.fallback_seconds),
            (use.route, copies, use.on_copies, use.copies_seconds),
            (use.route, use.place, served, use.seconds - use.host_seconds),
        ):
            if calls:
                rows.setdefault((route, place), []).append((calls, seconds))
    order = [route.value for route in Route]
    places = ["", *(place.value for place in Place)]
    return tuple(
        RouteUse(
            route,
            len(uses),
            sum(calls for calls, _ in uses),
            sum(seconds for _, seconds in uses),
            place,
        )
        for (route, place), uses in sorted(
            rows.items(), key=lambda row: (order.index(row[0][0]), places.index(row[0][1]))
        )
    )


def _of_host(calls: Calls) -> list[HostCalls]:
    """The calls that the CPU computed in the device's place."""
    within: list[frozenset[str]] = []
    found = []
    for call in calls.tree:
        above = frozenset[str]() if call.parent < 0 else within[call.parent]
        within.append(above if call.is_backward else above | {call.operator})
        if times := call.fell_back + call.on_copies:
            seconds = call.fallback_seconds + call.copies_seconds
            found.append(HostCalls(call.operator, times, seconds, call.bytes_moved, within=above))
    return found


# ---- the file


def read_coverage(path: Path) -> ProgramCoverage:
    """The coverage that ``opsmith coverage --output FILE PROGRAM`` wrote to ``path``.

    Raises :class:`~opsmith.errors.FileMissing`, or :class:`~opsmith.errors.ResultsInvalid` for a file
    that holds none, or is of a newer version.
    """
    remedy = "write it with `opsmith coverage --output FILE PROGRAM`"
    return JsonFile(ProgramCoverage, FORMAT, "coverage of a program", remedy).read(path)
