"""Changes between two reports: routes, verdicts, scores, sizes, what fell back, benchmarks."""

from __future__ import annotations

from collections import Counter

from opsmith.observe.benchmarks.runs import changes
from opsmith.observe.report.report_data import (
    Conformance,
    ReportData,
    RouteChange,
    Trend,
    VerdictChange,
)
from opsmith.observe.report.verdict_columns import status_of
from opsmith.plan import Route

_PREFERENCE = {route.value: rank for rank, route in enumerate(Route)}
_NOT_THERE = len(_PREFERENCE)


def trend(earlier: ReportData, source: str, now: ReportData) -> Trend:
    """The changes since ``earlier``, which was read from ``source``."""
    before, after = earlier.operators.routes(), now.operators.routes()
    counts = Counter(before.values()), Counter(after.values())
    return Trend(
        source=source,
        written=earlier.written,
        torch=earlier.torch,
        routes=tuple(
            (route.value, counts[0][route.value], counts[1][route.value]) for route in Route
        ),
        route_changes=_route_changes(before, after),
        verdict_changes=_verdict_changes(earlier.conformance, now.conformance),
        scores=_scores(earlier.conformance, now.conformance),
        sizes=tuple(
            (name, earlier.sizes.get(name, 0), now.sizes.get(name, 0))
            for name in sorted({*earlier.sizes, *now.sizes})
        ),
        host_seconds=(
            (earlier.program.host_seconds, now.program.host_seconds)
            if earlier.program and now.program
            else None
        ),
        benchmarks=(
            changes(earlier.benchmarks, now.benchmarks)
            if earlier.benchmarks and now.benchmarks
            else ()
        ),
    )


def _route_changes(before: dict[str, str], after: dict[str, str]) -> tuple[RouteChange, ...]:
    changes = []
    for name in sorted({*before, *after}):
        was, is_now = before.get(name, ""), after.get(name, "")
        if was != is_now:
            gained = _PREFERENCE.get(is_now, _NOT_THERE) < _PREFERENCE.get(was, _NOT_THERE)
            changes.append(RouteChange(name, was, is_now, gained))
    return tuple(changes)


def _verdict_changes(
    earlier: Conformance | None, now: Conformance | None
) -> tuple[VerdictChange, ...]:
    if earlier is None or now is None:
        return ()
    before = dict(earlier.verdicts())
    return tuple(
        VerdictChange(*place, status_of(before[place]).value, status_of(mark).value)
        for place, mark in now.verdicts()
        if before.get(place, mark) != mark
    )


def _scores(
    earlier: Conformance | None, now: Conformance | None
) -> tuple[tuple[str, str, int, int, int, int], ...]:
    if earlier is None or now is None:
        return ()
    before = {(check, dtype): (passed, total) for check, dtype, passed, total in earlier.scores}
    return tuple(
        (check, dtype, *before[check, dtype], passed, total)
        for check, dtype, passed, total in now.scores
        if (check, dtype) in before
    )
