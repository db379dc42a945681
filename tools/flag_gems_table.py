"""Keeps which of FlagGems' operators pass in Triton's interpreter, and writes the tables of docs/ from it.

    opsmith import flag_gems | sed s/fallback/raise/ > flag_gems.yaml
    opsmith conform backend.yaml --check forward --samples 3 --timeout 20 -o forward.json
    opsmith conform backend.yaml --check out --check in-place --dtype float32 --samples 3 -o variants.json
    python tools/flag_gems_table.py backend.yaml forward.json variants.json

``backend.yaml`` has ``libraries: [flag_gems.yaml, optimized, random, portable]``; a later file of results
replaces what an earlier one says of a check.  Columns that no file has stay as they were: those of bfloat16,
which the interpreter lacks, come from ``triton: {backend: host}`` and ``--check forward --dtype bfloat16``.
Without arguments, only the tables are written anew.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root
from opsmith.base.json_files import JsonFile
from opsmith.conformance import Check, Status, Verdict, read_results
from opsmith.conformance.database import known_entries
from opsmith.description import find_backend
from opsmith.description.formats.flag_gems import find_flag_gems, read_flag_gems
from opsmith.plan import Entry, OpenedBackend, open_backend

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kernels" / "flag-gems.md"
RESULTS = Path(__file__).with_suffix(".json")
DTYPES = ("float32", "float16", "bfloat16", "int64", "bool")
COLUMNS = (*DTYPES, "`out=`, in place")

_TABLE = re.compile(
    r"(<!-- (results|absent) of FlagGems -->\n).*?(?=<!-- end of FlagGems -->)", re.S
)

CAUSES = {
    "asks for a Tensor of CUDA": r"CUDA|is_cuda",
    "calls the operator that it is": r"RecursionError",
    "no Tensor without dimensions": r"ZeroDivisionError|Invalid dim|no dimensions|in0_ptr \+ ,",
    "no Tensor without elements": r"steps must be|arange's end|arange\\+'s end|SIGSEGV",
    "no broadcasting": r"shape is invalid",
    "None for results that are not asked for": r"returned None",
    "another dtype or shape than ATen's": r"returned \w+\[[^]]*\] on",
    "no complex numbers": r"complex",
    "not in this dtype": r"Unsupported [lr]hs|Expected dtype|floating point|not implemented for|atomic_add"
    r"|reduce scatter|language\.bfloat16, triton",
    "not along each dimension": r"only support",
    "order of equal elements": r"(float16|bool)\[8000\]\): result \d differs",
    "`out` as it is": r"out= of (another dtype|strided|empty)",
    "other values or shapes": r"differs|on the CPU",
    "interpreter: too slow": r"no end after",
}
"""The causes of failures as people read them, the first whose pattern is found in a failure's message."""


@dataclass
class Row:
    """One operator of FlagGems: its checks, passed and all, and the causes of failures, by column."""

    entries: list[str]
    checks: dict[str, tuple[int, int]] = field(default_factory=dict)
    causes: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Kept:
    """A run: the rows by operator, and what is planned but not checked or not planned, by the reason."""

    flag_gems: str
    triton: str
    torch: str
    date: str
    rows: dict[str, Row]
    absent: dict[str, list[str]]
    format: int = 2


def keep(backend: str, results: Iterable[Path]) -> None:
    """Replaces what is kept by the verdicts in the files ``results`` of the device of ``backend``."""
    opened = open_backend(backend)
    runs = [read_results(path) for path in results]
    called: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for entry, operators in run.operators.items():
            called[entry] |= {name for each in operators for name in _of_flag_gems(opened, each)}
    verdicts = {verdict.key: verdict for run in runs for verdict in run.verdicts}
    planned = sorted(
        {each for entry in opened.plan.entries for each in _of_flag_gems(opened, entry.name)}
    )
    about = {facts.name: facts.operator for facts in known_entries(cache_root())}
    earlier = _kept().rows
    entries = {
        name: earlier[name].entries if name in earlier else _nearest(name, called, about)
        for name in planned
    }
    rows = {
        name: _row(found, verdicts.values(), earlier.get(name))
        for name, found in entries.items()
        if found
    }
    absent = _not_planned(opened)
    absent["no entry of OpInfo calls it forward"] = [
        name for name, found in entries.items() if not found
    ]
    kept = Kept(
        version("flag_gems"), version("triton"), runs[-1].torch, runs[-1].updated[:10], rows, absent
    )
    RESULTS.write_bytes(msgspec.json.encode(kept) + b"\n")


def _of_flag_gems(opened: OpenedBackend, operator: str) -> list[str]:
    """The base name of FlagGems' kernel by which ``operator`` is computed; none where another computes it."""
    entry: Entry | None = opened.plan.by_name.get(operator)
    kernel = entry.kernel if entry is not None else None
    return [_base(kernel.operator)] if kernel is not None and kernel.library == "flag_gems" else []


def _base(operator: str) -> str:
    return operator.partition(".")[0].removesuffix("_")


def _nearest(name: str, called: Mapping[str, set[str]], about: Mapping[str, str]) -> list[str]:
    """The entries about ``name`` that call it, or else those that call it and the fewest others.

    Those of lists of Tensors are left out.
    """
    calling = [
        entry for entry in called if name in called[entry] and not entry.startswith("_foreach_")
    ]
    if found := sorted(entry for entry in calling if about[entry] == name):
        return found
    fewest = min((len(called[entry]) for entry in calling), default=0)
    return sorted(entry for entry in calling if len(called[entry]) == fewest)


def _row(entries: list[str], verdicts: Iterable[Verdict], earlier: Row | None) -> Row:
    row = Row(entries)
    for verdict in verdicts:
        if (
            verdict.entry not in entries
            or verdict.status is Status.SKIPPED
            or verdict.dtype not in DTYPES
        ):
            continue
        column = verdict.dtype if verdict.check is Check.FORWARD else COLUMNS[-1]
        passed, total = row.checks.get(column, (0, 0))
        row.checks[column] = passed + (verdict.status is Status.PASSED), total + 1
        if verdict.status is not Status.PASSED:
            row.causes.setdefault(column, []).append(_cause(verdict))
    for column in (set(earlier.checks) if earlier else set()) - set(row.checks):
        row.checks[column] = earlier.checks[column]
        row.causes[column] = earlier.causes.get(column, [])
    return row


def _cause(verdict: Verdict) -> str:
    """Raises ValueError for a failure that nobody has looked at yet."""
    for cause, found in CAUSES.items():
        if re.search(found, verdict.message):
            return cause
    raise ValueError(f"no cause of CAUSES is that of {verdict}")


def _not_planned(opened: OpenedBackend) -> dict[str, list[str]]:
    source = find_flag_gems()
    assert source is not None
    absent = defaultdict(list)
    for each in read_flag_gems(source, opened.catalogue).unserved:
        absent[re.sub(r"\s*\(.*\)|: the first.*", "", each.reason)].append(each.name)
    return dict(absent)


def _kept() -> Kept:
    remedy = "run tools/flag_gems_table.py with results"
    return JsonFile(Kept, 2, "results of FlagGems", remedy).read(RESULTS)


def with_tables(page: str) -> str:
    """The text of the page with its tables written anew."""
    kept = _kept()
    tables = {"results": _results(kept), "absent": _absent(kept)}
    return _TABLE.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n", page)


def _results(kept: Kept) -> str:
    whole = sum(not any(row.causes.values()) for row in kept.rows.values())
    where = (
        f"FlagGems {kept.flag_gems}, Triton {kept.triton}, torch {kept.torch}, {kept.date}: {whole} of "
        f"{len(kept.rows)} operators pass in all dtypes, {_passed(kept, COLUMNS[0])} checks in float32, "
        + ", ".join(f"{_passed(kept, column)} in {column}" for column in COLUMNS[1:-1])
        + f", {_passed(kept, COLUMNS[-1])} with `out=` and in place."
    )
    lines = [f"| operator | {' | '.join(COLUMNS)} | fails |", "|---" * (len(COLUMNS) + 2) + "|"]
    lines += [_line(name, row) for name, row in kept.rows.items()]
    return "\n".join([where, "", *lines])


def _passed(kept: Kept, column: str) -> str:
    counts = [row.checks.get(column, (0, 0)) for row in kept.rows.values()]
    return f"{sum(passed for passed, _ in counts)} of {sum(total for _, total in counts)}"


def _line(name: str, row: Row) -> str:
    cells = []
    for column in COLUMNS:
        passed, total = row.checks.get(column, (0, 0))
        bold = "" if passed == total else "**"
        cells.append(f"{bold}{passed}/{total}{bold}" if total else "")
    found = {cause for of_column in row.causes.values() for cause in of_column}
    causes = "; ".join(cause for cause in CAUSES if cause in found)
    return f"| `{name}` | {' | '.join(cells)} | {causes} |"


def _absent(kept: Kept) -> str:
    rows = sorted(kept.absent.items(), key=lambda each: -len(each[1]))
    lines = [
        f"| {why} | {', '.join(f'`{name}`' for name in names)} |" for why, names in rows if names
    ]
    return "\n".join(["| why | operators |", "|---|---|", *lines])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        keep(str(find_backend(sys.argv[1])), map(Path, sys.argv[2:]))
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
