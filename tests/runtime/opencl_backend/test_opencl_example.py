"""`examples/opencl-kernels/`: kernels in OpenCL C before those of `compute`, on any OpenCL device."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fork_server

RUN = Path(__file__).parents[3] / "examples" / "opencl-kernels" / "run.py"


@pytest.mark.nightly
@pytest.mark.needs("OpenCL")
def test_its_kernels_compute_as_the_cpu_does() -> None:
    done = fork_server.run([sys.executable, RUN], timeout=1800)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "values: those of the CPU",
        "_softmax: clchip_kernels, on the device",
        "leaky_relu_: clchip_kernels, on the device",
        "tanh: compute, on the device",
        "gradients: those of the CPU",
    ]
