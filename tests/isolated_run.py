"""The process of isolated tests: pytest, which writes what happens to ``results.jsonl`` line by line.

``isolation.py`` starts it with a folder, in which ``selected.json`` has the test functions that are to run,
each with its cases, where the empty one stands for all; then come arguments for pytest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import device_memory
import opinfo


class Results:
    """Keeps the selected tests, and writes pairs of a kind of event and what it is about."""

    def __init__(self, folder: Path) -> None:
        self._selected: dict[str, list[str]] = json.loads((folder / "selected.json").read_text())
        self._file = open(folder / "results.jsonl", "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def _tell(self, kind: str, what: Any) -> None:
        self._file.write(json.dumps([kind, what]) + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            why = text.removeprefix("Skipped: ")
            self._tell("not collected", [report.nodeid, report.outcome, why])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        named = [(item, *item.nodeid.partition("[")[::2]) for item in items]
        known = [each for each in named if each[1] in self._selected]
        self._tell("collected", [item.nodeid for item, _, _ in known])
        items[:] = [
            item
            for item, function, case in known
            if not {"", case.removesuffix("]")}.isdisjoint(self._selected[function])
        ]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tell("started", nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        report = yield
        hook = item.config.hook.pytest_report_to_serializable
        self._tell("report", hook(config=item.config, report=report))
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._tell("finished", nodeid)


if __name__ == "__main__":
    # No cache: this run must not disturb the outer one's --last-failed, nor obey its configured -m.
    options = ["-q", "-p", "no:cacheprovider", "--noconftest", "-m", ""]
    plugins = [Results(Path(sys.argv[1])), device_memory, opinfo]
    sys.exit(pytest.main([*options, *sys.argv[2:]], plugins=plugins))
