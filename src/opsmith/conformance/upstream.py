"""Test files that others write for any device, run against this one: PyTorch's own, from a source checkout.

Each file is run by pytest in processes of its own (:mod:`upstream_plugin` speaks for them), with a time
box for each test: one that crashes or hangs is named, and the run goes on behind it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from opsmith.build.ninja import attached
from opsmith.conformance.ledger import Ledger, ledger_beside
from opsmith.conformance.results import Check, Status, Verdict
from opsmith.conformance.upstream_lines import (
    DONE_VARIABLE,
    EXPECTED_TO_FAIL,
    GENERIC_VARIABLE,
    LINES_VARIABLE,
    ONLY_VARIABLE,
    SHARD_VARIABLE,
    Begun,
    Broken,
    Collected,
    Line,
    Over,
)
from opsmith.errors import ConformanceError, nearest
from opsmith.runtime.autoload import TORCH_VARIABLE
from opsmith.runtime.autoload import VARIABLE as AUTOLOAD_VARIABLE
from opsmith.schema import torch_version

FILES = (
    "test_ops.py", "test_torch.py", "test_view_ops.py", "test_indexing.py", "test_reductions.py",
    "test_unary_ufuncs.py", "test_binary_ufuncs.py", "test_tensor_creation_ops.py", "test_shape_ops.py",
    "test_sort_and_select.py", "test_type_promotion.py", "test_linalg.py", "test_scatter_gather_ops.py",
    "test_segment_reductions.py", "test_spectral_ops.py", "test_complex.py", "test_foreach.py",
    "test_masked.py", "test_maskedtensor.py", "test_nn.py", "nn/test_convolution.py",
    "nn/test_dropout.py", "nn/test_embedding.py", "nn/test_init.py", "nn/test_multihead_attention.py",
    "nn/test_pooling.py", "test_modules.py", "test_optim.py", "test_autograd.py",
    "test_dlpack.py", "test_numpy_interop.py", "test_serialization.py", "test_sparse.py",
    "test_sparse_csr.py", "test_nestedtensor.py",
)  # fmt: skip
"""The device-generic files that are run where none is named."""

# Importing and collecting test_ops.py takes minutes.
_COLLECT_SECONDS = 1800.0

_FAILS_ON_CPU = "the same test fails on the CPU"

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)

_STATUS = {"passed": Status.PASSED, "failed": Status.FAILED, "skipped": Status.SKIPPED}


@dataclass(frozen=True)
class PytestCall:
    """How pytest is called for one file: its ``arguments``, what the environment has besides, and where."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path


class Suite(Protocol):
    """Test files of one origin."""

    def chosen(self, files: Iterable[str]) -> tuple[Path, ...]:
        """The files by name, or those that are run where none is named."""

    def prefix(self, file: Path) -> str:
        """How the entries of a file's tests begin."""

    def call(self, file: Path, device: str, folder: Path) -> PytestCall:
        """How pytest runs ``file`` for ``device``; ``folder`` is for what that needs."""

    def filtered(self, file: Path, folder: Path) -> Mapping[str, str]:
        """Why the suite itself ran no such test of ``file``, by test, after a run in ``folder``."""

    def on_the_cpu(self, test: str, device: str) -> str:
        """The test on the CPU that ``test`` is on ``device``; empty where there is none."""

    def ledger(self, description: Path, named: Path | None) -> Ledger:
        """The ledger of its tests on the device of ``description``, or the one in the file ``named``."""


@dataclass(frozen=True)
class Checkout:
    """A source checkout of PyTorch: its folder of tests and its version, empty where it does not say."""

    tests: Path
    version: str

    @property
    def mismatch(self) -> str:
        """How its version differs from the installed torch's; empty where it fits."""
        installed = _release(torch_version())
        if self.version and _release(self.version) == installed:
            return ""
        of = f"of {self.version}" if self.version else "of an unknown version"
        return (
            f"{self.tests.parent} is a checkout {of}, and torch {torch_version()} is installed: its tests "
            f"may ask for what is not there (git checkout v{installed}.0 has those that fit)"
        )

    def chosen(self, files: Iterable[str]) -> tuple[Path, ...]:
        """The test files by name, or all of :data:`FILES` that there are.

        Raises :class:`~opsmith.errors.ConformanceError`.
        """
        known = sorted(str(path.relative_to(self.tests)) for path in self.tests.rglob("test_*.py"))
        wanted = [name.removesuffix(".py") + ".py" for name in files]
        for name in wanted:
            if name not in known:
                raise ConformanceError(
                    f"{self.tests} has no file `{name}`{nearest(name, known)}",
                    remedy="name one of its files: --file test_view_ops.py",
                )
        return tuple(self.tests / name for name in wanted or FILES if name in known)

    def prefix(self, file: Path) -> str:
        """How the entries of a file's tests begin: ``test_view_ops::``, ``nn/test_pooling::``."""
        return f"{file.relative_to(self.tests).with_suffix('')}::"

    def call(self, file: Path, device: str, folder: Path) -> PytestCall:
        """How pytest runs ``file``.  The checkout's conftest.py and settings are for PyTorch's own CI."""
        kind = "cpu" if device == "cpu" else "privateuse1"
        generic = {"PYTORCH_TESTING_DEVICE_ONLY_FOR": kind, GENERIC_VARIABLE: "1"}
        return PytestCall(["--noconftest"], generic, self.tests)

    def filtered(self, file: Path, folder: Path) -> Mapping[str, str]:
        """None: what is not made for the device does not exist."""
        return {}

    def on_the_cpu(self, test: str, device: str) -> str:
        """``TestSortCPU::test_topk_cpu_int8`` of ``TestSortPRIVATEUSE1::test_topk_sim_int8``."""
        of_class, _, name = test.partition("::")
        of_cpu = re.sub(rf"(PRIVATEUSE1|{re.escape(device.upper())})$", "CPU", of_class)
        before, _, after = name.rpartition(f"_{device}")
        return f"{of_cpu}::{before}_cpu{after}" if before else ""

    def ledger(self, description: Path, named: Path | None) -> Ledger:
        """That in the file ``named``, or in ``upstream_ledger.yaml`` beside ``description``, if any."""
        return ledger_beside(description, named, "upstream_ledger.yaml")


def read_checkout(path: Path) -> Checkout:
    """The checkout in the folder ``path``.  Raises :class:`~opsmith.errors.ConformanceError`."""
    tests = path / "test"
    if not any(tests.glob("test_*.py")):
        raise ConformanceError(
            f"`{path}` is no source checkout of PyTorch: it has no test/test_*.py",
            remedy=f"git clone --depth 1 --branch v{_release(torch_version())}.0 "
            "https://github.com/pytorch/pytorch, and name that folder",
        )
    if importlib.util.find_spec("pytest") is None:
        raise ConformanceError(
            "PyTorch's tests are run by pytest, which is not installed",
            remedy="pip install pytest expecttest hypothesis numpy",
        )
    version = path / "version.txt"
    return Checkout(
        tests.resolve(), version.read_text("utf-8").strip() if version.is_file() else ""
    )


def _release(version: str) -> str:
    """``2.13`` of ``2.13.0a0+git1234``."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version


@dataclass
class _Session:
    """pytest on one part of one file; ``done`` holds the tests that have ended.

    ``failed`` has, where it runs on the CPU what failed on the device, the verdict there by the test's
    name on the CPU: it runs nothing else.
    """

    suite: Suite
    device: str
    file: Path
    shard: str
    folder: Path
    done: set[str]
    failed: Mapping[str, Verdict] = field(default_factory=dict)
    running: str = ""
    began: float = 0.0
    deadline: float = 0.0
    collected: bool = False
    process: subprocess.Popen[bytes] | None = None
    _read: int = 0

    @property
    def is_on_cpu(self) -> bool:
        return bool(self.failed)

    def start(self, description: Path) -> None:
        self.folder.mkdir(exist_ok=True)
        self.lines = self.folder / "lines"
        self.lines.write_bytes(b"")
        self._read = 0
        self.running = ""
        self.deadline = time.monotonic() + _COLLECT_SECONDS
        done = self.folder / "done"
        done.write_text("\n".join(sorted(self.done)), "utf-8")
        only = self.folder / "only"
        only.write_text("\n".join(sorted(self.failed)), "utf-8")
        autoload = {AUTOLOAD_VARIABLE: str(description), TORCH_VARIABLE: "1"}
        nothing = self.folder / "pytest.ini"
        nothing.write_text("[pytest]\n")
        call = self.suite.call(self.file, self.device, self.folder)
        with (self.folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                attached(
                    [
                        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(nothing),
                        "-p", "opsmith.conformance.upstream_plugin", *call.arguments, str(self.file),
                    ]
                ),
                cwd=call.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    **({TORCH_VARIABLE: "0"} if self.is_on_cpu else autoload),
                    **call.environment,
                    "OMP_NUM_THREADS": "1",
                    LINES_VARIABLE: str(self.lines),
                    DONE_VARIABLE: str(done),
                    ONLY_VARIABLE: str(only),
                    SHARD_VARIABLE: self.shard,
                },
            )  # fmt: skip

    def new_lines(self) -> list[Line]:
        """The lines that it has written since it was asked last."""
        with self.lines.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        return [_decoder.decode(line) for line in whole.splitlines()]

    def last_words(self) -> str:
        lines = (self.folder / "output").read_text("utf-8", errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass
class Upstream:
    """A run of test files with ``jobs`` processes at a time and ``timeout`` seconds for a test.

    What fails in a file is run on the CPU afterwards: a test that fails there, too, is not the device's.
    ``verdict`` takes a verdict and gives it as it is counted.
    """

    suite: Suite
    description: Path
    device: str
    jobs: int
    timeout: float
    dtypes: Collection[str]
    folder: Path
    verdict: Callable[[Verdict], Verdict]
    expect: Callable[[int], None]
    tick: Callable[[], None]
    _waiting: deque[_Session] = field(default_factory=deque)
    _alive: list[_Session] = field(default_factory=list)
    _failed: dict[Path, dict[str, Verdict]] = field(default_factory=dict)

    def run(self, files: Sequence[Path], done: Collection[str]) -> None:
        """Runs the tests of ``files`` but those ``done``, by their entries."""
        self._waiting.extend(
            _Session(
                self.suite, self.device, file, f"{part}/{self.jobs}",
                self._folder(file, part),
                {name.partition("::")[2] for name in done if name.startswith(self.suite.prefix(file))},
            )
            for file in files
            for part in range(self.jobs)
        )  # fmt: skip
        try:
            while self._waiting or self._alive:
                while self._waiting and len(self._alive) < self.jobs:
                    session = self._waiting.popleft()
                    session.start(self.description)
                    self._alive.append(session)
                for session in [*self._alive]:
                    self._watch(session)
                self.tick()
                time.sleep(0.05)
        finally:
            for session in self._alive:
                session.kill()

    def _watch(self, session: _Session) -> None:
        assert session.process is not None
        status = session.process.poll()  # before what it said last is read
        for line in session.new_lines():
            self._take(session, line)
        if status is None and time.monotonic() < session.deadline:
            return
        if status is None:
            session.kill()
        self._alive.remove(session)
        if session.running:
            if status is None:
                how = Status.TIMED_OUT, f"no end after {self.timeout:g} s"
            else:
                how = Status.CRASHED, _ended(status)
            self._end(session, session.running, *how, time.monotonic() - session.began)
            session.start(self.description)
            self._alive.append(session)
        elif session.collected:
            if not session.is_on_cpu:
                for test, reason in self.suite.filtered(session.file, session.folder).items():
                    self._end(session, test, Status.SKIPPED, reason, 0.0)
            self._compare_with_the_cpu(session.file)
        else:
            said = session.last_words() if status is not None else "it takes too long"
            call = self.suite.call(session.file, session.device, session.folder)
            command = ["python", "-m", "pytest", *call.arguments, str(session.file)]
            raise ConformanceError(
                f"pytest could not run {session.file}: {said}",
                remedy="run it by hand to see why: OPSMITH_AUTOLOAD="
                f"{self.description} {shlex.join(command)}",
            )

    def _compare_with_the_cpu(self, file: Path) -> None:
        """Runs on the CPU what has failed in ``file``, once all of its parts are over."""
        failed = self._failed.get(file)
        if failed and not any(each.file == file for each in (*self._alive, *self._waiting)):
            del self._failed[file]
            folder = self._folder(file, "cpu")
            session = _Session(self.suite, "cpu", file, "0/1", folder, set(), failed)
            self._waiting.appendleft(session)

    def _folder(self, file: Path, part: int | str) -> Path:
        return self.folder / f"{self.suite.prefix(file).strip(':').replace('/', '-')}-{part}"

    def _take(self, session: _Session, line: Line) -> None:
        session.deadline = time.monotonic() + self.timeout
        match line:
            case Collected():
                if not session.collected and not session.is_on_cpu:
                    self.expect(line.count)
                session.collected = True
            case Broken():
                session.collected = True
                if not session.is_on_cpu:
                    file = self.suite.prefix(session.file).removesuffix("::")
                    said = line.message
                    self.verdict(Verdict(file, Check.UPSTREAM, "", Status.FAILED, message=said))
            case Begun():
                session.running, session.began = line.test, time.monotonic()
            case Over():
                status = _STATUS[line.outcome]
                self._end(session, line.test, status, line.message, line.seconds)
                session.running = ""

    def _end(
        self, session: _Session, test: str, status: Status, message: str, seconds: float
    ) -> None:
        session.done.add(test)
        if session.is_on_cpu:
            if status.is_bad or message.startswith(EXPECTED_TO_FAIL):
                said = f"{_FAILS_ON_CPU}: {session.failed[test].message}"
                skipped = replace(
                    session.failed[test], status=Status.SKIPPED, message=said, reason=_FAILS_ON_CPU
                )
                self.verdict(skipped)
            return
        verdict = self.verdict(
            Verdict(
                f"{self.suite.prefix(session.file)}{test}", Check.UPSTREAM, self._dtype(test), status, 1,
                round(seconds, 4), message,
            )
        )  # fmt: skip
        if verdict.status.is_bad and (twin := self.suite.on_the_cpu(test, self.device)):
            self._failed.setdefault(session.file, {})[twin] = verdict

    def _dtype(self, test: str) -> str:
        """The dtype at the end of a test's name, where it has one."""
        found = re.search(rf"_(?:privateuse1|{re.escape(self.device)})_(\w+)$", test)
        return found[1] if found and found[1] in self.dtypes else ""


def _ended(status: int) -> str:
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    return f"the process ended itself with status {status}"
