"""Times that one waits: the first start, the second, and the next call after an edit of a kernel.

``opsmith demo`` and a first backend with ten kernels of its own (``startup_backends/first``) begin with an
empty cache: nothing of opsmith was ever built.  The peer is ``torch.utils.cpp_extension.load`` of one file
with one kernel (``startup_backends/extension.cpp``), built, edited and started again in the same way; that of
the demo's second start is the same training on the CPU, in a process that loads and plans nothing.  Each
start is a process of its own, and compilers run two at a time.  Processors' seconds are those of the process
and of all that it started: they say more than the clock where other programs run.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.observe.benchmarks.measurements import Measurement, measured, report

SOURCES = Path(__file__).parent / "startup_backends"
CORES = 2
EDITS = 3
ROUNDS = 5

# The line that both sides' sources begin with, and that an edit changes.
_ADDED = "constexpr int kAdded = 0;"
_OURS = """
import sys
import opsmith, torch
opsmith.load(sys.argv[1])
x = torch.ones(3, device="first")
print((x + x)[0].item())
"""
# Or else `import torch` asks opsmith whether there is a device to load.
_WITHOUT_OPSMITH = """
import os
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
"""
_PEER = f"""{_WITHOUT_OPSMITH}
import sys
import torch
from torch.utils.cpp_extension import load
load("startup", [sys.argv[1]], is_python_module=False)
x = torch.ones(3)
print(torch.ops.startup.add(x, x)[0].item())
"""
# The demo's own training without opsmith: stand-ins take the place of the two modules that it imports for its
# table of routes.
_TRAINING_ON_CPU = f"""{_WITHOUT_OPSMITH}
import sys
from types import SimpleNamespace
sys.modules["opsmith.plan"] = SimpleNamespace(Plan=None, Route=None)
sys.modules["opsmith.runtime.records.calls"] = SimpleNamespace(record_calls=None)
from opsmith.cli.demonstration.process_age import process_age
from opsmith.cli.demonstration.training import _Trainer, digits
trainer = _Trainer("cpu", *digits())
trainer._step(trainer.images[:64], trainer.labels[:64])
print(process_age())
"""


@dataclass(frozen=True)
class Start:
    """A process from its start to its end: what it compiled, its seconds, and the last line that it printed.

    ``processors`` are the processors' seconds, those of compilers included.
    """

    compilations: int
    processors: float
    seconds: float
    printed: str


def started(command: Sequence[str], cache: Path) -> Start:
    """``command`` run to its end, with ``cache`` for what opsmith and PyTorch build."""
    before, used, begin = _objects(cache), _processors(), time.perf_counter()
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cache,
        env={
            **os.environ,
            "OPSMITH_CACHE_DIR": str(cache),
            "TORCH_EXTENSIONS_DIR": str(cache),
            "MAX_JOBS": str(CORES),
            # PyTorch asks for ninja by its name.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )
    seconds = time.perf_counter() - begin
    lines = done.stdout.splitlines()
    return Start(
        len(_objects(cache) - before), _processors() - used, seconds, lines[-1] if lines else ""
    )


def _objects(cache: Path) -> set[tuple[Path, int]]:
    """Each object file in ``cache``; one that was compiled anew is another."""
    return {(path, path.stat().st_mtime_ns) for path in cache.rglob("*.o")}


def _processors() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Side:
    """One side's source in a folder of its own, with an empty cache, for a ``script`` that adds two ones."""

    def __init__(self, folder: Path, script: str, source: Path, argument: Path) -> None:
        self._source, self._cache = source, folder / "cache"
        self._cache.mkdir(parents=True)
        self._command = [sys.executable, "-c", script, str(argument)]
        self._text = source.read_text()
        if self._text.count(_ADDED) != 1:
            raise ValueError(f"{source} does not say `{_ADDED}` once")
        self._added = 0

    @classmethod
    def ours(cls, folder: Path) -> Side:
        """The first backend."""
        backend = folder / "first"
        shutil.copytree(SOURCES / "first", backend)
        return cls(folder, _OURS, backend / "kernels.cpp", backend / "backend.yaml")

    @classmethod
    def peer(cls, folder: Path) -> Side:
        """PyTorch's extension."""
        folder.mkdir(parents=True)
        source = folder / "extension.cpp"
        shutil.copy(SOURCES / "extension.cpp", source)
        return cls(folder, _PEER, source, source)

    def edit(self) -> None:
        """Gives the sum another constant: the next start has to say it."""
        self._added += 1
        self._source.write_text(self._text.replace(_ADDED, _ADDED.replace("0", str(self._added))))

    def start(self) -> Start:
        """A process from its start to the result of its first call."""
        start = started(self._command, self._cache)
        if float(start.printed) != 2 + self._added:
            raise ValueError(f"the sum is {start.printed}: the edit was not built")
        return start


def in_turns(
    rounds: int, ours: Callable[[], Start], peer: Callable[[], Start]
) -> tuple[list[Start], list[Start]]:
    """``rounds`` of both."""
    pairs = [(ours(), peer()) for _ in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def rows(
    name: str, goal: float | None, ours: Sequence[Start], peer: Sequence[Start]
) -> list[Measurement]:
    """Counts of compiled files, where any were, and both kinds of seconds; ``goal`` is for the clock's."""
    compiled = [start.compilations for start in ours]
    counts = (
        [measured(f"{name}: files compiled", "files", compiled, [s.compilations for s in peer])]
        if any(compiled)
        else []
    )
    return [
        *counts,
        measured(
            f"{name}: of the processors",
            "s",
            [start.processors for start in ours],
            [start.processors for start in peer],
        ),
        measured(
            name,
            "s",
            [start.seconds for start in ours],
            [start.seconds for start in peer],
            goal,
            is_absolute=True,
        ),
    ]


def edited(side: Side) -> Callable[[], Start]:
    """Starts of ``side``, each after an edit."""

    def start() -> Start:
        side.edit()
        return side.start()

    return start


def own_backend(folder: Path) -> list[Measurement]:
    """Ten kernels of one's own beside PyTorch's extension: the first start, after an edit, and again."""
    ours, peer = Side.ours(folder / "ours"), Side.peer(folder / "peer")
    return [
        *rows("own backend, nothing built", 60, [ours.start()], [peer.start()]),
        *rows(
            "own kernel edited, to the next call", 6, *in_turns(EDITS, edited(ours), edited(peer))
        ),
        *rows(
            "own backend, second start to a call", None, *in_turns(ROUNDS, ours.start, peer.start)
        ),
    ]


def demo(folder: Path) -> list[Measurement]:
    """The demo with nothing built, and how soon it trains when it is started again."""
    cache = folder / "cache"
    cache.mkdir(parents=True)
    command = [str(Path(sys.executable).with_name("opsmith")), "demo", "--json"]
    cold = rows(
        "demo, nothing built", 180, [started(command, cache)], [Side.peer(folder / "peer").start()]
    )

    def on_device() -> Start:
        return started([*command, "--epochs", "1"], cache)

    def on_cpu() -> Start:
        return started([sys.executable, "-c", _TRAINING_ON_CPU], cache)

    device, cpu = in_turns(ROUNDS, on_device, on_cpu)
    if any(start.compilations for start in device):
        raise ValueError("the demo's second start compiled something")
    ours = [json.loads(start.printed)["first_step_s"] for start in device]
    theirs = [float(start.printed) for start in cpu]
    first_step = "demo, second start to the first step"
    # On busy cores the CPU's may take longer: that says that ours is nothing one can measure there.
    more = [max(0.0, mine - other) for mine, other in zip(ours, theirs, strict=True)]
    return [
        *cold,
        measured(first_step, "s", ours, theirs, 4, is_absolute=True),
        measured(f"{first_step}: what is opsmith's", "s", more, goal=0.5),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # First what takes less: an own backend that does not build should not be noticed after minutes.
        measurements = [*own_backend(folder / "own"), *demo(folder / "demo")]
    report(
        "starts, from nothing and again; peer: torch.utils.cpp_extension.load of one file, or the CPU",
        measurements,
    )


if __name__ == "__main__":
    main()
