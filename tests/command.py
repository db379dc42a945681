"""The ``opsmith`` command, as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fork_server


def run_opsmith(
    *arguments: object, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs ``opsmith`` on a terminal of 120 columns; ``env`` is added to this process's."""
    return fork_server.run(
        [Path(sys.executable).with_name("opsmith"), *arguments],
        env={**os.environ, "COLUMNS": "120", **(env or {})},
        **options,
    )


def run_example(name: str, timeout: float = 600) -> list[str]:
    """The lines that ``examples/NAME/run.py`` prints within ``timeout`` seconds; it builds its backend."""
    program = Path(__file__).parents[1] / "examples" / name / "run.py"
    done = fork_server.run([sys.executable, program], timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def imported_by(*arguments: object) -> set[str]:
    """The modules that a process of Python with these arguments imports, ``-m opsmith plan`` for instance."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}
