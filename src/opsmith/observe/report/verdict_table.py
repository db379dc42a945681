"""Each ATen overload on a device in a row: where it runs, and what OpInfo's samples say of it, strictly.

The public evidence of a backend, as JSON or as a table in Markdown: ``opsmith report --verdicts``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opsmith.conformance.results import Status
from opsmith.observe.report.report_data import MARKS, ReportData

FORMAT = 1
"""The version of the JSON's format."""

_HEAD = ("operator", "route", "computed", "verdict")


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


@dataclass
class _Tally:
    """The checks of one operator: how many passed, of how many, and the dtypes that were run or failed."""

    passed: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    run: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)

    def add(self, check: str, dtype: str, passed: bool) -> None:
        self.counted[check] += 1
        self.passed[check] += passed
        self.run.add(dtype)
        if not passed:
            self.failing.add(dtype)

    @property
    def verdict(self) -> str:
        if not self.run:
            return "untested"
        if not self.failing:
            return "strict"
        return "partial" if self.passed.total() else "failing"


def verdict_table(data: ReportData) -> VerdictTable:
    """The evidence that ``data`` has."""
    operators, conformance = data.operators, data.conformance
    tallies = [_Tally() for _ in operators.name]
    if conformance is not None:
        named = dict(zip(conformance.entries, conformance.named, strict=True))
        for (entry, check, dtype), mark in conformance.verdicts():
            if mark != MARKS[Status.SKIPPED]:
                for operator in named[entry]:
                    tallies[operator].add(check, dtype, mark == MARKS[Status.PASSED])
    checks, dtypes = (conformance.checks, conformance.dtypes) if conformance else ((), ())
    rows = tuple(
        OperatorVerdict(
            name,
            operators.strings[operators.route[index]],
            operators.strings[operators.place[index]],
            tally.verdict,
            {
                check: (tally.passed[check], tally.counted[check])
                for check in checks
                if tally.counted[check]
            },
            tuple(dtype for dtype in dtypes if dtype in tally.run - tally.failing),
        )
        for index, (name, tally) in enumerate(zip(operators.name, tallies, strict=True))
    )
    return VerdictTable(
        data.backend,
        data.torch,
        data.opsmith,
        data.build,
        conformance.most_samples if conformance else None,
        dict(Counter(row.verdict for row in rows)),
        rows,
    )


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
