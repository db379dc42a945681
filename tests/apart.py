"""Tests that need a backend of their own run apart: a process loads one backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# -p no:cacheprovider: such a run must not disturb the outer one's --last-failed.
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest"]


def run_apart(*checks: str, **environment: str) -> None:
    """Runs pytest on ``checks``, files below this folder, in a process of its own."""
    run = subprocess.run(
        [*PYTEST, *(Path(__file__).parent / check for check in checks)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
