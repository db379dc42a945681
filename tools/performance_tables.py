"""Writes the tables of figures in docs/ from what ``opsmith bench`` measured.

``benchmarks/results/NAME.json`` holds the last kept run of a benchmark, as ``opsmith bench NAME --output``
writes it.  In a page, what stands between ``<!-- results NAME: PATTERN or PATTERN -->`` and ``<!-- end of
results -->`` is the table of the measurements whose names match a pattern of the shell's; of all without.
``python tools/performance_tables.py`` writes the pages anew, and ``tests/docs/test_docs.py`` compares them.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from opsmith.benchmarks.measurements import Figure, Measurement
from opsmith.benchmarks.runs import read_run

ROOT = Path(__file__).resolve().parents[1]
_RESULTS = re.compile(
    r"(?P<begin><!-- results (?P<name>\w+)(?:: (?P<patterns>[^\n]*))? -->\n).*?(?=<!-- end of results -->)",
    re.DOTALL,
)


def with_tables(page: str) -> str:
    """The text of a page with its tables written anew.  Raises ValueError where a pattern matches nothing."""
    return _RESULTS.sub(
        lambda found: found["begin"] + _table(found["name"], found["patterns"]), page
    )


def _table(name: str, patterns: str | None) -> str:
    run = read_run(ROOT / "benchmarks" / "results" / f"{name}.json")
    wanted = (patterns or "*").split(" or ")
    rows = [
        _row(each)
        for _, each in run.measurements()
        if any(fnmatchcase(each.name, pattern) for pattern in wanted)
    ]
    if not rows:
        raise ValueError(f"no measurement of `{name}` matches {patterns}")
    heads = ["| measured | opsmith | peer | ratio | goal |", "|---|---|---|---|---|"]
    where = f"`opsmith bench {name}`, {run.started[:10]}, torch {run.torch}, {run.machine}."
    return "\n".join(["", *heads, *rows, "", where, "", ""])


def _row(each: Measurement) -> str:
    unit = "" if each.unit == "instructions" else f" {each.unit}"
    ours, ratio = f"{each.ours}{unit}", "" if each.ratio is None else f"{each.ratio:.3f}"
    if each.unit.startswith("of "):  # a ratio is all that was kept
        ours, ratio = "", f"{each.ours}{unit}"
    peer = "" if each.peer is None else f"{each.peer}{unit}"
    goal = "" if each.goal is None else f"≤ {Figure.of([each.goal])}"
    if each.goal is not None and (each.is_absolute or not ratio):
        goal += unit
    missed = "**" if each.verdict == "missed" else ""
    return f"| {each.name} | {ours} | {peer} | {ratio} | {missed}{goal}{missed} |"


if __name__ == "__main__":
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(with_tables(text), encoding="utf-8")
