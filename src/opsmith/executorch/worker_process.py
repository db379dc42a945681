"""Asks ``runtime_worker`` something in a process of its own, which ExecuTorch's runtime may end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from opsmith.errors import ProgramFailed
from opsmith.executorch.tasks import Answer, Failed, Task

_SHOWN_LINES = 6


def ask(task: Task, doing: str) -> tuple[Answer, str]:
    """The answer to ``task``, and what the runtime logged meanwhile; ``doing`` says it in words.

    A process that ended while it loaded a library is an answer too.  Raises
    :class:`~opsmith.errors.ProgramFailed` where it ended otherwise.
    """
    with tempfile.TemporaryDirectory(prefix="opsmith-executorch-") as folder:
        asked, answered = Path(folder, "task.json"), Path(folder, "answer.json")
        asked.write_bytes(msgspec.json.encode(task))
        done = subprocess.run(
            [sys.executable, "-m", "opsmith.executorch.runtime_worker", str(asked), str(answered)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # A device that loads itself into every process has no business in this one.
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            check=False,
        )
        answer: Answer | None = None
        if answered.is_file():
            answer = msgspec.json.decode(answered.read_bytes(), type=Answer)
        if done.returncode == 0 and answer is not None:
            return answer, done.stderr
        if isinstance(answer, Failed) and answer.stage == "library":
            reason = f"{answer.reason} ended the process{_how(done.returncode)}"
            return msgspec.structs.replace(answer, reason=reason), done.stderr
    said = done.stderr.strip().splitlines()[-_SHOWN_LINES:]
    raise ProgramFailed(
        f"{doing} ended the process{_how(done.returncode)}"
        + "".join(f"\n  {line}" for line in said),
        remedy="the last lines are what ExecuTorch's runtime said; opsmith itself is unharmed",
    )


def _how(status: int) -> str:
    if status >= 0:
        return f" with status {status}"
    try:
        return f" with {signal.Signals(-status).name}"
    except ValueError:
        return f" with signal {-status}"
