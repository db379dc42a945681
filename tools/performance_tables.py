"""Writes the tables and charts of figures in docs/ from what ``opsmith bench`` measured.

``benchmarks/results/NAME.json`` holds the last kept run of a benchmark, as ``opsmith bench NAME --output``
writes it.  In a page, what stands between ``<!-- results NAME: PATTERN or PATTERN -->`` and ``<!-- end of
results -->`` is the table of the measurements whose names match a pattern of the shell's; of all without.
After ``<!-- chart FILE of NAME: … -->`` stands the chart of their ratios in its place, which is
``docs/images/performance/FILE.svg``; the site has the tables of all.
``python tools/performance_tables.py`` writes the pages and charts anew, and ``tests/docs/test_docs.py``
compares them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from html import escape
from pathlib import Path

from opsmith.observe.benchmarks.measurements import Figure, Measurement
from opsmith.observe.benchmarks.runs import BenchRun, read_run

ROOT = Path(__file__).resolve().parents[1]
CHARTS = ROOT / "docs" / "images" / "performance"
_RESULTS = re.compile(
    r"(?P<begin><!-- (?:chart (?P<file>[\w-]+) of|results) (?P<name>\w+)(?:: (?P<patterns>[^\n]*))? -->\n)"
    r".*?(?=<!-- end of results -->)",
    re.DOTALL,
)

_ROW, _LABELS, _PLOT, _VALUES = 16, 330, 400, 60
"""Of a chart, in pixels: a row's height, and the widths of names, bars and figures."""

_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#1c2430;text-anchor:middle}.name{text-anchor:end}"
    ".figure{text-anchor:start}path{stroke-width:10}.paper{fill:#fff}.ok{stroke:#3d9155}"
    ".missed{stroke:#c7472c}.none{stroke:#4a78c2}.grid,.peer,.goal{stroke-width:1;stroke:#d6dbe3}"
    ".peer{stroke:#1c2430}.goal{stroke-width:2;stroke:#c77a2c}"
)


def with_tables(page: str) -> str:
    """The text of a page with its tables written anew.  Raises ValueError where a pattern matches nothing."""
    return _RESULTS.sub(lambda found: found["begin"] + _shown(found), page)


def charts(page: str) -> Iterator[tuple[Path, str]]:
    """The charts of a page: the file and the SVG of each."""
    for found in _RESULTS.finditer(page):
        if found["file"] is not None:
            yield CHARTS / f"{found['file']}.svg", _chart(*_measured(found))


def all_tables() -> str:
    """Every measurement of every benchmark, a section each."""
    names = sorted(path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json"))
    runs = [(name, read_run(ROOT / "benchmarks" / "results" / f"{name}.json")) for name in names]
    return "\n".join(f"## {name}\n{_table(run, _named(run, '*'))}" for name, run in runs)


def _named(run: BenchRun, patterns: str) -> list[Measurement]:
    wanted = patterns.split(" or ")
    return [
        each
        for _, each in run.measurements()
        if any(fnmatchcase(each.name, pattern) for pattern in wanted)
    ]


def _measured(found: re.Match[str]) -> tuple[BenchRun, list[Measurement]]:
    run = read_run(ROOT / "benchmarks" / "results" / f"{found['name']}.json")
    rows = _named(run, found["patterns"] or "*")
    if not rows:
        raise ValueError(f"no measurement of `{found['name']}` matches {found['patterns']}")
    return run, rows


def _shown(found: re.Match[str]) -> str:
    run, rows = _measured(found)
    if found["file"] is None:
        return _table(run, rows)
    missed = sum(each.verdict == "missed" for each in rows)
    goals = sum(each.goal is not None for each in rows)
    image = f"![ratios of {found['name']}](../images/performance/{found['file']}.svg)"
    return f"\n{image}\n\n{goals - missed} of {goals} goals are met. {_where(run)}\n\n"


def _where(run: BenchRun) -> str:
    name = run.results[0].name
    return f"`opsmith bench {name}`, {run.started[:10]}, torch {run.torch}, {run.machine}."


def _table(run: BenchRun, rows: list[Measurement]) -> str:
    heads = ["| measured | opsmith | peer | ratio | goal |", "|---|---|---|---|---|"]
    return "\n".join(["", *heads, *map(_row, rows), "", _where(run), "", ""])


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


def _chart(run: BenchRun, rows: list[Measurement]) -> str:
    """Bars of the ratios on a logarithmic axis, from the peer's line at 1 on; a mark for each goal."""
    ratios = [_ratio(each) for each in rows]
    low, high = min(0.5, *ratios) * 0.9, max(2.0, *ratios) * 1.1
    height = _ROW * (len(rows) + 1)

    def at(ratio: float) -> int:
        return round(_LABELS + 8 + _PLOT * math.log(ratio / low) / math.log(high / low))

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LABELS + _PLOT + _VALUES} {height}">',
        f"<title>{escape(run.results[0].title)}</title><style>{_STYLE}</style>",
        f'<path class="paper" d="M0 0H{_LABELS + _PLOT + _VALUES}V{height}H0z"/>',
    ]
    for tick in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50):
        if low <= tick <= high:
            line = (
                f'<path class="{"peer" if tick == 1 else "grid"}" d="M{at(tick)} {_ROW}V{height}"/>'
            )
            lines.append(f'{line}<text x="{at(tick)}" y="11">{tick:g}</text>')
    for number, (each, ratio) in enumerate(zip(rows, ratios, strict=True), start=1):
        y, verdict = _ROW * number + 11, each.verdict or "none"
        name = f'<text class="name" x="{_LABELS}" y="{y}">{escape(each.name)}</text>'
        bar = f'<path class="{verdict}" d="M{at(1)} {y - 4}H{at(ratio)}"/>'
        has_goal = each.goal is not None and low <= each.goal <= high
        goal = f'<path class="goal" d="M{at(each.goal)} {y - 10}v12"/>' if has_goal else ""
        figure = f'<text class="figure" x="{_LABELS + _PLOT + 14}" y="{y}">{ratio:.2f}</text>'
        lines.append(name + bar + goal + figure)
    return "\n".join([*lines, "</svg>", ""])


def _ratio(each: Measurement) -> float:
    if each.ratio is None and each.unit != "x" and not each.unit.startswith("of "):
        raise ValueError(f"`{each.name}` is no ratio: {each.ours} {each.unit}")
    return each.value if each.ratio is None else each.ratio


if __name__ == "__main__":
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = with_tables(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        for file, svg in charts(text):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(svg, encoding="utf-8")
