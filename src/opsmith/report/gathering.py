"""All that a report shows, from where it lies: the plan, the dispatch tables, the files of other commands.

Refuses no input for belonging to something else: the page says so instead, since a comparison across torch
versions may be just what is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from opsmith.benchmarks.runs import read_run
from opsmith.build.progress import OnProgress
from opsmith.conformance.results import Results, latest_path, read_results
from opsmith.description import find_backend
from opsmith.programs.coverage import Coverage, entries_coverage, read_coverage
from opsmith.report.operator_columns import inspect_backend
from opsmith.report.report_data import ReportData, read_document
from opsmith.report.trend import trend
from opsmith.report.verdict_columns import in_columns
from opsmith.schema import torch_version

_ABSENT = "absent"


@dataclass(frozen=True)
class Inputs:
    """The files that a report is made of; None where there is none.

    ``conform`` None: the latest results of the backend, if there are any.
    """

    conform: Path | None = None
    coverage: Path | None = None
    bench: Path | None = None
    against: Path | None = None


class Gathering:
    """A backend's report, which is gathered again where the results of ``opsmith conform`` changed."""

    def __init__(
        self,
        backend: str,
        inputs: Inputs,
        *,
        source_link: str = "",
        tables: bool = True,
        awaits_results: bool = False,
        progress: OnProgress | None = None,
    ) -> None:
        """Reads all of ``inputs``, so that what is wrong with one is known before anything is built.

        The results of ``inputs.conform`` need not be there yet where the caller ``awaits_results``.
        Raises :class:`~opsmith.errors.OpsmithError`.
        """
        self._inputs = inputs
        self._needs_results = inputs.conform is not None and not awaits_results
        self._source_link = source_link
        self._earlier = read_document(inputs.against) if inputs.against else None
        self._program = read_coverage(inputs.coverage) if inputs.coverage else None
        self._benchmarks = read_run(inputs.bench) if inputs.bench else None
        self._backend = backend
        self._description = find_backend(backend)
        self._known_state = _ABSENT
        self._results: Results | None = None
        self._read()
        self._inspected = inspect_backend(backend, tables=tables, progress=progress)

    @property
    def results(self) -> Path:
        """The file of the conformance results, which may not be there yet."""
        return self._inputs.conform or latest_path(self._description)

    @property
    def state(self) -> str:
        """What changes with the file of the conformance results; ``absent`` while there is none."""
        try:
            found = self.results.stat()
        except OSError:
            return _ABSENT
        return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"

    def document(self) -> ReportData:
        """The report as of now.  Raises what reading the conformance results raises."""
        results = self._read()
        conformance = (
            in_columns(results, str(self.results), self._inspected.plan) if results else None
        )
        document = ReportData(
            opsmith=opsmith_version(),
            written=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            backend=self._inspected.plan.backend,
            torch=torch_version(),
            description=self._backend,
            operators=self._inspected.operators,
            coverage=self._coverage(results),
            source_link=self._source_link,
            source_root=str(Path.cwd()),
            sizes=self._inspected.sizes,
            warnings=self._warnings(results),
            conformance=conformance,
            program=self._program,
            benchmarks=self._benchmarks,
        )
        if self._earlier is not None:
            changed = trend(self._earlier, str(self._inputs.against), document)
            document = replace(document, trend=changed)
        return document

    def _read(self) -> Results | None:
        """The conformance results, read anew only where the file is another one than before."""
        state = self.state
        if state != self._known_state or self._needs_results:
            there = state != _ABSENT or self._needs_results
            self._results = read_results(self.results) if there else None
            self._known_state, self._needs_results = state, False
        return self._results

    def _coverage(self, results: Results | None) -> tuple[Coverage, ...]:
        coverage = self._inspected.coverage
        if results is None or not results.operators:
            return coverage
        return (
            *coverage,
            entries_coverage("OpInfo entries", results.operators, self._inspected.plan),
        )

    def _warnings(self, results: Results | None) -> tuple[str, ...]:
        backend, torch = f"`{self._inspected.plan.backend}`", torch_version()
        found = []

        def compare(theirs: str, ours: str, what: str, here: str) -> None:
            if theirs != ours:
                found.append(f"{what} {theirs}, and {here} {ours}")

        if results is not None:
            name = f"the conformance results in {self.results}"
            compare(
                f"`{results.backend}`", backend, f"{name} are for the backend", "this report is on"
            )
            compare(results.torch, torch, f"{name} were made with torch", "this report with")
        if (program := self._program) is not None:
            name = f"the program of {self._inputs.coverage}"
            compare(
                f"`{program.backend}`", backend, f"{name} ran on the backend", "this report is on"
            )
        if (earlier := self._earlier) is not None:
            name = f"the earlier report {self._inputs.against}"
            compare(f"`{earlier.backend}`", backend, f"{name} is on the backend", "this one on")
            compare(earlier.torch, torch, f"{name} was made with torch", "this one with")
        return tuple(found)


def opsmith_version() -> str:
    """The installed opsmith's version."""
    try:
        return version("opsmith")
    except PackageNotFoundError:
        return "unknown"
