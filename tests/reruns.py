"""pytest plugin of ``.ci/run``: what failed runs once more, alone and in a fresh process each.

What passes then is *flaky*: it is told under that heading with its first failure, and fails nothing.
pytest-rerunfailures would not do: it repeats a test in the process in which it failed, beside whatever an
earlier test has left there.  ``--lf`` repeats all that failed in one process, and its closing line counts
these alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

VARIABLE = "OPSMITH_TESTS_RERUN"
"""Set by ``.ci/run``; ``make test`` is without it."""

MOST = 20
"""More failures have one cause, and are not run again."""

_FAILED = ("failed", "error")


def register(config: pytest.Config) -> None:
    """Has failures of this run repeated where ``VARIABLE`` says so."""
    if os.environ.get(VARIABLE) and not hasattr(config, "workerinput"):  # a worker of xdist
        config.pluginmanager.register(Reruns(), "reruns")


class Reruns:
    @pytest.hookimpl(tryfirst=True)  # before the terminal's summary, and its closing line
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        # Not after Ctrl-C, an internal error or files that could not be collected.
        if exitstatus != pytest.ExitCode.TESTS_FAILED or session.shouldstop or session.shouldfail:
            return
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        reports = [each for outcome in _FAILED for each in terminal.stats.get(outcome, [])]
        if not all(isinstance(each, pytest.TestReport) for each in reports):
            return
        names = dict.fromkeys(report.nodeid for report in reports)
        if not 0 < len(names) <= MOST:
            return
        flaky = {name for name in names if _passes(name, session.config)}
        if not flaky:
            return
        for outcome in _FAILED:
            kept = [each for each in terminal.stats.pop(outcome, []) if each.nodeid not in flaky]
            if kept:
                terminal.stats[outcome] = kept
        # One for each test, which may have failed in its call and after it.
        first = {report.nodeid: report for report in reversed(reports) if report.nodeid in flaky}
        terminal.stats["flaky"] = [*reversed(first.values())]
        if flaky == names.keys():
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for number, report in enumerate(terminalreporter.stats.get("flaky", [])):
            if number == 0:
                terminalreporter.section("flaky: passed alone; add to tests/flaky.md", "=")
            terminalreporter.section(report.nodeid, "_")
            terminalreporter.write_line(report.longreprtext)
            for name, content in report.sections:
                terminalreporter.section(name, "-")
                terminalreporter.write_line(content)


def _passes(name: str, config: pytest.Config) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", config.getoption("markexpr"), f"--rootdir={config.rootpath}", name],
        cwd=config.rootpath,
        env={key: value for key, value in os.environ.items() if key != VARIABLE},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    # A test that is skipped this time has not passed.
    closing = done.stdout.strip().rpartition("\n")[2]
    return done.returncode == 0 and re.search(r"\d (passed|xfailed)", closing) is not None
