"""A conformance run from beginning to end: what is chosen, made, judged and kept.

``opsmith conform`` and programs call :func:`run`.  The results are written while it runs, so that an
interrupted run keeps what is done, and another one can continue it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from opsmith.build.backend import BuiltBackend, build_backend
from opsmith.build.cache import cache_root
from opsmith.build.progress import Progress
from opsmith.conformance.database import known_entries
from opsmith.conformance.gaps import Gap, Key, everything, read_gaps, with_gaps, with_passing_gaps
from opsmith.conformance.pool import Listener, Pool
from opsmith.conformance.protocol import Setting
from opsmith.conformance.results import (
    Results,
    Status,
    Verdict,
    latest_path,
    read_results,
    write_results,
)
from opsmith.conformance.selection import Unit, select
from opsmith.description import find_backend
from opsmith.errors import ConformanceError, FileMissing, ResultsInvalid
from opsmith.plan import plan_backend
from opsmith.schema import torch_version

_WRITE_SECONDS = 1.0


@dataclass(frozen=True)
class Standing:
    """How far a run is: of ``total`` checks ``done`` have ended, ``bad`` of them badly, ``verdict`` last."""

    done: int
    total: int
    bad: int
    verdict: Verdict | None = None


Report = Callable[[Standing], None]


@dataclass(frozen=True)
class Outcome:
    """What :func:`run` returns: ``results`` of what was asked for; ``interrupted`` by Ctrl-C."""

    results: Results
    interrupted: bool = False


def run(
    backend: str = "sim",
    *,
    operators: Iterable[str] = (),
    dtypes: Iterable[str] = (),
    checks: Iterable[str] = (),
    samples: int = 0,
    seed: int = 0,
    jobs: int | None = None,
    timeout: float = 120.0,
    resume: bool = False,
    kernels: Path | None = None,
    report: Report = lambda standing: None,
    building: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Checks the device of ``backend`` (shipped, or a ``backend.yaml``) against OpInfo.

    ``operators`` (OpInfo's names, patterns of such, ATen operators), ``dtypes`` (``float32``) and
    ``checks`` (``backward``) narrow what is run; empty: all.  ``samples`` is the most inputs of each
    entry, 0: all; ``seed`` draws them.  ``jobs`` workers run at a time, as many as there are cores if
    None.  A check that takes longer than ``timeout`` seconds fails.  ``resume`` goes on with what an
    interrupted run of the same build, torch, samples and seed has left.  ``kernels`` is a Python file that
    registers kernels, run in each worker.  ``report`` is told how far it is.

    Ctrl-C ends the run with what is done.  Raises :class:`~opsmith.errors.FilterInvalid` for what there
    is none of, and other :class:`~opsmith.errors.OpsmithError`: a description that is wrong, a gaps file
    that is, nothing to resume.
    """
    description = find_backend(backend)
    known = known_entries(cache_root())
    gaps = read_gaps(description, known)
    earlier = _earlier(description)
    selection = select(
        known, operators, dtypes, checks,
        called=earlier.operators if earlier else {}, aten=plan_backend(backend, cache_root()).by_name,
    )  # fmt: skip
    if kernels is not None and not kernels.is_file():
        raise FileMissing(
            f"there is no file `{kernels}`",
            remedy="--kernels names a Python file that registers kernels",
        )
    built = build_backend(description, progress=building)
    record = Record(
        description,
        Results(
            built.name, torch_version(), str(description), _now(), _now(), False,
            build=_build_digest(built, kernels), samples=samples, seed=seed,
        ),
        gaps,
        report,
        earlier,
    )  # fmt: skip
    units = record.begin(selection.units(), resume=resume)
    setting = Setting(str(description), samples, seed, str(kernels) if kernels else None)
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="opsmith-conform-") as folder:
        pool = Pool(setting, jobs or len(os.sched_getaffinity(0)), timeout, Path(folder))
        try:
            pool.run(units, Listener(record.add, record.called, record.tick))
        except KeyboardInterrupt:
            interrupted = True
        except BaseException:
            record.write()
            raise
    return Outcome(record.end(everything(known), complete=not interrupted), interrupted)


@dataclass
class Record:
    """The verdicts of a run as they come in, and the file that keeps them.

    Of ``earlier``, the latest run on the same description, what is not run again stays in the file, if
    it was of the same build.
    """

    description: Path
    empty: Results
    gaps: tuple[Gap, ...]
    report: Report
    earlier: Results | None
    _verdicts: dict[Key, Verdict] = field(default_factory=dict)
    _kept: dict[Key, Verdict] = field(default_factory=dict)
    _operators: dict[str, set[str]] = field(default_factory=dict)
    _total: int = 0
    _bad: int = 0
    _written: float = 0.0

    def begin(self, units: Iterable[Unit], *, resume: bool) -> list[Unit]:
        """What is left to do of ``units``."""
        wanted = [*units]
        keys = {(unit.entry, unit.dtype, check) for unit in wanted for check in unit.checks}
        self._total = len(keys)
        if self.earlier is not None and _is_same(self.earlier, self.empty):
            self._operators = {name: set(called) for name, called in self.earlier.operators.items()}
            for verdict in self.earlier.verdicts:
                (self._verdicts if verdict.key in keys else self._kept)[verdict.key] = verdict
        elif resume:
            raise self._nothing_to_resume()
        if not resume:
            self._verdicts.clear()
        # Whether a failure is a declared gap may have changed, so these run again.
        for key, verdict in [*self._verdicts.items()]:
            if verdict.status in {Status.GAP, Status.GAP_PASSES}:
                del self._verdicts[key]
        self._bad = sum(verdict.status.is_bad for verdict in self._verdicts.values())
        self.write()
        self.report(Standing(len(self._verdicts), self._total, self._bad))
        left = []
        for unit in wanted:
            checks = tuple(
                check
                for check in unit.checks
                if (unit.entry, unit.dtype, check) not in self._verdicts
            )
            if checks:
                left.append(replace(unit, checks=checks))
        return left

    def _nothing_to_resume(self) -> ConformanceError:
        if self.earlier is None:
            reason = "there is no earlier run"
        elif self.earlier.torch != self.empty.torch:
            reason = f"the latest run was with torch {self.earlier.torch}"
        elif self.earlier.build != self.empty.build:
            reason = (
                "the latest run was of another build: the description or its kernels have changed"
            )
        else:
            reason = "the latest run had other --samples or another --seed"
        return ConformanceError(
            f"there is nothing to resume for `{self.empty.backend}`: {reason}",
            remedy="run it without --resume",
        )

    def add(self, verdict: Verdict) -> None:
        """One check has ended."""
        (verdict,) = with_gaps([verdict], self.gaps)
        self._verdicts[verdict.key] = verdict
        self._bad += verdict.status.is_bad
        self.report(Standing(len(self._verdicts), self._total, self._bad, verdict))

    def called(self, entry: str, operators: Iterable[str]) -> None:
        """``entry`` called ``operators`` on the device."""
        self._operators.setdefault(entry, set()).update(operators)

    def tick(self) -> None:
        """Writes the file where it is time."""
        # Twenty times rarer than it takes, for results that are large.
        if time.monotonic() > self._written:
            start = time.monotonic()
            self.write()
            self._written = time.monotonic() + max(_WRITE_SECONDS, 20 * (time.monotonic() - start))

    def write(self, *, complete: bool = False) -> None:
        """Writes the file that keeps the latest results."""
        verdicts = {**self._kept, **self._verdicts}
        write_results(
            replace(self._results(verdicts), complete=complete), latest_path(self.description)
        )

    def end(self, could_run: Iterable[Key], *, complete: bool) -> Results:
        """Judges the gaps, and writes the file for the last time."""
        if complete and not self.empty.samples:
            judged = with_passing_gaps([*self._verdicts.values()], self.gaps, could_run)
            self._verdicts = {verdict.key: verdict for verdict in judged}
        self.write(complete=complete)
        return replace(self._results(self._verdicts), complete=complete)

    def _results(self, verdicts: Mapping[Key, Verdict]) -> Results:
        return replace(
            self.empty,
            updated=_now(),
            verdicts=tuple(verdicts.values()),
            operators={name: tuple(sorted(called)) for name, called in self._operators.items()},
        )


def _is_same(earlier: Results, now: Results) -> bool:
    return all(
        getattr(earlier, field) == getattr(now, field)
        for field in ("torch", "build", "samples", "seed")
    )


def _earlier(description: Path) -> Results | None:
    try:
        return read_results(latest_path(description))
    except (FileMissing, ResultsInvalid):
        return None  # it will be written anew


def _build_digest(built: BuiltBackend, kernels: Path | None) -> str:
    # Both libraries are named for their content.
    parts = [built.library.name, built.driver.name, kernels.read_text("utf-8") if kernels else ""]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
