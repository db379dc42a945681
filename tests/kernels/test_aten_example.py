"""`examples/aten-kernels/`: a kernel of each form that one on `at::Tensor` can have."""

from __future__ import annotations

import sys
from pathlib import Path

import fork_server

RUN = Path(__file__).parents[2] / "examples" / "aten-kernels" / "run.py"


def test_its_kernels_compute_as_the_cpu_does() -> None:
    done = fork_server.run([sys.executable, RUN], timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "values: those of the CPU",
        "relu: aten_kernels",
        "relu_: aten_kernels",
        "fill_.Scalar: aten_kernels",
        "lerp.Tensor: aten_kernels",
        "amax: aten_kernels",
        "tanh: fallback",
    ]
