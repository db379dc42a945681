"""Workers, and what becomes of them: one that crashes or hangs is named, killed and replaced.

Nothing here knows what a check is, or writes a file: :mod:`running` gives units and takes verdicts.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from opsmith.conformance import protocol
from opsmith.conformance.results import Check, Status, Verdict
from opsmith.conformance.selection import WorkUnit
from opsmith.errors import ConformanceError

# How long a worker may take to load torch, the backend and the database: far above what is measured.
_START_SECONDS = 600.0
_TAIL = 300


@dataclass
class Listener:
    """Told of each verdict, of the operators that a unit called, and regularly of the time passing.

    Before the verdict of a worker that has crashed or hung, it is told what that had noted; of each worker
    that begins, how it has loaded the backend.
    """

    verdict: Callable[[Verdict], object]
    operators: Callable[[str, Iterable[str]], None]
    tick: Callable[[], None]
    note: Callable[[bytes], None] = lambda note: None
    loaded: Callable[[str], None] = lambda how: None


@dataclass
class _Worker:
    """One process and the unit that it is at; ``ended`` of the unit's checks have ended."""

    process: subprocess.Popen[bytes]
    board: protocol.Board
    errors: IO[bytes]
    deadline: float
    unit: WorkUnit | None = None
    ended: int = 0
    ready: bool = False
    started: float = 0.0
    buffer: bytes = b""

    def give(self, unit: WorkUnit, timeout: float) -> None:
        self.unit, self.ended = unit, 0
        self._restart_clock(timeout)
        task = protocol.Task(unit.entry, unit.dtype, [check.value for check in unit.checks])
        assert self.process.stdin is not None
        # One that has just died is noticed when its standard output ends.
        with suppress(BrokenPipeError):
            self.process.stdin.write(protocol.encode(task))

    def heard(self, timeout: float) -> None:
        """One more check has ended."""
        self.ended += 1
        self._restart_clock(timeout)

    def _restart_clock(self, timeout: float) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + timeout

    def messages(self) -> list[protocol.Message] | None:
        """The messages of the worker; None when it has ended."""
        assert self.process.stdout is not None
        read = os.read(self.process.stdout.fileno(), 1 << 16)
        if not read:
            return None
        *lines, self.buffer = (self.buffer + read).split(b"\n")
        return [protocol.decode(line) for line in lines]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:_TAIL] if lines else ""


@dataclass
class Pool:
    """``size`` workers for one backend.  A check may take ``timeout`` seconds."""

    setting: protocol.Setting
    size: int
    timeout: float
    _folder: Path
    _queue: deque[WorkUnit] = field(default_factory=deque)
    _workers: list[_Worker] = field(default_factory=list)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _boards: int = 0

    def run(self, units: Iterable[WorkUnit], listener: Listener) -> None:
        """Makes all checks of all units.

        Raises :class:`~opsmith.errors.ConformanceError` where a worker cannot begin.
        """
        self._queue.extend(units)
        try:
            for _ in range(min(self.size, len(self._queue))):
                self._start()
            while self._workers:
                self._listen(listener)
                self._end_the_late(listener)
                listener.tick()
        finally:
            for worker in self._workers:
                worker.close()
            self._selector.close()

    def _start(self) -> None:
        path = self._folder / f"board-{self._boards}"
        self._boards += 1
        board = protocol.Board(path)
        errors = path.with_suffix(".errors").open("w+b")
        process = subprocess.Popen(
            # -X faulthandler: a crash leaves its kind as last words.
            [sys.executable, "-X", "faulthandler", "-m", "opsmith.conformance.worker", str(path)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            # Ctrl-C is the run's to handle; and a worker's own children end with it.
            start_new_session=True,
        )
        worker = _Worker(process, board, errors, time.monotonic() + _START_SECONDS)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(protocol.encode(self.setting))
        self._workers.append(worker)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)

    def _listen(self, listener: Listener) -> None:
        for key, _ in self._selector.select(timeout=0.2):
            worker: _Worker = key.data
            messages = worker.messages()
            if messages is None:
                worker.process.wait()
                self._bury(worker, listener, Status.CRASHED, _how_it_ended(worker))
                continue
            for message in messages:
                self._take(worker, message, listener)

    def _take(self, worker: _Worker, message: protocol.Message, listener: Listener) -> None:
        match message:
            case protocol.Refusal():
                raise ConformanceError(message.message, remedy=message.remedy)
            case protocol.Ready():
                worker.ready = True
                listener.loaded(message.loaded)
                self._next(worker)
            case protocol.Ended():
                assert worker.unit is not None
                listener.verdict(
                    Verdict(
                        worker.unit.entry,
                        Check(message.check),
                        worker.unit.dtype,
                        message.status,
                        message.samples,
                        message.seconds,
                        message.message,
                    )
                )
                worker.heard(self.timeout)
            case protocol.Done():
                assert worker.unit is not None
                listener.operators(worker.unit.entry, message.operators)
                self._next(worker)

    def _next(self, worker: _Worker) -> None:
        if self._queue:
            worker.give(self._queue.popleft(), self.timeout)
        else:
            self._remove(worker)

    def _remove(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        self._selector.unregister(worker.process.stdout)
        self._workers.remove(worker)
        worker.close()

    def _end_the_late(self, listener: Listener) -> None:
        now = time.monotonic()
        for worker in [worker for worker in self._workers if now > worker.deadline]:
            worker.kill()
            self._bury(worker, listener, Status.TIMED_OUT, f"no end after {self.timeout:g} s")

    def _bury(self, worker: _Worker, listener: Listener, status: Status, how: str) -> None:
        """Says what ``worker`` was at, and has another go on behind it."""
        if not worker.ready:
            raise ConformanceError(
                f"a worker could not begin: {how}",
                remedy=f"see whether the backend loads: opsmith doctor --backend {self.setting.description}",
            )
        unit = worker.unit
        assert unit is not None
        sample, on_device, note = worker.board.read()
        # One that dies after its last check died of something that this left behind.
        check = unit.checks[min(worker.ended, len(unit.checks) - 1)]
        seconds = round(time.monotonic() - worker.started, 3)
        where = f"in sample {sample}"
        if not on_device:
            status, where = Status.SKIPPED, f"on PyTorch's CPU, {where}"
        listener.note(note)
        listener.verdict(
            Verdict(unit.entry, check, unit.dtype, status, sample, seconds, f"{how}, {where}")
        )
        if rest := unit.checks[worker.ended + 1 :]:
            self._queue.appendleft(replace(unit, checks=rest))
        self._remove(worker)
        if len(self._workers) < min(self.size, len(self._queue) + len(self._workers)):
            self._start()


def workers(jobs: int | None) -> int:
    """How many workers there are to be: ``jobs``, or as many as there are cores."""
    return jobs or len(os.sched_getaffinity(0))


def _how_it_ended(worker: _Worker) -> str:
    status = worker.process.returncode
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    words = worker.last_words()
    return f"the process ended itself with status {status}" + (f" ({words})" if words else "")
