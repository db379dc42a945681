"""The library ``cublas`` on the stand-in of NVIDIA's driver, its compiler and its cuBLAS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "gpu"))
import stand_in

PROGRAM = Path(__file__).with_name("products.py")

# Compiles a backend that no test of the default run needs.
pytestmark = pytest.mark.nightly


def test_products_are_those_of_the_cpu_and_a_missing_library_is_said(tmp_path: Path) -> None:
    settings = os.environ | stand_in.built(tmp_path / "stand_in")

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(PROGRAM)],
            capture_output=True,
            text=True,
            timeout=900,
            env=settings | more,
        )

    done = run()
    assert done.stdout.splitlines()[-1:] == ["0 of 1728 differ; on the CPU: []"], done.stderr
    done = run(OPSMITH_CUBLAS_LIBRARY="/nowhere/libcublas.so")
    assert (
        "cuBLAS, which multiplies matrices, is missing; pip install nvidia-cublas, which a CUDA build of "
        "torch brings, name its libcublas.so in OPSMITH_CUBLAS_LIBRARY, or leave the library `cublas` out "
        "of the description" in done.stderr
    )
