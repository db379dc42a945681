"""`torch.compile` on a device: decided in the plan, from the driver and the libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from host_window import HAS_HOST_WINDOW
from opsmith.description import Inductor, Triton, find_backend, read_backend
from opsmith.plan import resolve
from opsmith.plan.model import Compiling
from opsmith.schema import Catalogue

Describe = Callable[..., Path]
KERNELS = """
- {op: add.out, kernel_name: chip::add, structured: true}
- {op: mm.out, kernel_name: chip::mm, structured: true}
"""


def compiling(path: Path, catalogue: Catalogue) -> Compiling:
    return resolve(read_backend(path, catalogue), catalogue).compiling


@pytest.mark.skipif(
    not HAS_HOST_WINDOW, reason="needs a host window, which OPSMITH_HOST_WINDOW hides"
)
def test_cpp_runs_on_a_host_window(describe: Describe, catalogue: Catalogue) -> None:
    found = compiling(describe(KERNELS), catalogue)
    assert found.inductor is Inductor.CPP
    assert found.reason == "the driver has a host window, on which Inductor's C++ runs"
    # Loops over elements are fused; an operator with a kernel of its own is not decomposed otherwise.
    assert "mm" in found.kept and "add.Tensor" not in found.kept
    assert found.fused_kernel is None and not found.fused


def test_kernels_are_called_without_a_host_window(describe: Describe, catalogue: Catalogue) -> None:
    found = compiling(
        describe(KERNELS, driver="{sources: [driver.c], host_window: off}"), catalogue
    )
    assert found.inductor is Inductor.EAGER_KERNELS
    assert found.reason == "the driver has no host window"
    assert {"mm", "add.Tensor"} <= {*found.kept} and not found.fused


def test_the_description_chooses(describe: Describe, catalogue: Catalogue, tmp_path: Path) -> None:
    path = describe(KERNELS)
    path.write_text(f"{path.read_text()}\ninductor: eager-kernels\n")
    found = compiling(path, catalogue)
    assert found.inductor is Inductor.EAGER_KERNELS
    assert found.reason == "the description says `inductor: eager-kernels`"


def test_triton_serves_by_the_classes_that_the_description_names(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(KERNELS, driver="{sources: [driver.c], host_window: off}")
    triton = "{backend: chipc, scheduling: chip.inductor:Scheduling}"
    path.write_text(f"{path.read_text()}\ninductor: triton\ntriton: {triton}\n")
    found = compiling(path, catalogue)
    assert found.inductor is Inductor.TRITON
    assert found.reason == "the description says `inductor: triton`"
    assert found.triton == Triton("chipc", scheduling="chip.inductor:Scheduling")
    assert found.triton.wrapper == "torch._inductor.codegen.wrapper:PythonWrapperCodegen"
    assert "mm" in found.kept and "add.Tensor" not in found.kept


def test_a_library_with_a_fused_kernel_has_loops_made(catalogue: Catalogue) -> None:
    found = compiling(find_backend("opencl"), catalogue)
    assert found.inductor is Inductor.EAGER_KERNELS
    assert found.fused_kernel is not None
    assert found.fused_kernel.run == "opsmith_compute::run_fused"
    assert {"add.Tensor", "native_layer_norm", "_softmax"} <= {*found.fused} - {*found.kept}
    assert "mm" in found.kept and "mm" not in found.fused
    assert "digamma" not in found.fused  # C has no such function
