"""Each ATen overload on a device in a row: where it runs, and what OpInfo's samples say of it, strictly.

The public evidence of a backend, as JSON or as a table in Markdown: ``opsmith report --verdicts``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsmith.conformance.results import Status
from opsmith.report.report_data import MARKS, Conformance, ReportData

FORMAT = 1
"""The version of the JSON's format."""

_HEAD = ("operator", "route", "computed", "verdict")
_NOT_COUNTED = {MARKS[Status.SKIPPED], "."}


@dataclass(frozen=True)
class OperatorVerdict:
    """The evidence on one overload.

    ``computed`` says where; ``checks`` has passed and all checks of the OpInfo entries that are named for
    the operator, over dtypes; those that have nothing to run are not among them.  ``dtypes`` are those of
    which every check passes.  ``verdict``: ``strict`` where all pass, ``partial`` where some do, ``failing``,
    or ``untested``.  An expected failure is none that passes.
    """

    operator: str
    route: str
    computed: str
    verdict: str
    checks: Mapping[str, tuple[int, int]]
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class VerdictTable:
    """The evidence on all overloads; ``totals`` counts them by verdict.

    ``samples`` is the most that were run of each entry, 0 for all; None where none were.
    """

    backend: str
    torch: str
    opsmith: str
    build: str
    samples: int | None
    totals: Mapping[str, int]
    operators: tuple[OperatorVerdict, ...]
    format: int = FORMAT


def verdict_table(data: ReportData) -> VerdictTable:
    """The evidence that ``data`` has."""
    operators = data.operators
    samples = data.conformance.most_samples if data.conformance else None
    entries: dict[int, list[int]] = defaultdict(list)
    for entry, named in enumerate(data.conformance.named if data.conformance else ()):
        for operator in named:
            entries[operator].append(entry)
    rows = []
    for index, name in enumerate(operators.name):
        checks, dtypes = _counted(data.conformance, entries[index])
        rows.append(
            OperatorVerdict(
                name,
                operators.strings[operators.route[index]],
                operators.strings[operators.place[index]],
                _verdict(checks),
                checks,
                dtypes,
            )
        )
    totals = Counter(row.verdict for row in rows)
    return VerdictTable(
        data.backend, data.torch, data.opsmith, data.build, samples, dict(totals), tuple(rows)
    )


def _counted(
    conformance: Conformance | None, entries: Sequence[int]
) -> tuple[dict[str, tuple[int, int]], tuple[str, ...]]:
    """Passed and all of each check of ``entries``, and the dtypes of which every check passes."""
    if conformance is None:
        return {}, ()
    passed: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    fails: dict[str, bool] = {}
    for entry in entries:
        marks = iter(conformance.marks[entry])
        for check in conformance.checks:
            for dtype in conformance.dtypes:
                mark = next(marks)
                if mark in _NOT_COUNTED:
                    continue
                good = mark == MARKS[Status.PASSED]
                counted[check] += 1
                passed[check] += good
                fails[dtype] = fails.get(dtype, False) or not good
    checks = {
        check: (passed[check], counted[check]) for check in conformance.checks if counted[check]
    }
    return checks, tuple(dtype for dtype in conformance.dtypes if fails.get(dtype) is False)


def _verdict(checks: Mapping[str, tuple[int, int]]) -> str:
    passed, counted = (
        (sum(each) for each in zip(*checks.values(), strict=True)) if checks else (0, 0)
    )
    if not counted:
        return "untested"
    return "strict" if passed == counted else "partial" if passed else "failing"


def as_markdown(table: VerdictTable) -> str:
    """``table`` as Markdown: a row for each operator, with ``passed of all`` where some check fails."""
    checks = list(dict.fromkeys(check for row in table.operators for check in row.checks))
    return "\n".join(_lines(table, checks)) + "\n"


def _lines(table: VerdictTable, checks: Sequence[str]) -> Iterator[str]:
    totals = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(table.totals.items()))
    run = "" if table.samples is None else f", {table.samples or 'all'} samples of each entry"
    yield f"`{table.backend}` on torch {table.torch}, opsmith {table.opsmith}{run}: {totals}."
    yield ""
    yield f"| {' | '.join((*_HEAD, *checks, 'every check passes in'))} |"
    yield "|---" * (len(_HEAD) + len(checks) + 1) + "|"
    for row in table.operators:
        shares = (_share(*row.checks[check]) if check in row.checks else "" for check in checks)
        cells = (
            f"`{row.operator}`",
            row.route,
            row.computed,
            row.verdict,
            *shares,
            " ".join(row.dtypes),
        )
        yield f"| {' | '.join(cells)} |"


def _share(passed: int, counted: int) -> str:
    return str(counted) if passed == counted else f"**{passed} of {counted}**"
