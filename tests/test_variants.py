"""All variants of many groups against PyTorch's: see ``variants_backend/check_groups.py``.

``OPSMITH_VARIANTS_EVERY=1`` checks every group that PyTorch's OpInfo reaches, which takes a long build.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from apart import PYTEST

FOLDER = Path(__file__).parent / "variants_backend"


def test_every_variant_agrees_with_pytorch(tmp_path: Path) -> None:
    run = subprocess.run(
        [*PYTEST, "-s", FOLDER / "check_groups.py"],
        env={**os.environ, "OPSMITH_VARIANTS_FOLDER": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
