"""Keeps what ran on the installed release of torch, and writes the table of docs/ from all that is kept.

    opsmith demo --json > demo.txt
    python -m pytest --junitxml=junit.xml tests/runtime tests/for_executorch
    python tools/tested_releases.py demo.txt junit.xml

Several files of pytest add up, and a later one replaces what an earlier one says of a test: what failed is
run again alone.  Without arguments, only the table is written anew.  It is what stands between
``<!-- tested releases -->`` and ``<!-- end of tested releases -->`` in ``docs/start/upgrading-torch.md``.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from opsmith.schema import torch_release, torch_version
from opsmith.schema.recorded import shown
from opsmith.vendor.doctor.tested_releases import RESULTS, Area, Demo, ReleaseRun, tested_releases

PAGE = Path(__file__).resolve().parents[1] / "docs" / "start" / "upgrading-torch.md"

# A test is of the first area whose pattern is found in its file and name; others are not told of.
_PATTERNS = {
    "ExecuTorch": r"^tests\.for_executorch\.",
    "sharing": r"^tests\.runtime\..*(test_sharing|test_dlpack|shared)",
    "profiler": r"^tests\.runtime\..*test_profile",
    "distributed": r"^tests\.runtime\.test_(distributed|data_parallel|vendor_collectives)",
    "graphs": r"^tests\.runtime\..*(test_graphs|reduce_overhead)",
    "AOTInductor": r"^tests\.runtime\..*(aotinductor|a_package_needs_loops|graphs_in_cpp)",
    "compile": r"^tests\.runtime\..*test_compiled",
    "autograd": r"^tests\.runtime\..*(autograd|gradient|backward)",
    "eager": r"^tests\.runtime\.",
}
_SHOWN = tuple(reversed(_PATTERNS))
_TABLE = re.compile(r"(?<=<!-- tested releases -->\n).*(?=<!-- end of tested releases -->)", re.S)


def keep(demo: Path, results: Iterable[Path]) -> None:
    """Replaces what is kept of the installed release.  ``results`` are files of pytest's ``--junitxml``."""
    counts: dict[str, Counter[str]] = {area: Counter() for area in _SHOWN}
    date = datetime.now(timezone.utc).date().isoformat()
    cases = [case for path in results for case in ElementTree.parse(path).iter("testcase")]
    outcomes = {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}
    for name, outcome in outcomes.items():
        area = next((a for a, found in _PATTERNS.items() if re.search(found, name)), None)
        if area:
            counts[area][outcome] += 1
    kept = {tuple(map(int, name.split("."))): each for name, each in tested_releases().items()}
    kept[torch_release()] = ReleaseRun(
        torch=torch_version(),
        date=date,
        demo=msgspec.json.decode(demo.read_text().strip().splitlines()[-1], type=Demo),
        areas={area: Area(**count) for area, count in counts.items() if count},
    )
    releases = {shown(release): kept[release] for release in sorted(kept)}
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(releases)) + b"\n")


def _outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"


def with_table(page: str) -> str:
    """The text of the page with its table written anew."""
    heads = ["torch", "demo: accuracy, the CPU's, largest loss difference", *_SHOWN]
    rows = [heads, ["---"] * len(heads)]
    for each in tested_releases().values():
        demo = f"{each.demo.accuracy:.1%}, {each.demo.cpu_accuracy:.1%}, {each.demo.max_loss_difference:.1e}"
        areas = [str(each.areas[area]) if area in each.areas else "not run" for area in _SHOWN]
        rows.append([each.torch, demo, *areas])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return _TABLE.sub(lambda _: f"\n{table}\n\n", page)


if __name__ == "__main__":
    if given := [Path(argument) for argument in sys.argv[1:]]:
        keep(given[0], given[1:])
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
