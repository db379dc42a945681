"""``compute`` on the stand-in of NVIDIA's driver, as on a GPU; OpenCL's tests run it on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "gpu"))
import stand_in

# Compiles cuda_driver, which no test of the default run needs.
pytestmark = pytest.mark.nightly


def test_kernels_that_move_several_elements_at_once_give_what_the_cpu_gives(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("wide_loads.py"))],
        capture_output=True,
        text=True,
        timeout=1800,
        env=os.environ | stand_in.built(tmp_path / "stand_in"),
    )
    assert done.stdout.splitlines()[-1:] == ["0 of 1080 differ"], done.stdout + done.stderr
