"""Ninja: the script that it is given, and its run.

It starts each compiler through :mod:`opsmith.build.stored`.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opsmith.build.progress import OnProgress, Progress
from opsmith.build.stored import write_step
from opsmith.build.toolchain import ninja_binary, python_command

_STATUS = re.compile(r"^\[(?P<done>\d+)/(?P<total>\d+)\] (?P<action>.*)$")
# The most memory that one g++ takes for a file with PyTorch's headers.
_BYTES_PER_JOB = 3 << 29
_SECONDS_TO_STOP = 5
_STORED = str(Path(__file__).with_name("stored.py"))


@dataclass(frozen=True)
class Step:
    """A file of the store that has to be made: by ``command``, which writes ``partial``, ``after`` others."""

    rule: str
    shown: str
    path: Path
    partial: Path
    command: list[str]
    after: tuple[Path, ...] = ()


def write_script(steps: Sequence[Step], work: Path, cache: Path) -> None:
    """Writes the build script, and beside it each step.

    Its outputs are the steps' numbers, no files: ninja then goes neither by their times nor removes
    them when it is interrupted, and no name on the way is in its syntax or in a shell's.
    """
    from ninja import ninja_syntax

    text = io.StringIO()
    writer = ninja_syntax.Writer(text)  # type: ignore[arg-type]  # its stub says str, wrongly
    program = " ".join(map(shlex.quote, _stored())).replace("$", "$$")
    for name, mode, verb in (
        ("compile", "make", "compiling"),
        ("prelude", "try", "compiling"),
        ("link", "make", "linking"),
    ):
        command = f"{program} {mode} ${{out}}.step"
        writer.rule(name, command=command, description=f"{verb} $shown")
    names = {step.path: str(number) for number, step in enumerate(steps)}
    for step in steps:
        name = names[step.path]
        write_step(work / f"{name}.step", step.path, cache, step.partial, step.command)
        inputs = [names[path] for path in step.after]
        writer.build([name], step.rule, inputs, variables={"shown": _shown(step.shown)})
    (work / "build.ninja").write_bytes(os.fsencode(text.getvalue()))


def run_script(work: Path, report: OnProgress) -> str | None:
    """Runs the script in ``work``; returns what its commands said where one of them failed."""
    ninja = [str(ninja_binary()), "-C", str(work), "-j", str(_jobs())]
    # The compilers' own temporary files go with the directory, however they end.
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C", "TMPDIR": str(work)}
    output: list[str] = []
    process = subprocess.Popen(
        attached(ninja),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            output.append(line)
            if step := _STATUS.match(line.rstrip()):
                report(Progress(step["action"], int(step["done"]), int(step["total"])))
        failed = process.wait() != 0
    except BaseException:
        # Ctrl-C reaches only us: ninja is in a session of its own, and each compiler in a process
        # group of its own. So ninja is asked, and ends its compilers before itself.
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    finally:
        process.stdout.close()
    return "".join(output) if failed else None


def attached(command: list[str]) -> list[str]:
    """Wraps ``command``, whose program is a path: it ends with this process, however that ends."""
    return [*_stored(), "attached", str(os.getpid()), *command]


def _stored() -> list[str]:
    return [*python_command(), _STORED]


def _jobs() -> int:
    """How many compilers run at once: ``MAX_JOBS``, or as many as there are cores and memory for."""
    if (chosen := os.environ.get("MAX_JOBS", "")).isdigit():
        return max(1, int(chosen))
    cores = len(os.sched_getaffinity(0))
    available = re.search(r"^MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    return max(1, min(cores, int(available[1]) * 1024 // _BYTES_PER_JOB)) if available else cores


def _shown(name: str) -> str:
    """``name`` as a line of ninja's syntax can say it."""
    return "".join(each if each.isprintable() else "?" for each in name).replace("$", "$$")
