"""Inside pytest, as it runs one of PyTorch's own test files: tells of each test as it begins and ends.

pytest's own JUnit file is written when all is over, and so never where a test crashes the process; these
lines are there at once.  :mod:`upstream` starts pytest with ``-p`` this module, and reads them.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec
import pytest

from opsmith.conformance.upstream_lines import (
    DONE_VARIABLE,
    EXPECTED_TO_FAIL,
    GENERIC_VARIABLE,
    LINES_VARIABLE,
    ONLY_VARIABLE,
    SHARD_VARIABLE,
    Begun,
    Broken,
    Collected,
    Line,
    Over,
)

_outcomes: dict[str, tuple[str, str]] = {}
_seconds: dict[str, float] = {}


def _say(line: Line) -> None:
    with Path(os.environ[LINES_VARIABLE]).open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


def name_of(nodeid: str) -> str:
    """``class::test`` of ``file.py::class::test``."""
    return nodeid.partition("::")[2]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests of the device that belong to this process and are not done."""
    only = _tests(ONLY_VARIABLE)
    base = _base_of_tests() if os.environ.get(GENERIC_VARIABLE) and not only else object
    done = _tests(DONE_VARIABLE)
    part, _, parts = os.environ[SHARD_VARIABLE].partition("/")

    def is_ours(item: pytest.Item) -> bool:
        of_device = issubclass(getattr(item, "cls", None) or object, base)
        name = name_of(item.nodeid)
        in_shard = zlib.crc32(name.encode()) % int(parts) == int(part)
        return of_device and in_shard and name not in done and (not only or name in only)

    ours = [item for item in items if is_ours(item)]
    config.hook.pytest_deselected(items=[item for item in items if not is_ours(item)])
    items[:] = ours
    _say(Collected(len(ours)))


def _tests(variable: str) -> frozenset[str]:
    return frozenset(Path(os.environ[variable]).read_text("utf-8").splitlines())


def _base_of_tests() -> type:
    from opsmith.schema.torch_names import PrivateUse1TestBase

    base: type = PrivateUse1TestBase
    return base


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _say(Broken(_last_line(report.longreprtext)))


def pytest_runtest_logstart(nodeid: str) -> None:
    _say(Begun(name_of(nodeid)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    known, _ = _outcomes.get(report.nodeid, ("passed", ""))
    # Of set-up, call and tear-down, the first that failed is the reason, or else the first that was skipped.
    skips = report.skipped and known == "passed" and not _is_of_subtest(report)
    if skips or (report.failed and known != "failed"):
        _outcomes[report.nodeid] = report.outcome, _reason(report)


def pytest_runtest_logfinish(nodeid: str) -> None:
    outcome, message = _outcomes.get(nodeid, ("passed", ""))
    _say(Over(name_of(nodeid), outcome, round(_seconds.get(nodeid, 0.0), 4), message))


def _is_of_subtest(report: pytest.TestReport) -> bool:
    """Whether it tells of one ``subTest``: the test runs on after it, whatever its outcome."""
    return hasattr(report, "context")


def _reason(report: pytest.TestReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    if hasattr(report, "wasxfail"):
        return f"{EXPECTED_TO_FAIL}{report.wasxfail}"
    return _last_line(report.longreprtext)


def _last_line(text: str) -> str:
    """The exception of a traceback as pytest shows it: its lines begin with ``E``."""
    said = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (said[0] if said else text.strip().splitlines()[-1] if text.strip() else "")[:600]
