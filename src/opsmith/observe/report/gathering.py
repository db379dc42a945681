"""All that a report shows, from where it lies: the plan, the dispatch tables, the files of other commands.

Refuses no input for belonging to something else: the page says so instead, since a comparison across torch
versions may be just what is wanted.  Verdicts of another build are left out: ``--against`` compares builds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from opsmith.build.progress import OnProgress
from opsmith.conformance.build_digest import digest_at_hand, staleness
from opsmith.conformance.results import Results, latest_path, read_results
from opsmith.description import find_backend
from opsmith.observe.benchmarks.runs import read_run
from opsmith.observe.programs.coverage import (
    Coverage,
    ProgramCoverage,
    entries_coverage,
    read_coverage,
)
from opsmith.observe.report.operator_columns import Inspected, inspect_backend
from opsmith.observe.report.report_data import ReportData, read_document
from opsmith.observe.report.trend import trend
from opsmith.observe.report.verdict_columns import in_columns
from opsmith.runtime.as_package import left_out, why_not_loaded
from opsmith.schema import torch_version


@dataclass(frozen=True)
class Inputs:
    """The files that a report is made of; None where there is none.

    ``conform`` None: the latest results of the backend, if there are any.
    """

    conform: Path | None = None
    coverage: Path | None = None
    bench: Path | None = None
    against: Path | None = None


def gathered(
    backend: str,
    inputs: Inputs,
    *,
    source_link: str = "",
    tables: bool = True,
    build: bool = False,
    progress: OnProgress | None = None,
) -> ReportData:
    """The report of ``backend``, with the dispatch tables where ``tables``, and it is built or to ``build``.

    Reads all of ``inputs`` first, so that what is wrong with one is known before anything is built.  Raises
    :class:`~opsmith.errors.OpsmithError`.
    """
    earlier = read_document(inputs.against) if inputs.against else None
    program = read_coverage(inputs.coverage) if inputs.coverage else None
    benchmarks = read_run(inputs.bench) if inputs.bench else None
    description = find_backend(backend)
    path = inputs.conform or latest_path(description)
    results = read_results(path) if inputs.conform or path.exists() else None
    without_tables = why_not_loaded(description) if tables and not build else ""
    tables = tables and not without_tables
    inspected = inspect_backend(backend, tables=tables, progress=progress)
    digest = digest_at_hand(description)
    warnings = [*_warnings(inspected.plan.backend, inputs, path, results, program, earlier)]
    if without_tables:
        warnings.append(
            f"this report is without dispatch tables: {without_tables}; --build builds and loads it"
        )
    if note := left_out(description):
        warnings.append(f"this report is {note}")
    if results is not None and (stale := staleness(results, digest)):
        warnings.append(f"the conformance results in {path} are stale, and left out: {stale}")
        results = None
    document = ReportData(
        opsmith=opsmith_version(),
        written=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        backend=inspected.plan.backend,
        torch=torch_version(),
        description=backend,
        operators=inspected.operators,
        coverage=_coverage(inspected, results),
        source_link=source_link,
        source_root=str(Path.cwd()),
        sizes=inspected.sizes,
        warnings=tuple(warnings),
        conformance=in_columns(results, str(path), inspected.plan) if results else None,
        program=program,
        benchmarks=benchmarks,
        build=digest,
        loaded=inspected.loaded,
    )
    if earlier is None:
        return document
    return replace(document, trend=trend(earlier, str(inputs.against), document))


def _coverage(inspected: Inspected, results: Results | None) -> tuple[Coverage, ...]:
    if results is None or not results.operators:
        return inspected.coverage
    entries = entries_coverage("OpInfo entries", results.operators, inspected.plan)
    return (*inspected.coverage, entries)


def _warnings(
    backend: str,
    inputs: Inputs,
    path: Path,
    results: Results | None,
    program: ProgramCoverage | None,
    earlier: ReportData | None,
) -> Iterator[str]:
    """Warnings of inputs that are of another backend or torch; ``path`` has the ``results``."""
    here, torch = f"`{backend}`", torch_version()
    differing = []
    if results is not None:
        name = f"the conformance results in {path}"
        differing += [
            (f"`{results.backend}`", here, f"{name} are for the backend", "this report is on"),
            (results.torch, torch, f"{name} were made with torch", "this report with"),
        ]
    if program is not None:
        name = f"the program of {inputs.coverage} ran on the backend"
        differing.append((f"`{program.backend}`", here, name, "this report is on"))
    if earlier is not None:
        name = f"the earlier report {inputs.against}"
        differing += [
            (f"`{earlier.backend}`", here, f"{name} is on the backend", "this one on"),
            (earlier.torch, torch, f"{name} was made with torch", "this one with"),
        ]
    for theirs, ours, what, this in differing:
        if theirs != ours:
            yield f"{what} {theirs}, and {this} {ours}"


def opsmith_version() -> str:
    """The installed opsmith's version."""
    try:
        return version("opsmith")
    except PackageNotFoundError:
        return "unknown"
