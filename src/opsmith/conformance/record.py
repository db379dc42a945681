"""The verdicts of a run as they come in, and the file that keeps them.

The file is written about once a second, so that an interrupted run keeps what is done and another one
can go on with it.  Results of an earlier run that the new one does not make again stay in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from opsmith.base.cache_folder import make_folder
from opsmith.conformance.expected_failures import (
    ExpectedFailure,
    Key,
    with_expected_failures,
    with_unexpected_passes,
)
from opsmith.conformance.results import (
    Results,
    Status,
    Verdict,
    latest_path,
    read_results,
    write_results,
)
from opsmith.errors import ConformanceError, FileMissing, ResultsInvalid

_WRITE_SECONDS = 1.0


@dataclass(frozen=True)
class Standing:
    """How far a run is: of ``total`` checks ``done`` have ended, ``bad`` of them badly, ``verdict`` last."""

    done: int
    total: int
    bad: int
    verdict: Verdict | None = None


OnStanding = Callable[[Standing], None]


@dataclass
class Record:
    """The verdicts of a run; ``header`` are its results without any.

    ``report`` is told how far it is.
    """

    header: Results
    expected_failures: tuple[ExpectedFailure, ...]
    report: OnStanding
    _verdicts: dict[Key, Verdict] = field(default_factory=dict)
    _kept: dict[Key, Verdict] = field(default_factory=dict)
    _operators: dict[str, set[str]] = field(default_factory=dict)
    _total: int = 0
    _bad: int = 0
    _write_next: float = 0.0

    def begin(
        self, earlier: Results | None, is_wanted: Callable[[Key], bool], *, resume: bool
    ) -> None:
        """Takes over what ``earlier`` has: what is not wanted again, and with ``resume`` what is.

        Nothing of another build, torch, seed or number of samples; to resume that raises
        :class:`~opsmith.errors.ConformanceError`.
        """
        difference = _difference(earlier, self.header)
        if resume and difference:
            raise ConformanceError(
                f"there is nothing to resume for `{self.header.backend}`: {difference}",
                remedy="run it without --resume",
            )
        if earlier is not None and not difference:
            self._operators = {name: set(called) for name, called in earlier.operators.items()}
            for verdict in earlier.verdicts:
                if not is_wanted(verdict.key):
                    self._kept[verdict.key] = verdict
                # Whether a failure is expected may have changed, so these run again.
                elif resume and verdict.status not in {
                    Status.EXPECTED_FAILURE,
                    Status.UNEXPECTED_PASS,
                }:
                    self._verdicts[verdict.key] = verdict
                    self._bad += verdict.status.is_bad
        self.write()

    @property
    def done(self) -> frozenset[Key]:
        """The keys of the verdicts that need not be made again."""
        return frozenset(self._verdicts)

    def expect(self, count: int) -> None:
        """So many more will come."""
        self._total += count
        self._tell(None)

    def add(self, verdict: Verdict) -> Verdict:
        """One check has ended, or is judged again; its verdict, as an expected failure where it is one."""
        (verdict,) = with_expected_failures([verdict], self.expected_failures)
        earlier = self._verdicts.get(verdict.key)
        self._bad += verdict.status.is_bad - (earlier is not None and earlier.status.is_bad)
        self._verdicts[verdict.key] = verdict
        self._tell(verdict)
        return verdict

    def _tell(self, verdict: Verdict | None) -> None:
        self.report(Standing(len(self._verdicts), self._total, self._bad, verdict))

    def loaded(self, how: str) -> None:
        """A worker has loaded the backend."""
        self.header = replace(self.header, loaded=how)

    def called(self, entry: str, operators: Iterable[str]) -> None:
        """``entry`` called ``operators`` on the device."""
        self._operators.setdefault(entry, set()).update(operators)

    def tick(self) -> None:
        """Writes the file where it is time."""
        if time.monotonic() > self._write_next:
            start = time.monotonic()
            self.write()
            # Large results take long, and are written more rarely.
            took = time.monotonic() - start
            self._write_next = time.monotonic() + max(_WRITE_SECONDS, 20 * took)

    def write(self, *, complete: bool = False) -> None:
        """Writes the file of the latest results."""
        results = self._results({**self._kept, **self._verdicts})
        path = latest_path(Path(self.header.description))
        make_folder(path.parent)
        write_results(replace(results, complete=complete), path)

    def end(self, could_run: Iterable[Key] | None) -> Results:
        """Writes the file for the last time; the results of this run alone.

        ``could_run`` is all that a whole run makes: expected failures are judged by it.  None for a run
        that was interrupted.
        """
        if could_run is not None and not self.header.samples:
            judged = with_unexpected_passes(
                [*self._verdicts.values()], self.expected_failures, could_run
            )
            self._verdicts = {verdict.key: verdict for verdict in judged}
        complete = could_run is not None
        self.write(complete=complete)
        return replace(self._results(self._verdicts), complete=complete)

    def _results(self, verdicts: Mapping[Key, Verdict]) -> Results:
        return replace(
            self.header,
            updated=now(),
            verdicts=tuple(verdicts.values()),
            operators={name: tuple(sorted(called)) for name, called in self._operators.items()},
        )


def _difference(earlier: Results | None, header: Results) -> str:
    """Why ``earlier`` tells nothing about the run of ``header``; empty where it does."""
    if earlier is None:
        return "there is no earlier run"
    if earlier.torch != header.torch:
        return f"the latest run was with torch {earlier.torch}"
    if earlier.build != header.build:
        return "the latest run was of another build: the description or its kernels have changed"
    if (earlier.samples, earlier.seed) != (header.samples, header.seed):
        return f"the latest run had --samples {earlier.samples} --seed {earlier.seed}"
    return ""


def latest_results(description: Path) -> Results | None:
    """The latest results of a backend; None where there are none that can be read."""
    try:
        return read_results(latest_path(description))
    except (FileMissing, ResultsInvalid):
        return None  # they will be written anew


def now() -> str:
    """The time as results hold it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
