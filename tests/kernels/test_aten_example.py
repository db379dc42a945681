"""`examples/aten-kernels/`: a kernel of each form that one on `at::Tensor` can have."""

from __future__ import annotations

from command import run_example


def test_its_kernels_compute_as_the_cpu_does() -> None:
    assert run_example("aten-kernels") == [
        "values: those of the CPU",
        "relu: aten_kernels",
        "relu_: aten_kernels",
        "fill_.Scalar: aten_kernels",
        "lerp.Tensor: aten_kernels",
        "amax: aten_kernels",
        "tanh: fallback",
    ]
