"""`examples/opencl-kernels/`: kernels in OpenCL C before those of `compute`, on any OpenCL device."""

from __future__ import annotations

import pytest

from command import run_example


@pytest.mark.nightly
@pytest.mark.needs("OpenCL")
def test_its_kernels_compute_as_the_cpu_does() -> None:
    assert run_example("opencl-kernels", timeout=1800) == [
        "values: those of the CPU",
        "_softmax: clchip_kernels, on the device",
        "leaky_relu_: clchip_kernels, on the device",
        "tanh: compute, on the device",
        "gradients: those of the CPU",
    ]
