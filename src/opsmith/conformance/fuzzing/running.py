"""A run of random programs: what ``opsmith fuzz`` does, for whoever calls it from Python."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root
from opsmith.build.backend import build_backend
from opsmith.build.progress import OnProgress
from opsmith.conformance.database import known_entries
from opsmith.conformance.expected_failures import read_expected_failures
from opsmith.conformance.fuzzing.findings import Finding, FuzzOutcome
from opsmith.conformance.pool import Listener, Pool, workers
from opsmith.conformance.protocol import Setting
from opsmith.conformance.record import OnStanding, Standing
from opsmith.conformance.results import Check, Status, Verdict
from opsmith.conformance.selection import WorkUnit
from opsmith.description import find_backend
from opsmith.schema import torch_version


@dataclass
class _Gathered:
    """The reports of the workers so far."""

    setting: Setting
    device: str
    programs: int
    report: OnStanding
    done: int = 0
    steps: int = 0
    skipped: int = 0
    operators: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    noted: bytes = b""
    how_loaded: str = ""

    def verdict(self, verdict: Verdict) -> None:
        self.done += 1
        index = int(verdict.entry)
        match verdict.status:
            case Status.PASSED:
                self.steps += verdict.samples
            case Status.SKIPPED if not self.noted:
                self.skipped += 1
            case Status.FAILED:
                self.steps += verdict.samples
                self.findings.append(msgspec.json.decode(verdict.message, type=Finding))
            case _:
                if (finding := self._ended(index, verdict)) is None:
                    self.skipped += 1
                else:
                    self.findings.append(finding)
        self.noted = b""
        self.report(Standing(self.done, self.programs, len(self.findings), verdict))

    def called(self, entry: str, operators: Iterable[str]) -> None:
        self.operators.update(operators)

    def note(self, noted: bytes) -> None:
        self.noted = noted

    def loaded(self, how: str) -> None:
        self.how_loaded = how

    def tick(self) -> None:
        """Nothing is written while it runs."""

    def _ended(self, index: int, verdict: Verdict) -> Finding | None:
        """The program of a worker that crashed or hung: one that it made smaller, or the one drawn again.

        Of the former, the smallest one that differs where it was PyTorch's CPU that ended the process.
        None where drawing crashes too: then it is PyTorch's CPU that does.
        """
        if self.noted:
            found, tried = msgspec.json.decode(self.noted, type=tuple[Finding, Finding])
            if not verdict.status.is_bad:
                return found
            return msgspec.structs.replace(tried, kind=verdict.status.value, text=verdict.message)
        arguments = [str(each) for each in (self.setting.seed, index, verdict.samples)]
        shown = subprocess.run(
            [sys.executable, "-m", "opsmith.conformance.fuzzing.show", *arguments],
            input=msgspec.json.encode(
                [self.setting.fuzz, self.device, verdict.status.value, verdict.message]
            ),
            capture_output=True,
        )
        if shown.returncode < 0:
            return None
        shown.check_returncode()
        return msgspec.json.decode(shown.stdout, type=Finding)


def fuzz(
    backend: str = "sim",
    *,
    programs: int,
    seed: int = 0,
    jobs: int | None = None,
    timeout: float = 300.0,
    kernels: Path | None = None,
    expected_failures: Path | None = None,
    report: OnStanding = lambda standing: None,
    building: OnProgress | None = None,
) -> FuzzOutcome:
    """Runs ``programs`` random programs of seed ``seed`` on the device of ``backend`` and on the CPU.

    Program i of a seed is the same for any backend, machine and number of workers.  ``jobs``, ``timeout``
    (of one program, in seconds), ``kernels``, ``expected_failures``, ``report`` and ``building`` are those
    of :func:`opsmith.conformance.run`.  Ctrl-C ends the run with what is done.
    """
    description = find_backend(backend)
    declared = read_expected_failures(description, known_entries(cache_root()), expected_failures)
    built = build_backend(description, progress=building)
    setting = Setting(
        str(description),
        0,
        seed,
        str(kernels) if kernels else None,
        fuzz=backend or str(description),
    )
    gathered = _Gathered(setting, built.name, programs, report)
    units = (WorkUnit(str(index), "", (Check.FUZZ,)) for index in range(programs))
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="opsmith-conform-") as folder:
        pool = Pool(setting, workers(jobs), timeout, Path(folder))
        try:
            told = (gathered.verdict, gathered.called, gathered.tick, gathered.note)
            pool.run(units, Listener(*told, gathered.loaded))
        except KeyboardInterrupt:
            interrupted = True
    expected = [
        finding
        for finding in gathered.findings
        if any(each.covers_program(finding.operator, finding.program) for each in declared)
    ]
    return FuzzOutcome(
        built.name,
        torch_version(),
        seed,
        gathered.done,
        gathered.steps,
        frozenset(gathered.operators),
        [finding for finding in gathered.findings if finding not in expected],
        expected,
        gathered.skipped,
        interrupted,
        gathered.how_loaded,
    )
