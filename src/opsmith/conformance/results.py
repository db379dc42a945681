"""The verdicts of a conformance run, and the file that keeps them.

Written by ``opsmith conform`` while it runs, so that what is done is kept; read by the report, by
``opsmith ops show`` and by whoever gates a build on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root
from opsmith.base.json_files import JsonFile
from opsmith.base.output_files import write_output

FORMAT = 2
"""The version of the file's format; a file of a newer one is refused."""

_RENAMED = {
    '"status":"gap"': '"status":"expected failure"',
    '"status":"gap passes"': '"status":"unexpected pass"',
}


class Check(Enum):
    """A check of one entry of OpInfo in one dtype."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OUT = "out"
    IN_PLACE = "in-place"
    NONCONTIGUOUS = "non-contiguous"
    EMPTY = "empty"
    DTYPES = "dtypes"
    MIXED_DTYPES = "mixed-dtypes"
    DETERMINISM = "determinism"
    META = "meta"
    BOUNDARY = "boundary"
    FUZZ = "fuzz"
    """A random program, whose number is the verdict's entry."""
    UPSTREAM = "upstream"
    """A test of PyTorch's own files; the verdict's entry is then ``file::class::test``."""


class Status(Enum):
    """How a check ended.

    ``EXPECTED_FAILURE`` is a failure that the backend's author has declared, ``UNEXPECTED_PASS`` a declared
    one that did not fail: it fails the run.  ``SKIPPED`` checks have nothing to run, and say why.  A
    worker that ``CRASHED`` or ``TIMED_OUT`` did so on the device; where PyTorch's CPU did, the check is
    skipped.
    """

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CRASHED = "crashed"
    EXPECTED_FAILURE = "expected failure"
    UNEXPECTED_PASS = "unexpected pass"
    SKIPPED = "skipped"

    @property
    def is_bad(self) -> bool:
        """Whether a run with such a verdict fails."""
        return self in {Status.FAILED, Status.TIMED_OUT, Status.CRASHED, Status.UNEXPECTED_PASS}


@dataclass(frozen=True)
class Verdict:
    """How one check of one OpInfo entry ended in one dtype.

    ``entry`` is OpInfo's name with its variant (``linalg.norm``, ``div.floor_rounding``); ``dtype`` as
    torch names it, ``float32``.  ``samples`` is how many inputs were run.  ``message`` says what
    differed, or why it was skipped; empty where it passed.  ``reason`` is the declared one of an
    expected failure, with which its ``message`` begins, or of a test that was left out.
    """

    entry: str
    check: Check
    dtype: str
    status: Status
    samples: int = 0
    seconds: float = 0.0
    message: str = ""
    reason: str = ""

    @property
    def key(self) -> tuple[str, str, Check]:
        """The subject of the verdict: entry, dtype, check."""
        return self.entry, self.dtype, self.check


@dataclass(frozen=True)
class Results:
    """The verdicts of a run on one backend.

    ``description`` is the path of the ``backend.yaml``; ``complete`` is False while the run goes on, or
    where it was interrupted.  ``operators`` maps an entry to the ATen operators that it called on the
    device.  ``build`` is the digest of what gave all of the verdicts, libraries and Python kernels
    (:mod:`build_digest`); with ``samples``, the most that were run of each entry (0: all), and ``seed``, it
    says whether another run can continue this one.  ``loaded`` says how the workers came by the device.
    Times are ISO 8601, in UTC.
    """

    backend: str
    torch: str
    description: str
    started: str
    updated: str
    complete: bool
    verdicts: tuple[Verdict, ...] = ()
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    build: str = ""
    samples: int = 0
    seed: int = 0
    loaded: str = ""
    format: int = FORMAT

    @property
    def is_bad(self) -> bool:
        """Whether a verdict fails the run."""
        return any(verdict.status.is_bad for verdict in self.verdicts)

    def of_operator(self, name: str) -> tuple[Verdict, ...]:
        """The verdicts of all entries that called the ATen operator ``name``: ``add.Tensor``."""
        entries = {entry for entry, called in self.operators.items() if name in called}
        return tuple(verdict for verdict in self.verdicts if verdict.entry in entries)


def latest_path(description: Path) -> Path:
    """Where the latest results of the backend that ``description`` describes are kept."""
    digest = hashlib.sha256(str(description.resolve()).encode()).hexdigest()
    return cache_root() / "conformance" / digest[:16] / "results.json"


def read_results(path: Path) -> Results:
    """The results in the file ``path``.

    Raises :class:`~opsmith.errors.FileMissing`, or :class:`~opsmith.errors.ResultsInvalid` for a file
    that is none, or of a newer version.
    """
    remedy = "write them with `opsmith conform --output FILE`"
    return JsonFile(Results, FORMAT, "conformance results", remedy, _RENAMED).read(path)


def write_results(results: Results, path: Path) -> None:
    """Writes the file ``path`` so that a reader finds it as before or whole.

    Raises :class:`~opsmith.errors.OutputRejected`.
    """
    write_output(path, msgspec.json.encode(results))


def scores(verdicts: Iterable[Verdict]) -> dict[tuple[Check, str], tuple[int, int]]:
    """For each check and dtype, how many verdicts passed, and how many there are but skipped ones."""
    counted: dict[tuple[Check, str], tuple[int, int]] = {}
    for verdict in verdicts:
        if verdict.status is Status.SKIPPED:
            continue
        passed, total = counted.get((verdict.check, verdict.dtype), (0, 0))
        passes = verdict.status in {Status.PASSED, Status.UNEXPECTED_PASS}
        counted[verdict.check, verdict.dtype] = (passed + passes, total + 1)
    return counted
