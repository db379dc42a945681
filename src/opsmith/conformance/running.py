"""A conformance run from beginning to end: what is chosen, made, judged and kept.

``opsmith conform`` and programs call :func:`run`, and :func:`run_upstream` for test files of others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from opsmith.base.cache_folder import cache_root
from opsmith.build.backend import build_backend
from opsmith.build.progress import OnProgress
from opsmith.conformance.build_digest import build_digest
from opsmith.conformance.database import EntryFacts, known_entries
from opsmith.conformance.expected_failures import Key, everything, read_expected_failures
from opsmith.conformance.pool import Listener, Pool, workers
from opsmith.conformance.protocol import Setting
from opsmith.conformance.record import OnStanding, Record, Standing, latest_results, now
from opsmith.conformance.results import Check, Results, Status, Verdict
from opsmith.conformance.selection import WorkUnit, select
from opsmith.conformance.upstream import Suite, Upstream
from opsmith.description import find_backend
from opsmith.errors import FileMissing
from opsmith.plan import open_backend
from opsmith.schema import torch_version


def _nobody(standing: Standing) -> None:
    pass


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: the ``results`` of what was asked for; ``interrupted`` by Ctrl-C."""

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
    timeout: float = 300.0,
    resume: bool = False,
    kernels: Path | None = None,
    expected_failures: Path | None = None,
    report: OnStanding = _nobody,
    building: OnProgress | None = None,
) -> Outcome:
    """Checks the device of ``backend`` (shipped, or a ``backend.yaml``) against OpInfo.

    ``operators`` (OpInfo's names, patterns of such, ATen operators), ``dtypes`` (``float32``) and
    ``checks`` (``backward``) narrow what is run; empty: all.  ``samples`` is the most inputs of each
    entry, 0: all; ``seed`` draws them.  ``jobs`` workers run at a time, as many as there are cores if
    None.  A check that takes longer than ``timeout`` seconds fails.  ``resume`` goes on with what an
    interrupted run of the same build, torch, samples and seed has left.  ``kernels`` is a Python file that
    registers kernels, run in each worker; ``expected_failures`` declares known failures in the place of
    ``expected_failures.yaml`` beside the description.  ``report`` is told how far it is, ``building`` of
    each step of a build.

    Ctrl-C ends the run with what is done.  Raises :class:`~opsmith.errors.FilterInvalid` for what there
    is none of, and other :class:`~opsmith.errors.OpsmithError`: a description that is wrong, a file of
    expected failures that is, nothing to resume.
    """
    opened = open_backend(backend)
    known = known_entries(cache_root())
    earlier = latest_results(opened.path)
    selection = select(
        known,
        operators,
        dtypes,
        checks,
        called=earlier.operators if earlier else {},
        aten=opened.plan.by_name,
    )
    record = _record(
        opened.path, known, expected_failures, kernels, samples, seed, report, building
    )
    units = [*selection.units()]
    wanted = {(unit.entry, unit.dtype, check) for unit in units for check in unit.checks}
    record.begin(earlier, wanted.__contains__, resume=resume)
    done = record.done
    record.expect(len(wanted))
    left = [unit for unit in (_without(unit, done) for unit in units) if unit.checks]
    setting = Setting(str(opened.path), samples, seed, str(kernels) if kernels else None)
    with tempfile.TemporaryDirectory(prefix="opsmith-conform-") as folder:
        pool = Pool(setting, workers(jobs), timeout, Path(folder))
        listener = Listener(record.add, record.called, record.tick, loaded=record.loaded)
        return _outcome(record, partial(pool.run, left, listener), lambda: everything(known))


def run_upstream(
    suite: Suite,
    backend: str = "sim",
    *,
    files: Iterable[str] = (),
    jobs: int | None = None,
    timeout: float = 300.0,
    resume: bool = False,
    expected_failures: Path | None = None,
    ledger: Path | None = None,
    report: OnStanding = _nobody,
    building: OnProgress | None = None,
) -> Outcome:
    """Runs test files of ``suite``, PyTorch's own or TorchCTS, against the device of ``backend``.

    ``files`` names them; empty: the device-generic ones, or all.  A test that takes longer than ``timeout``
    seconds fails.  ``ledger`` is read in the place of the one beside the description.  Otherwise as
    :func:`run`.  Raises :class:`~opsmith.errors.ConformanceError` where
    there is no such file, or pytest cannot run it.
    """
    description = find_backend(backend)
    known = known_entries(cache_root())
    chosen = suite.chosen(files)
    prefixes = tuple(map(suite.prefix, chosen))
    known_tests = suite.ledger(description, ledger)
    record = _record(description, known, expected_failures, None, 0, 0, report, building)
    record = replace(record, expected_failures=(*record.expected_failures, *known_tests.failing))
    record.begin(
        latest_results(description),
        lambda key: key[2] is Check.UPSTREAM and f"{key[0]}::".startswith(prefixes),
        resume=resume,
    )
    left_out = {
        test: why for test, why in known_tests.left_out.items() if test.startswith(prefixes)
    }
    for test, why in left_out.items():
        record.add(Verdict(test, Check.UPSTREAM, "", Status.SKIPPED, message=why, reason=why))
    with tempfile.TemporaryDirectory(prefix="opsmith-conform-") as folder:
        upstream = Upstream(
            suite,
            description,
            record.header.backend,
            workers(jobs),
            timeout,
            {dtype for facts in known for dtype in facts.dtypes},
            Path(folder),
            record.add,
            record.expect,
            record.tick,
        )
        done = record.done
        record.expect(len(done))
        entries = {entry for entry, _, _ in done}
        return _outcome(record, partial(upstream.run, chosen, entries), lambda: record.done)


def _outcome(
    record: Record, run: Callable[[], object], could_run: Callable[[], Iterable[Key]]
) -> Outcome:
    """The outcome of ``run``; :meth:`Record.end` judges expected failures by the keys of ``could_run``."""
    try:
        run()
    except KeyboardInterrupt:
        return Outcome(record.end(None), interrupted=True)
    except BaseException:
        record.write()
        raise
    return Outcome(record.end(could_run()))


def _record(
    description: Path,
    known: Sequence[EntryFacts],
    named: Path | None,
    kernels: Path | None,
    samples: int,
    seed: int,
    report: OnStanding,
    building: OnProgress | None,
) -> Record:
    expected_failures = read_expected_failures(description, known, named)
    if kernels is not None and not kernels.is_file():
        raise FileMissing(
            f"there is no file `{kernels}`",
            remedy="--kernels names a Python file that registers kernels",
        )
    built = build_backend(description, progress=building)
    started = now()
    header = Results(
        built.name,
        torch_version(),
        str(description),
        started,
        started,
        complete=False,
        build=build_digest(description, built, kernels),
        samples=samples,
        seed=seed,
    )
    return Record(header, expected_failures, report)


def _without(unit: WorkUnit, done: frozenset[tuple[str, str, Check]]) -> WorkUnit:
    checks = (check for check in unit.checks if (unit.entry, unit.dtype, check) not in done)
    return replace(unit, checks=tuple(checks))
