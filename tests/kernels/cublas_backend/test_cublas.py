"""The library ``cublas`` on the stand-in of NVIDIA's driver, its compiler and its cuBLAS."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("products.py")

pytestmark = (
    pytest.mark.nightly
)  # compiles a backend of its own, of which by day nothing else has need


def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=900,
        env=environment,
    )


def test_products_are_those_of_the_cpu_and_a_missing_library_is_said() -> None:
    environment = runpy.run_path(str(ROOT / "tools" / "gpu" / "check" / "__main__.py"))[
        "environment"
    ]
    env = environment(dry_run=True)
    done = run(env)
    assert done.stdout.splitlines()[-1:] == ["0 of 1728 differ; on the CPU: []"], done.stderr
    done = run({**env, "OPSMITH_CUBLAS_LIBRARY": "/nowhere/libcublas.so"})
    assert (
        "cuBLAS, which multiplies matrices, is missing; pip install nvidia-cublas, which a CUDA build of "
        "torch brings, name its libcublas.so in OPSMITH_CUBLAS_LIBRARY, or leave the library `cublas` out "
        "of the description" in done.stderr
    )
