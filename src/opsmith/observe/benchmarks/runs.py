"""Running a project's benchmarks by name, keeping what they measured, and comparing it with an earlier run.

The benchmarks are the scripts in a folder that end with
:func:`opsmith.observe.benchmarks.measurements.report`; names that begin with ``_`` are what they share.
``opsmith bench`` runs them, the report shows a run.
"""

from __future__ import annotations

import ast
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import msgspec

import opsmith
from opsmith.base.json_files import JsonFile
from opsmith.errors import BenchmarkUnknown, FileMissing, nearest
from opsmith.observe.benchmarks.measurements import BenchmarkReport, Measurement
from opsmith.schema import torch_version

FORMAT = 1
"""The version of the file's format; a file of a newer one is refused."""


@dataclass(frozen=True)
class Benchmark:
    """A script that measures; ``summary`` is the first line of its docstring."""

    name: str
    path: Path
    summary: str


@dataclass(frozen=True)
class BenchmarkResult:
    """The measurements of one benchmark; ``failure`` is what it printed last where it did not end well."""

    name: str
    title: str
    seconds: float
    measurements: tuple[Measurement, ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class BenchRun:
    """The results of several benchmarks, with place and time (ISO 8601, UTC)."""

    torch: str
    machine: str
    started: str
    results: tuple[BenchmarkResult, ...]
    format: int = FORMAT

    def measurements(self) -> Iterator[tuple[str, Measurement]]:
        """All measurements, each with the name of its benchmark."""
        for result in self.results:
            for measurement in result.measurements:
                yield result.name, measurement

    def of_operator(self, name: str) -> tuple[Measurement, ...]:
        """The measurements of calls of the operator ``name``."""
        return tuple(each for _, each in self.measurements() if each.operator == name)


# ---- finding


def find_benchmarks(folder: Path | None = None) -> tuple[Benchmark, ...]:
    """The benchmarks in ``folder``; without one, in ``benchmarks/`` here or in opsmith's own checkout.

    Raises :class:`~opsmith.errors.FileMissing` where there are none.
    """
    own = Path(opsmith.__file__).resolve().parents[2] / "benchmarks"
    folders = [folder] if folder is not None else [Path("benchmarks"), own]
    for each in folders:
        scripts = sorted(each.glob("[!_]*.py"))
        if scripts:
            return tuple(Benchmark(path.stem, path, _summary(path)) for path in scripts)
    raise FileMissing(
        f"there are no benchmarks in `{folder or 'benchmarks'}`",
        remedy="name the folder of your scripts with --folder; opsmith's own are in its repository",
    )


def choose(benchmarks: Sequence[Benchmark], names: Sequence[str]) -> tuple[Benchmark, ...]:
    """Those with the ``names``, in their order; all without any.

    Raises :class:`~opsmith.errors.BenchmarkUnknown`.
    """
    by_name = {benchmark.name: benchmark for benchmark in benchmarks}
    for name in names:
        if name not in by_name:
            raise BenchmarkUnknown(
                f"there is no benchmark `{name}`{nearest(name, by_name)}",
                remedy=f"name some of: {', '.join(by_name)}",
            )
    return tuple(by_name[name] for name in names) or tuple(benchmarks)


def _summary(path: Path) -> str:
    try:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    except (SyntaxError, UnicodeDecodeError):
        return ""
    return (docstring or "").partition("\n\n")[0].replace("\n", " ")


# ---- running


def run_benchmark(benchmark: Benchmark) -> BenchmarkResult:
    """Runs ``benchmark`` in a process of its own; what it prints to standard error is shown."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(benchmark.path), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.perf_counter() - start
    lines = done.stdout.splitlines()
    if done.returncode != 0:
        return _failed(benchmark, seconds, f"it ended with status {done.returncode}", lines)
    try:
        report = msgspec.json.decode(lines[-1] if lines else "", type=BenchmarkReport)
    except msgspec.DecodeError:
        return _failed(benchmark, seconds, "it did not end with a report", lines)
    return BenchmarkResult(benchmark.name, report.title, seconds, report.measurements)


def _failed(
    benchmark: Benchmark, seconds: float, why: str, lines: Sequence[str]
) -> BenchmarkResult:
    last = "\n".join([why, *lines[-5:]])
    return BenchmarkResult(benchmark.name, benchmark.summary, seconds, failure=last)


def begin() -> BenchRun:
    """A run on this machine, from now on, without results."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return BenchRun(torch_version(), _machine(), now, ())


def _machine() -> str:
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(
            line.partition(":")[2].strip()
            for line in described.splitlines()
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


# ---- comparing


@dataclass(frozen=True)
class Change:
    """A measurement then and now.

    ``change`` is that of the value, the ratio to the peer where there is one, as a part of the earlier.
    ``is_certain``: it is more than both spreads together, and more than a hundredth.
    """

    benchmark: str
    name: str
    before: float
    now: float
    change: float
    is_certain: bool


def changes(earlier: BenchRun, run: BenchRun) -> tuple[Change, ...]:
    """The changes in the measurements that both runs have, the largest change for the worse first."""
    before = {(benchmark, each.name): each for benchmark, each in earlier.measurements()}
    found = []
    for benchmark, each in run.measurements():
        old = before.get((benchmark, each.name))
        if old is None or not old.value:
            continue
        change = each.value / old.value - 1
        certain = abs(change) > max(0.01, old.spread + each.spread)
        found.append(Change(benchmark, each.name, old.value, each.value, change, certain))
    return tuple(sorted(found, key=lambda change: -change.change))


def read_run(path: Path) -> BenchRun:
    """The run that ``opsmith bench --output FILE`` wrote to ``path``.

    Raises :class:`~opsmith.errors.FileMissing`, or :class:`~opsmith.errors.ResultsInvalid` for a file
    that holds none, or is of a newer version.
    """
    remedy = "write it with `opsmith bench --output FILE`"
    return JsonFile(BenchRun, FORMAT, "a run of benchmarks", remedy).read(path)
