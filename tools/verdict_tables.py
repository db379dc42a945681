"""Keeps what is verified of each operator on each device, and writes the summary of the page on verdicts.

    opsmith conform sim -o results.json
    opsmith report sim --conform results.json --verdicts sim.json
    python tools/verdict_tables.py sim=sim.json

``docs/reference/verdicts.json`` has the device of each name as its file says, and others as they were: for
each overload how many checks of dtypes were counted, which fail, and the dtypes of which none does.  What
stands between ``<!-- verdicts -->`` and ``<!-- end of verdicts -->`` in the page is a row for each device;
the site has one for each overload.  Without arguments, only the page is written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "verdicts.md"
KEPT = PAGE.with_suffix(".json")

_VERDICTS = ("strict", "partial", "failing", "untested")
_SUMMARY = re.compile(r"(?<=<!-- verdicts -->\n).*(?=<!-- end of verdicts -->)", re.DOTALL)


def keep(device: str, table: Mapping[str, Any]) -> None:
    """Replaces what is kept of ``device``; ``table`` is what ``opsmith report --verdicts`` wrote."""
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {"devices": {}}
    of_operator = kept.setdefault("operators", {})
    kept["devices"][device] = {
        **{name: table[name] for name in ("torch", "opsmith", "build", "samples", "totals")},
        "date": datetime.now(timezone.utc).date().isoformat(),
    }
    for row in of_operator.values():
        row.pop(device, None)
    for row in table["operators"]:
        checks = row["checks"]
        facts = {
            **{name: row[name] for name in ("route", "computed", "verdict")},
            "checks": sum(counted for _, counted in checks.values()),
            "failing": {
                check: f"{counted - passed} of {counted}"
                for check, (passed, counted) in checks.items()
                if passed != counted
            },
            "dtypes": " ".join(row["dtypes"]),
        }
        of_operator.setdefault(row["operator"], {})[device] = {
            name: fact for name, fact in facts.items() if fact
        }
    lines = (
        f"  {json.dumps(name)}: {json.dumps(of_operator[name])}" for name in sorted(of_operator)
    )
    devices = json.dumps(kept["devices"], indent=1)
    KEPT.write_text(
        f'{{"devices": {devices},\n "operators": {{\n' + ",\n".join(lines) + "\n}}\n",
        encoding="utf-8",
    )


def with_summary(page: str) -> str:
    """The text of the page with its summary written anew."""
    devices = json.loads(KEPT.read_text(encoding="utf-8"))["devices"]
    table = _table(
        ("device", "torch", "samples of an entry", *_VERDICTS, "on"),
        (
            (
                name,
                each["torch"],
                str(each["samples"] or "all"),
                *(f"{each['totals'].get(verdict, 0):,}" for verdict in _VERDICTS),
                each["date"],
            )
            for name, each in devices.items()
        ),
    )
    return _SUMMARY.sub(lambda _: table, page)


def all_verdicts() -> str:
    """A table of all overloads: how each device runs it, and what fails of it."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    devices = list(kept["devices"])
    return _table(
        ("operator", *devices),
        (
            (f"`{name}`", *(", ".join(_said(of_device.get(device))) for device in devices))
            for name, of_device in kept["operators"].items()
        ),
    )


def _said(row: Mapping[str, Any] | None) -> Iterator[str]:
    if row is None:
        return
    yield row["route"]
    yield row["verdict"]
    for check, failing in row.get("failing", {}).items():
        yield f"{check} fails in {failing}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (f"| {' | '.join(cells)} |\n" for cells in (head, *rows))
    return next(lines) + "|---" * len(head) + "|\n" + "".join(lines)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        device, _, file = given.partition("=")
        keep(device, json.loads(Path(file).read_text(encoding="utf-8")))
    PAGE.write_text(with_summary(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
