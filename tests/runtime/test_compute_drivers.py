"""Drivers that compile kernels: what they say where nothing is to be driven, and one source for both."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import opsmith
from opsmith.build.driver_library import build_driver
from opsmith.description import find_backend, read_backend

KERNELS = Path(opsmith.__file__).parent / "kernels" / "compute"
COUNT = (
    "import sys; from opsmith.driver import OpenedDriver; OpenedDriver(sys.argv[1]).device_count()"
)


def driver(name: str) -> Path:
    """The driver's library of a shipped backend."""
    backend = read_backend(find_backend(name), None)
    return build_driver(backend.name, backend.driver)


def failure(name: str, **environment: str) -> str:
    """Standard error of a process that asks the driver for its devices."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(driver(name))],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    return done.stderr


@pytest.mark.needs("OpenCL")
def test_opencl_without_a_platform_says_how_to_get_one(tmp_path: Path) -> None:
    assert (
        "OpenCL has no platform here; install one, such as apt-get install "
        "pocl-opencl-icd (Debian, Ubuntu), or name the folder of its .icd file in OCL_ICD_VENDORS"
        in failure("opencl", OCL_ICD_VENDORS=str(tmp_path))
    )


@pytest.mark.needs("OpenCL")
def test_a_platform_that_is_not_there_is_named_with_those_that_are() -> None:
    said = failure("opencl", OPSMITH_OPENCL_PLATFORM="Acme")
    assert re.search(r"OPSMITH_OPENCL_PLATFORM is `Acme`, and OpenCL's platforms are `.+`", said)


def test_no_opencl_at_all() -> None:
    said = failure("opencl", OPSMITH_OPENCL_LIBRARY="libno-such-opencl.so")
    assert "there is no OpenCL here: libno-such-opencl.so: cannot open shared object file" in said
    assert "apt-get install pocl-opencl-icd" in said


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="an NVIDIA device is here")
def test_cuda_without_nvidias_driver() -> None:
    said = failure("cuda_driver")
    assert "install NVIDIA's driver, and see that `nvidia-smi` lists the device" in said


def source(name: str) -> str:
    """The text of a kernel's source, which is a C++ literal."""
    return (KERNELS / name).read_text(encoding="utf-8").removeprefix('R"(').removesuffix(')"\n')


GROUP = (
    "#define IN Half\n#define COMPUTE Float\n#define ITEMS_OF_GROUP 128\n"
    "#define WIDTH 4\n#define RUN_BYTES 8\n#define RUNS 2\n" + source("group.cl")
)
INDEX = "#define FAULT_INDEX 1\n#define INDEX_DTYPE Long\n" + source("checked_index.cl")
NORM = "#define IN Half\n#define PARAMETERS Float\n#define SAVED Float\n#define WEIGHTED\n#define TRAINING\n"
VARIANTS = {
    "matmul_tiled.cl": "#define DTYPE Half\n#define OUT Float\n#define ADDEND\n#define A_BY_ROWS\n",
    "softmax.cl": GROUP + "#define OUT Float\n#define OUT_BYTES 16\n#define LOG\n",
    "nll_loss.cl": "#define DTYPE BFloat16\n#define FAULT_TARGET 2\n#define WEIGHTED\n",
    "norm.cl": NORM + "#define BIASED\n#define RUNNING\n" + GROUP.replace("#define RUNS 2\n", ""),
    "reduction.cl": "#define IN Half\n#define COMPUTE Float\n#define OUT Half\n"
    "#define KEPT 1\n#define GONE 1\n"
    "#define GROUPED 128\n#define COLUMNS 1\n#define WIDTH 4\n#define VECTOR_BYTES 8\n"
    "#define STATE C v;\n#define START(s) (s).v = 0\n#define STEP(s, e, i_) (s).v += (e)\n"
    "#define MERGE(s, o) (s).v += (o).v\n#define RESULT(s) (s).v\n",
    "layer_norm_parameters.cl": NORM + "#define WANTS_WEIGHT\n#define WANTS_BIAS\n",
    "pool.cl": "#define DTYPE Float\n#define MAX_BACKWARD_APART\n",
    "convolution.cl": "#define DTYPE Half\n#define COLUMN Float\n#define BIASED\n#define RUN 1\n",
    "indexing.cl": "#define DTYPE Float\n#define SELECT\n" + INDEX,
    "scatter.cl": "#define DTYPE Float\n#define RANK 2\n#define ADDS\n" + INDEX,
    "advanced_index.cl": "#define DTYPE Float\n#define RANK 2\n#define INDICES 1\n"
    "#define INDEX_PARAMETERS , BUFFER(const long, index)\n#define LOOK_UPS LOOK_UP(index, 0)\n"
    + INDEX,
    "scan.cl": "#define IN Int\n#define OUT Long\n#define SUMMED Long\n",
    "triangle.cl": "#define DTYPE Bool\n#define LOWER\n",
    "random.cl": "#define DTYPE Half\n#define COMPUTE Float\n#define BITS 11\n"
    "#define EXPRESSION x + u * (y - x)\n" + source("philox.cl"),
    "dropout.cl": "#define DTYPE Float\n" + source("philox.cl"),
}


@pytest.mark.skipif(
    find_spec("nvidia") is None or find_spec("nvidia.cuda_nvrtc") is None,
    reason="NVRTC is missing: pip install nvidia-cuda-nvrtc-cu12",
)
def test_nvrtc_compiles_the_kernels_that_opencl_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = find_spec("nvidia.cuda_nvrtc")
    assert spec is not None and spec.submodule_search_locations
    (library,) = Path(next(iter(spec.submodule_search_locations))).glob("lib/libnvrtc.so.1?")
    monkeypatch.setenv("OPSMITH_NVRTC_LIBRARY", str(library))
    cuda = ctypes.CDLL(str(driver("cuda_driver")))
    cuda.opsmith_compute_dialect.restype = ctypes.c_char_p
    begin = cuda.opsmith_compute_dialect().decode() + source("types.cl")
    for name, definitions in VARIANTS.items():
        text = begin.encode() + definitions.encode() + source(name).encode()
        assert cuda.opsmith_cuda_compile(text, 9, 0) == 0, name
    assert cuda.opsmith_cuda_compile(b"not C", 9, 0) == 4  # OPSMITH_FAILED
