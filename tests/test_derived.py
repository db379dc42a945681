"""The derived variants, on a backend of their own: see ``derived_backend/check_variants.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_derived_variants_agree_with_the_cpu() -> None:
    checks = Path(__file__).parent / "derived_backend" / "check_variants.py"
    # -p no:cacheprovider: this run must not disturb the outer one's --last-failed.
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", checks],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
