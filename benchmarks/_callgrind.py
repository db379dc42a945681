"""Instructions of Python statements, counted by callgrind; what the benchmarks of small things share.

One valgrind process counts any number of statements, since starting torch under valgrind takes a minute.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

from opsmith.build.backend import build_backend

_TOTALS = re.compile(r"^(?:totals|summary): (?P<instructions>\d+)", re.MULTILINE)
_LOOP = """
def counted():
    for _ in range({calls}):
        {statement}
for _ in range(10):
    {statement}
torch._C._valgrind_toggle()
counted()
torch._C._valgrind_toggle_and_dump_stats()
"""


def instructions(setup: str, statements: Iterable[str], calls: int = 2000) -> dict[str, float]:
    """The instructions of one execution of each statement, on average over ``calls`` of them.

    ``setup`` runs first, with ``torch`` imported.  The loop's own few instructions are included.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        sys.exit("counting instructions needs valgrind: apt-get install valgrind")
    statements = list(statements)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "counted.py"
        loops = [_LOOP.format(calls=calls, statement=statement) for statement in statements]
        script.write_text("\n".join(["import torch", dedent(setup), *loops]))
        done = subprocess.run(
            [valgrind, "--tool=callgrind", f"--callgrind-out-file={folder}/count",
             "--collect-atstart=no", sys.executable, script],
            capture_output=True,
            text=True,
            # Valgrind has little address space to give.
            env={**os.environ, "OPSMITH_SIM_MEMORY": "256MiB"},
        )  # fmt: skip
        if done.returncode != 0:
            sys.exit(f"counting failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        # Dumps are numbered from 1.
        return {
            statement: _total(Path(folder) / f"count.{number}") / calls
            for number, statement in enumerate(statements, start=1)
        }


def counted_on(
    folder: Path, backends: Sequence[str], counts: Callable[[str], dict[str, float]]
) -> list[dict[str, float]]:
    """The ``counts`` of each of the ``backends`` of ``folder``, two at a time, once all are built."""
    for backend in backends:
        build_backend(folder / backend / "backend.yaml", progress=print)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(counts, backends))


def _total(dump: Path) -> int:
    found = _TOTALS.search(dump.read_text())
    assert found is not None, f"{dump} has no total"
    return int(found["instructions"])
