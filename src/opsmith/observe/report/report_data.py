"""The report's data as it lies in the page and in the file of ``--data``: columns, and tables of strings.

Owns the format and its version, and reading it back from either file; refuses those of a newer opsmith.
``gathering`` makes a document, ``page`` embeds it, ``trend`` compares two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opsmith.base.json_files import JsonFile
from opsmith.conformance.results import Status
from opsmith.observe.benchmarks.runs import BenchRun, Change
from opsmith.observe.programs.coverage import Coverage, ProgramCoverage

FORMAT = 2
"""The version of the format; a report of a newer one is refused."""

_RENAMED = {
    '"roads":': '"dispatch_paths":',
    '"road":': '"dispatch_path":',
    '"places":': '"locations":',
}

OPENING = '<script type="application/json" id="report">'
"""The text before the document in a page."""

_EMBEDDED = re.compile(re.escape(OPENING).encode() + rb"\s*(?P<data>\{.*?)</script>", re.DOTALL)

MARKS: Mapping[Status, str] = {
    Status.PASSED: "p",
    Status.FAILED: "f",
    Status.TIMED_OUT: "t",
    Status.CRASHED: "c",
    Status.EXPECTED_FAILURE: "g",
    Status.UNEXPECTED_PASS: "x",
    Status.SKIPPED: "s",
}
"""The letter of each status in :attr:`Conformance.marks`; ``.`` where nothing was checked."""


@dataclass(frozen=True)
class OperatorColumns:
    """All operators of the plan, a column for each fact; each row of a column is one operator.

    Numbers stand for strings of ``strings``.  In ``tags``, ``dtypes``, ``stubs``, ``variants``,
    ``kernels`` and ``reached`` they stand for lists of strings, of ``lists``.  ``dispatch_path`` is an
    index of ``dispatch_paths``: the dispatch keys that a call meets, each with what happens there;
    ``locations`` says, in the same order, which kernel is registered there.  ``reached`` are the
    routes of the operator and of what it is decomposed into.  ``source`` is an index of ``sources``, -1
    where there is none.
    """

    strings: tuple[str, ...]
    lists: tuple[tuple[int, ...], ...]
    dispatch_paths: tuple[tuple[tuple[int, int], ...], ...]
    sources: tuple[tuple[str, str, int], ...]
    """Symbol, shown place and link of the kernel that runs; the link indexes ``strings``."""
    name: tuple[str, ...]
    schema: tuple[str, ...]
    route: tuple[int, ...]
    why: tuple[int, ...]
    library: tuple[int, ...]
    variant: tuple[int, ...]
    composite: tuple[int, ...]
    differentiable: tuple[int, ...]
    structured: tuple[bool, ...]
    tags: tuple[int, ...]
    dtypes: tuple[int, ...]
    stubs: tuple[int, ...]
    variants: tuple[int, ...]
    kernels: tuple[int, ...]
    reached: tuple[int, ...]
    dispatch_path: tuple[int, ...]
    locations: tuple[tuple[int, ...], ...]
    source: tuple[int, ...]
    place: tuple[int, ...] = ()

    def routes(self) -> dict[str, str]:
        """The route of each operator."""
        return {
            name: self.strings[route] for name, route in zip(self.name, self.route, strict=True)
        }


@dataclass(frozen=True)
class Conformance:
    """The verdicts of a conformance run.

    ``marks`` holds a text for each entry, with one letter of :data:`MARKS` for each check and dtype:
    ``marks[entry][check * len(dtypes) + dtype]``.  ``notes`` maps an entry's index to its cells with a
    message, which index ``messages``.  ``calls`` are the indices of the operators that an entry called
    on the device; ``named`` those that it is named for, with the variants of their groups.  ``scores``
    are check, dtype, how many passed and how many there are.
    """

    backend: str
    torch: str
    source: str
    started: str
    updated: str
    complete: bool
    checks: tuple[str, ...]
    dtypes: tuple[str, ...]
    entries: tuple[str, ...]
    marks: tuple[str, ...]
    seconds: tuple[float, ...]
    samples: tuple[int, ...]
    messages: tuple[str, ...]
    notes: Mapping[int, Mapping[int, int]]
    calls: tuple[tuple[int, ...], ...]
    named: tuple[tuple[int, ...], ...]
    routes: tuple[str, ...]
    """For each entry, the last route in order of preference that an operator of it takes; or empty."""
    scores: tuple[tuple[str, str, int, int], ...]
    most_samples: int = 0
    """The most samples that were run of each entry; 0: all."""

    def verdicts(self) -> Iterator[tuple[tuple[str, str, str], str]]:
        """Entry, check and dtype of each verdict, with its letter."""
        cells = [(check, dtype) for check in self.checks for dtype in self.dtypes]
        for entry, marks in zip(self.entries, self.marks, strict=True):
            for (check, dtype), mark in zip(cells, marks, strict=True):
                if mark != ".":
                    yield (entry, check, dtype), mark


@dataclass(frozen=True)
class RouteChange:
    """An operator that is served in another way than before; an empty route: it was not there."""

    operator: str
    before: str
    after: str
    gained: bool


@dataclass(frozen=True)
class VerdictChange:
    """A check that ended in another way than before, by the words of :class:`Status`."""

    entry: str
    check: str
    dtype: str
    before: str
    after: str


@dataclass(frozen=True)
class Trend:
    """The changes since an earlier report.

    ``routes`` are name, count before and now.  ``scores`` are check, dtype, passed and total before,
    and now.  ``sizes`` are name, bytes before and now.
    """

    source: str
    written: str
    torch: str
    routes: tuple[tuple[str, int, int], ...] = ()
    route_changes: tuple[RouteChange, ...] = ()
    verdict_changes: tuple[VerdictChange, ...] = ()
    scores: tuple[tuple[str, str, int, int, int, int], ...] = ()
    sizes: tuple[tuple[str, int, int], ...] = ()
    host_seconds: tuple[float, float] | None = None
    benchmarks: tuple[Change, ...] = ()


@dataclass(frozen=True)
class ReportData:
    """A whole report.

    ``description`` is the backend as the command named it: ``sim``, or the path of a ``backend.yaml``.
    ``coverage`` is how the backend serves ATen, core ATen and OpInfo's entries, where these were run.
    ``sizes`` are bytes by name; ``warnings`` what of the inputs does not fit.  ``build`` is the digest of
    what the backend loads, empty where it is not built, and ``loaded`` how it came where its package
    registers kernels in Python.  ``source_link`` is the
    address of a kernel's source, with ``{path}``, ``{relative}`` (to ``source_root``) and ``{line}`` in
    it; empty: places are no links.
    """

    opsmith: str
    written: str
    backend: str
    torch: str
    description: str
    operators: OperatorColumns
    coverage: tuple[Coverage, ...] = ()
    source_link: str = ""
    source_root: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    conformance: Conformance | None = None
    program: ProgramCoverage | None = None
    benchmarks: BenchRun | None = None
    trend: Trend | None = None
    build: str = ""
    loaded: str = ""
    format: int = FORMAT


def read_document(path: Path) -> ReportData:
    """The document in ``path``: a report, or what its ``--data`` wrote.

    Raises :class:`~opsmith.errors.FileMissing`, or :class:`~opsmith.errors.ResultsInvalid` for a file
    that is neither, or of a newer opsmith.
    """
    remedy = "name a page that `opsmith report -o` wrote, or the JSON of its --data"
    file = JsonFile(ReportData, FORMAT, "a report", remedy, _RENAMED)
    content = file.read_bytes(path)
    embedded = _EMBEDDED.search(content)
    return file.decode(embedded["data"] if embedded else content, path)
