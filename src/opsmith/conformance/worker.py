"""A worker: a process that loads the backend and PyTorch's database, and makes the checks that it is sent.

``python -m opsmith.conformance.worker BOARD`` reads the setting and then tasks from its standard input
and answers on its standard output (:mod:`protocol`).  It may crash or hang at any time, because the
device may: :mod:`pool` watches it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opsmith.conformance.protocol import (
    Board,
    Done,
    Ended,
    Message,
    Ready,
    Refusal,
    Setting,
    Task,
    encode,
)
from opsmith.conformance.results import Check
from opsmith.errors import OpsmithError

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serves until the standard input ends."""
    # A worker that hangs would outlive a run that is killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Text that operators print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    board = Board(Path(sys.argv[1]))
    setting = msgspec.json.decode(sys.stdin.buffer.readline(), type=Setting)
    try:
        for message in _served(setting, board):
            answers.write(encode(message))
    except OpsmithError as error:
        answers.write(encode(Refusal(error.message, error.remedy)))


def _served(setting: Setting, board: Board) -> Iterator[Message]:
    import torch

    from opsmith.runtime.as_package import load_as_package

    torch.set_num_threads(1)  # there are as many workers as cores
    warnings.simplefilter("ignore")
    loaded = load_as_package(setting.description)
    if setting.kernels is not None and not _is_imported(Path(setting.kernels)):
        try:
            runpy.run_path(setting.kernels, run_name=Path(setting.kernels).stem)
        except OpsmithError:
            raise
        except Exception:
            trace = traceback.format_exc(limit=-1).strip()
            yield Refusal(f"`{setting.kernels}` raises\n{trace}", "run it with python to see where")
            return
    yield from (_fuzzed if setting.fuzz else _checked)(setting, board, loaded)


def _is_imported(file: Path) -> bool:
    """Whether the device's package has imported the module ``file`` already."""
    origins = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    return str(file.resolve()) in origins


def _checked(setting: Setting, board: Board, loaded: LoadedBackend) -> Iterator[Message]:
    import torch

    from opsmith.conformance.checks import examine
    from opsmith.conformance.database import entries
    from opsmith.conformance.subject import Subject
    from opsmith.runtime.as_package import how_loaded

    infos = entries()
    plan = loaded.plan
    yield Ready(how_loaded(loaded))
    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=Task)
        dtype = getattr(torch, task.dtype)
        subject = Subject(
            task.entry, infos[task.entry], dtype, loaded.name, plan, setting.samples, setting.seed, board
        )  # fmt: skip
        for name in task.checks:
            start = time.perf_counter()
            finding = examine(subject, Check(name))
            seconds = round(time.perf_counter() - start, 4)
            yield Ended(name, finding.status, finding.samples, seconds, finding.message)
        yield Done(sorted(subject.operators))


def _fuzzed(setting: Setting, board: Board, loaded: LoadedBackend) -> Iterator[Message]:
    from opsmith.conformance.fuzzing.examination import Examination
    from opsmith.runtime.as_package import how_loaded

    examination = Examination(setting.seed, loaded.name, loaded.plan, setting.fuzz, board)
    yield Ready(how_loaded(loaded))
    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=Task)
        start = time.perf_counter()
        examined = examination.of(int(task.entry))
        seconds = round(time.perf_counter() - start, 4)
        yield Ended(Check.FUZZ.value, examined.status, examined.steps, seconds, examined.message)
        yield Done(examined.operators)


if __name__ == "__main__":
    main()
