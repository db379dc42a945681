"""Loading a built device beside ``import torch``, and a kept plan printed beside Python's own start.

Each is a process of its own, in turn with its peer, from a cache that an unmeasured first one has filled.
Seconds are the processors', of the process alone: they say more than the clock where other programs run.
Those of a load are counted within its process, from the import of torch on, which takes many times as many.
Memory is what the process has to itself, at its end, and all that it had at once, at the most.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.observe.benchmarks.measurements import Measurement, measured, report

ROUNDS = 15
_MB = 1e6
# Last of all: what a process counts of itself comes after what is counted.
_COUNTED = """
microseconds = int(1e6 * (time.process_time() - torch_imported))
import re, sys
modules, status = len(sys.modules), open("/proc/self/status").read()
memory = [int(re.search(rf"{name}:\\s+(\\d+) kB", status)[1]) << 10 for name in ("RssAnon", "VmHWM")]
print(microseconds, modules, *memory)
"""
_TORCH = "import time, torch; torch_imported = time.process_time()"
_LOAD = f'{_TORCH}; import opsmith; opsmith.load("sim")'
_PLAN = [sys.executable, "-m", "opsmith", "plan", "sim"]


@dataclass(frozen=True)
class Ended:
    """A process that has ended: the processors' seconds that it took, and the numbers that it printed."""

    seconds: float
    printed: tuple[int, ...] = ()


def ended(command: Sequence[str]) -> Ended:
    """``command``, run to its end.  An installed package's device is not loaded with torch."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    with process.stdout as stdout:
        lines = stdout.read().splitlines()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    words = lines[-1].split() if lines else []
    printed = tuple(map(int, words)) if all(map(str.isdigit, words)) else ()
    return Ended(used.ru_utime + used.ru_stime, printed)


def counted(script: str) -> Ended:
    """A Python that runs ``script``, and prints its microseconds since torch, its modules and its memory."""
    return ended([sys.executable, "-c", script + _COUNTED])


def loading() -> list[Measurement]:
    """What ``opsmith.load`` adds to ``import torch``."""
    counted(_LOAD)
    pairs = [(counted(_LOAD), counted(_TORCH)) for _ in range(ROUNDS)]
    microseconds, modules, private, peak = (
        [ours.printed[each] - peer.printed[each] for ours, peer in pairs] for each in range(4)
    )
    return [
        measured("load: of the processors", "s", [each / 1e6 for each in microseconds], goal=0.25),
        measured("load: memory of its own", "MB", [each / _MB for each in private], goal=10),
        measured("load: memory at the most", "MB", [each / _MB for each in peak]),
        measured("load: modules", "modules", modules),
    ]


def planning() -> list[Measurement]:
    """What ``opsmith plan`` adds to Python's start when the plan is in the cache."""
    ended(_PLAN)
    pairs = [(ended(_PLAN), ended([sys.executable, "-c", "pass"])) for _ in range(ROUNDS)]
    seconds = [ours.seconds - peer.seconds for ours, peer in pairs]
    return [measured("plan, from the cache: of the processors", "s", seconds, goal=0.1)]


def main() -> None:
    # Python's own caches are filled, too: as in an installed package.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.chdir(Path(__file__).parent)
    report(
        "sim loaded, above import torch, and planned, above Python's start",
        [*loading(), *planning()],
    )


if __name__ == "__main__":
    main()
