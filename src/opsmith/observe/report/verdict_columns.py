"""A conformance run's verdicts as the report keeps them, and which operator an entry is named for."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opsmith.conformance.results import Check, Results, Status, Verdict, scores
from opsmith.observe.explain.verdicts import tested_by
from opsmith.observe.programs.coverage import least_preferred
from opsmith.observe.report.interning import Interned
from opsmith.observe.report.report_data import MARKS, Conformance
from opsmith.plan import Plan

_DTYPES = (
    "float32 float64 bfloat16 float16 complex64 complex128 complex32 "
    "int64 int32 int16 int8 uint8 bool"
).split()
# A device on which most checks fail has a message for each: they are cut until all fit, and in the end
# left to the file of results.
_MESSAGE_LENGTHS = (600, 300, 150, 80)
_ALL_MESSAGES = 640_000
_MOST_MESSAGES = 8_000
_LEFT_OUT = "the file of results says more"


def in_columns(results: Results, source: str, plan: Plan) -> Conformance:
    """``results``, read from ``source``, on the backend of ``plan``."""
    run = {verdict.check for verdict in results.verdicts}
    checks = tuple(check for check in Check if check in run)
    dtypes = _in_order({verdict.dtype for verdict in results.verdicts})
    entries = tuple(sorted({verdict.entry for verdict in results.verdicts}))
    cell = {pair: index for index, pair in enumerate(itertools.product(checks, dtypes))}
    columns = _columns(results.verdicts, entries, cell)
    operators = {name: index for index, name in enumerate(plan.by_name)}
    called = [_known(results.operators.get(entry, ()), operators) for entry in entries]
    return Conformance(
        backend=results.backend,
        torch=results.torch,
        source=source,
        started=results.started,
        updated=results.updated,
        complete=results.complete,
        checks=tuple(check.value for check in checks),
        dtypes=dtypes,
        entries=entries,
        marks=tuple("".join(letters) for letters in columns.marks),
        seconds=tuple(round(each, 3) for each in columns.seconds),
        samples=tuple(columns.samples),
        messages=columns.messages.table,
        notes=dict(columns.notes),
        calls=tuple(tuple(operators[name] for name in names) for names in called),
        named=tuple(
            tuple(operators[name] for name in tested_by(entry, names, plan))
            for entry, names in zip(entries, called, strict=True)
        ),
        routes=tuple(
            least_preferred(frozenset(plan.by_name[name].route for name in names)).value
            if names
            else ""
            for names in called
        ),
        scores=tuple(
            (check.value, dtype, passed, total)
            for (check, dtype), (passed, total) in sorted(
                scores(results.verdicts).items(), key=lambda score: cell[score[0]]
            )
        ),
        most_samples=results.samples,
    )


@dataclass(frozen=True)
class _Columns:
    """Of each entry its marks, time, samples and messages; the latter by the cell in which they stand."""

    marks: list[list[str]]
    seconds: list[float]
    samples: list[int]
    messages: Interned[str]
    notes: dict[int, dict[int, int]]


def _columns(
    verdicts: Sequence[Verdict], entries: Sequence[str], cell: Mapping[tuple[Check, str], int]
) -> _Columns:
    """The ``verdicts`` by entry, and within one by the number that ``cell`` gives check and dtype."""
    row = {entry: index for index, entry in enumerate(entries)}
    marks = [["."] * len(cell) for _ in entries]
    found = _Columns(marks, [0.0] * len(entries), [0] * len(entries), Interned(), defaultdict(dict))
    longest = _longest_message({verdict.message for verdict in verdicts})
    for verdict in verdicts:
        index, place = row[verdict.entry], cell[verdict.check, verdict.dtype]
        found.marks[index][place] = MARKS[verdict.status]
        found.seconds[index] += verdict.seconds
        found.samples[index] += verdict.samples
        if verdict.message:
            message = _cut(verdict.message, longest)
            full = len(found.messages) >= _MOST_MESSAGES and message not in found.messages
            found.notes[index][place] = found.messages(_LEFT_OUT if full else message)
    return found


def status_of(mark: str) -> Status:
    """The status that ``mark`` stands for."""
    return next(status for status, letter in MARKS.items() if letter == mark)


def _in_order(dtypes: Iterable[str]) -> tuple[str, ...]:
    """The common ones in the order in which people look for them, then the others."""
    return tuple(sorted(dtypes, key=lambda dtype: (_rank(dtype), dtype)))


def _rank(dtype: str) -> int:
    return _DTYPES.index(dtype) if dtype in _DTYPES else len(_DTYPES)


def _known(names: Sequence[str], operators: Mapping[str, int]) -> list[str]:
    plain = dict.fromkeys(name.removeprefix("aten::") for name in names)
    return [name for name in plain if name in operators]


def _longest_message(messages: Collection[str]) -> int:
    """How long a message may be, in characters, so that all of them are not too many."""
    for longest in _MESSAGE_LENGTHS:
        if sum(min(len(message), longest) for message in messages) <= _ALL_MESSAGES:
            return longest
    return _MESSAGE_LENGTHS[-1]


def _cut(message: str, longest: int) -> str:
    return message if len(message) <= longest else f"{message[:longest].rstrip()} …"
