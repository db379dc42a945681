"""A stand-in for libcuda, NVRTC, cuBLAS, cuDNN, NCCL and NVTX on the host, for machines without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
_LIBRARIES = {
    "libcuda.cpp": "libcuda.so.1",
    "libnvrtc.cpp": "libnvrtc.so",
    "libcublas.cpp": "libcublas.so",
    "libnccl.cpp": "libnccl.so.2",
    "libcudnn.cpp": "libcudnn.so.9",
    "nvtx_tool.cpp": "libnvtx3interop.so.1",
}


def compiled(source: str, folder: Path) -> Path:
    """The library of one of its sources, in ``folder``."""
    library = folder / _LIBRARIES[source]
    command = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared"]
    subprocess.run([*command, "-o", str(library), str(HERE / source)], check=True)
    return library


def built(folder: Path) -> dict[str, str]:
    """Compiles it to ``folder``; the environment in which cuda_driver finds it there."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in _LIBRARIES:
        compiled(source, folder)
    header = shutil.copy(HERE / "kernel.h", folder)
    # Compiled ahead, with the options of libnvrtc.cpp: each kernel includes it.
    options = ["-std=c++20", "-O1", "-w", "-fPIC", "-fvisibility=default"]
    subprocess.run(["g++", *options, "-x", "c++-header", "-o", f"{header}.gch", header], check=True)
    return {
        "LD_LIBRARY_PATH": str(folder),
        "OPSMITH_NVRTC_LIBRARY": str(folder / "libnvrtc.so"),
        "OPSMITH_CUBLAS_LIBRARY": str(folder / "libcublas.so"),
        "OPSMITH_NCCL_LIBRARY": str(folder / "libnccl.so.2"),
        "OPSMITH_CUDNN_LIBRARY": str(folder / "libcudnn.so.9"),
        "OPSMITH_STAND_IN": str(folder),
    }
