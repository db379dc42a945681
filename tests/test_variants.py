"""All variants of many groups against PyTorch's: see ``variants_backend/check_groups.py``.

``OPSMITH_VARIANTS_EVERY=1`` checks every group that PyTorch's OpInfo reaches, which takes a long build.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "variants_backend"


def test_every_variant_agrees_with_pytorch(tmp_path: Path) -> None:
    # The checks import their neighbours. -p no:cacheprovider: the outer run's --last-failed is not theirs.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest"]
    run = subprocess.run(
        [*command, "-s", FOLDER / "check_groups.py"],
        env={**os.environ, "OPSMITH_VARIANTS_FOLDER": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
