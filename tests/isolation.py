"""pytest plugin: test files that run in a process of their own, since a process loads one backend.

Such a file says so with a mark, which is read without importing the file::

    pytestmark = pytest.mark.isolated
    pytestmark = pytest.mark.isolated(OPSMITH_ISA=("", "avx2"), nightly=("avx2",), opinfo=True)

The second one is tested once for each value of the environment variable.  Files of a folder with the same
mark share a process for each value: a folder has one backend.  Each test function is an item, which stands
for all its cases; ``test_x[avx2-case]``, or ``test_x[case]`` without values, names a single one.

The first item that is run starts the process (``isolated_run.py``) for all selected ones, and each item
then waits for its own results.  A failed item names the cases that failed, and ``--lf`` runs only these.
"""

from __future__ import annotations

import ast
import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fork_server

RUN = Path(__file__).with_name("isolated_run.py")

_FAILED_CASES = "isolation/failed_cases"
_OUTPUT = 6000  # characters of a process that died


# ---- what a file says


@dataclass(frozen=True)
class Isolated:
    """The arguments of the mark ``isolated``."""

    variable: str = ""
    values: tuple[str, ...] = ("",)
    nightly: tuple[str, ...] = ()
    """Those of the values that only the nightly tests take."""
    opinfo: bool = False
    """Whether the file imports PyTorch's OpInfo, which takes seconds where no server has done so."""
    timeout: float = 1800
    """Seconds for the whole process, which may compile for most of them."""

    def bracket(self, value: str, case: str = "") -> str:
        """The parameters behind the name of a test function, as pytest writes them."""
        words = [*([value or "default"] if self.variable else []), *([case] if case else [])]
        return f"[{'-'.join(words)}]" if words else ""


@functools.cache
def isolated(path: Path) -> Isolated | None:
    """The mark of the test file at ``path``; None where it runs in the process of all others."""
    text = path.read_text(encoding="utf-8")
    if "mark.isolated" not in text:
        return None
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            name, _, given = _mark(node.value)
            if name == "isolated":
                variables = [keyword for keyword in given if keyword.isupper()]
                for variable in variables:
                    given.update(variable=variable, values=given.pop(variable))
                return Isolated(**given)
            if "mark.isolated" in ast.unparse(node.value):
                raise pytest.UsageError(
                    f"{path}:{node.lineno}: the file is not imported to read the mark `isolated`: it stands "
                    "alone, and its arguments are literals"
                )
    return None


def _mark(node: ast.expr) -> tuple[str, list[Any], dict[str, Any]]:
    """Name and arguments of ``pytest.mark.name(...)``; no name for what is not such, or not literal."""
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    parent, _, name = ast.unparse(call.func).rpartition(".")
    try:
        arguments = [ast.literal_eval(argument) for argument in call.args]
        keywords = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except ValueError:
        return "", [], {}
    return (name if parent == "pytest.mark" else ""), arguments, keywords


def process_name(path: Path, test: str) -> str | None:
    """Names the process that runs ``test`` of the file at ``path``; None where the file is not isolated."""
    declared = isolated(path)
    if declared is None:
        return None
    values = {declared.bracket(value)[:-1]: value for value in declared.values}
    given = test.partition("[")[1] + test.partition("[")[2].rstrip("]")
    value = next(
        (v for start, v in values.items() if given == start or given.startswith(f"{start}-")), ""
    )
    return f"{path.parent}{declared}{value}"


# ---- collection


class IsolatedFile(pytest.File):
    """A file that is read for the names of its tests, but not imported."""

    def collect(self) -> Iterator[pytest.Item]:
        declared = isolated(self.path)
        assert declared is not None
        functions = _test_functions(ast.parse(self.path.read_text(encoding="utf-8")))
        for function, value in itertools.product(functions, declared.values):
            for case in ("", *self._named_cases(function.name, declared.bracket(value))):
                test: IsolatedTest = IsolatedTest.from_parent(
                    self,
                    name=function.name + declared.bracket(value, case),
                    function=function,
                    declared=declared,
                    value=value,
                    cases=[case] if case else [],
                )
                yield test

    def _named_cases(self, function: str, bracket: str) -> Iterator[str]:
        """The cases of a function that the command line names."""
        start = function + (f"{bracket[:-1]}-" if bracket else "[")
        for argument in self.config.args:
            file, _, test = argument.partition("::")
            path = self.config.invocation_params.dir / file
            if test.startswith(start) and path.resolve() == self.path.resolve():
                yield test.removeprefix(start).removesuffix("]")


def _test_functions(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """Those of a module, also within an ``if``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If):
            yield from _test_functions(child)
        elif isinstance(child, ast.FunctionDef) and child.name.startswith("test_"):
            yield child


class IsolatedTest(pytest.Item):
    """A test function with all its cases, or with those of ``cases``, for one value of the variable."""

    def __init__(
        self,
        function: ast.FunctionDef,
        declared: Isolated,
        value: str,
        cases: list[str],
        **given: Any,
    ) -> None:
        super().__init__(**given)
        assert self.parent is not None
        self.function, self.declared, self.value, self.cases = function, declared, value, cases
        self.inner = f"{self.parent.nodeid}::{function.name}"
        """The node's identifier in the process, where values are not parameters."""
        self.process_name = process_name(self.path, self.name)
        if value in declared.nightly:
            self.add_marker("nightly")
        for name, arguments, _ in map(_mark, function.decorator_list):
            if name in {"nightly", "needs"}:
                self.add_marker(getattr(pytest.mark, name)(*arguments) if arguments else name)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.function.lineno - 1, self.name

    def runtest(self) -> None:
        plugin = self.config.pluginmanager.get_plugin("isolation")
        assert isinstance(plugin, Plugin)
        plugin.process(self).wait_for(self)


# ---- the process


class Process:
    """Runs the tests of ``items`` in a process, and reads what it writes of them meanwhile."""

    def __init__(self, items: list[IsolatedTest]) -> None:
        self.first, self.last, self.config = items[0], items[-1], items[0].config
        self.reports: dict[str, list[pytest.TestReport]] = defaultdict(list)
        """By the identifier that a case has in the process."""
        self.cases: dict[str, list[str]] = defaultdict(list)
        """The cases of each function."""
        self.finished: set[str] = set()
        self.running = self.output = ""
        self.ended = "could not be started"
        self.is_collected = self.ended_well = False
        self.not_collected: dict[str, tuple[str, str]] = {}
        """The files that skip themselves or cannot be imported: the outcome, and why."""
        self._folder = tempfile.TemporaryDirectory(
            prefix="opsmith-isolated-", ignore_cleanup_errors=True
        )
        folder = Path(self._folder.name)
        selected: dict[str, list[str]] = {}
        for item in items:
            selected.setdefault(item.inner, []).extend(item.cases or [""])
        (folder / "selected.json").write_text(json.dumps(selected))
        (folder / "empty").mkdir()
        self._results = open(folder / "results.jsonl", "x+", encoding="utf-8")  # noqa: SIM115
        self._partial = ""
        files = dict.fromkeys(str(item.path) for item in items)
        self._thread = threading.Thread(target=self._run, args=(folder, list(files)), daemon=True)
        self._thread.start()

    def _run(self, folder: Path, files: list[str]) -> None:
        declared = self.first.declared
        environment = {**os.environ, "OPSMITH_TEST_FOLDER": str(folder / "empty")}
        if declared.variable:
            environment[declared.variable] = self.first.value
        try:
            done = fork_server.run(
                [sys.executable, RUN, folder, f"--rootdir={self.config.rootpath}", *files],
                imports=fork_server.OPINFO if declared.opinfo else None,
                env=environment,
                timeout=declared.timeout,
            )
        except subprocess.TimeoutExpired as late:
            self.ended = f"did not end within {declared.timeout:.0f} s"
            self.output = "".join(str(text or "") for text in (late.stdout, late.stderr))
        else:
            status = done.returncode
            named = signal.Signals(-status).name if status < 0 else f"status {status}"
            self.ended = f"ended with {named}"
            self.ended_well = status in {0, 1, 5}  # pytest's: passed, failed, nothing to run
            self.output = done.stdout + done.stderr

    def wait_for(self, item: IsolatedTest) -> None:
        """Returns when all cases of ``item`` have finished, or the process has ended."""
        while not self._is_finished(item) and self._thread.is_alive():
            time.sleep(0.05)
            self._read()
        if item is self.last:
            self._thread.join()
        self._read()

    def _is_finished(self, item: IsolatedTest) -> bool:
        return self.is_collected and self.finished.issuperset(self.cases_of(item))

    def cases_of(self, item: IsolatedTest) -> list[str]:
        """The identifiers of the item's cases in the process."""
        wanted = {f"{item.inner}[{case}]" for case in item.cases}
        return [case for case in self.cases[item.inner] if not wanted or case in wanted]

    def _read(self) -> None:
        *lines, self._partial = (self._partial + self._results.read()).split("\n")
        for kind, what in map(json.loads, lines):
            if kind == "collected":
                self.is_collected = True
                for case in what:
                    self.cases[case.partition("[")[0]].append(case)
            elif kind == "not collected":
                file, outcome, why = what
                self.not_collected[file] = outcome, why
            elif kind == "started":
                self.running = what
            elif kind == "finished":
                self.running = ""
                self.finished.add(what)
            else:
                hook = self.config.hook.pytest_report_from_serializable
                report = hook(config=self.config, data=what)
                if isinstance(report.longrepr, list):  # where it was skipped, a tuple before JSON
                    report.longrepr = tuple(report.longrepr)
                self.reports[report.nodeid].append(report)

    def describe(self, item: IsolatedTest, report: pytest.TestReport) -> None:
        """Makes ``report`` say what came of the item's cases."""
        cases = self.cases_of(item)
        found = {case: self.reports[case] for case in cases}
        phases = [phase for case in cases for phase in found[case]]
        failed = {case: [phase for phase in found[case] if phase.failed] for case in cases}
        failed = {case: phases for case, phases in failed.items() if phases}
        report.duration = sum(phase.duration for phase in phases)
        vars(report)["cases"] = {
            "count": len(cases),
            "failed": [case.removeprefix(item.inner)[1:-1] for case in failed],
        }
        outcome, why = self.not_collected.get(item.inner.partition("::")[0], ("", ""))
        if outcome == "failed" or not self._is_finished(item):
            report.outcome, report.longrepr = "failed", why or self._why_not_finished(item)
        elif item.cases and not cases:
            known = ", ".join(case.removeprefix(item.inner) for case in self.cases[item.inner])
            report.outcome = "failed"
            report.longrepr = f"{item.inner} has no case [{item.cases[0]}]; it has {known}"
        elif item is self.last and not self.ended_well:
            report.outcome = "failed"
            report.longrepr = f"all tests ran, and then the process {self.ended}\n{self.output}"
        elif not cases:
            why = why or f"the file has no such test for {item.value or 'this process'}"
            report.outcome, report.longrepr = "skipped", (str(item.path), item.function.lineno, why)
        elif len(cases) > 1 and failed:
            report.outcome, report.longrepr = "failed", _text_of(failed, len(cases))
        else:
            # The phase that tells most: a failure, a call, or a setup that skips.
            ranks = ("failed", "passed", "skipped")
            chosen = min(
                (phase for phase in phases if phase.when == "call" or not phase.passed),
                key=lambda phase: ranks.index(phase.outcome),
            )
            told = {"outcome", "longrepr", "sections", "wasxfail"}
            vars(report).update({name: vars(chosen)[name] for name in told & vars(chosen).keys()})

    def _why_not_finished(self, item: IsolatedTest) -> str:
        output = f"\n{self.output[-_OUTPUT:]}"
        if self.running.partition("[")[0] == item.inner:
            return f"the process {self.ended} while it ran {self.running}{output}"
        if self.running:
            return f"not run because the process {self.ended} while it ran {self.running}"
        if item is self.first:
            return f"not run because the process {self.ended}{output}"
        return f"not run because the process {self.ended}: see {self.first.nodeid}"


def _text_of(failed: dict[str, list[pytest.TestReport]], count: int) -> str:
    text = [f"{len(failed)} of {count} cases failed:", *failed]
    for case, phases in failed.items():
        for phase in phases:
            text += ["", f"---- {case} ({phase.when})", phase.longreprtext]
            text += [f"-- {name}\n{content}" for name, content in phase.sections]
    return "\n".join(text)


# ---- the plugin


class Plugin:
    """Registered by ``conftest.py``, under the name ``isolation``."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._processes: dict[str | None, Process] = {}
        self._cache: pytest.Cache | None = getattr(config, "cache", None)
        self._failed: dict[str, list[str]] = (
            self._cache.get(_FAILED_CASES, {}) if self._cache else {}
        )
        self._count = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        if isolated(module_path) is None:
            return None
        file: pytest.Collector = IsolatedFile.from_parent(parent, path=module_path)
        return file

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self._config.getoption("lf", False):
            for item in session.items:
                if isinstance(item, IsolatedTest) and not item.cases:
                    item.cases = self._failed.get(item.nodeid, [])

    def process(self, item: IsolatedTest) -> Process:
        """The process that runs ``item``, and all selected tests that share it."""
        name = item.process_name
        if name not in self._processes:
            tests = [each for each in item.session.items if isinstance(each, IsolatedTest)]
            self._processes[name] = Process([each for each in tests if each.process_name == name])
        return self._processes[name]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if isinstance(item, IsolatedTest) and call.when == "call" and not call.excinfo:
            self.process(item).describe(item, report)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if cases := getattr(report, "cases", None):
            self._count += cases["count"]
            self._failed.pop(report.nodeid, None)
            if cases["failed"]:
                self._failed[report.nodeid] = cases["failed"]

    def pytest_sessionfinish(self) -> None:
        if self._cache and not hasattr(self._config, "workerinput"):  # a worker of xdist
            self._cache.set(_FAILED_CASES, self._failed)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._count:
            terminalreporter.write_line(f"isolated tests: {self._count} cases")
