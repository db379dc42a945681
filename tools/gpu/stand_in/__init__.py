"""A stand-in for libcuda, NVRTC, cuBLAS, cuDNN, NCCL and NVTX on the host, for machines without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from opsmith.base.cache_folder import cache_root
from opsmith.build.compile import Compilation
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import find_compiler

HERE = Path(__file__).parent
_LIBRARIES = {
    "libcuda.cpp": "libcuda.so.1",
    "libnvrtc.cpp": "libnvrtc.so",
    "libcublas.cpp": "libcublas.so",
    "libnccl.cpp": "libnccl.so.2",
    "libcudnn.cpp": "libcudnn.so.9",
    "nvtx_tool.cpp": "libnvtx3interop.so.1",
}


def compiled(folder: Path, *sources: str) -> list[Path]:
    """The libraries of ``sources``, in ``folder``; those that were compiled before are in the cache."""
    cache = cache_root()
    libraries = [
        SharedLibrary(Path(source).stem, (HERE / source,), flags=("-fvisibility=default",))
        for source in sources
    ]
    compilation = Compilation(libraries, find_compiler(cache), cache)
    compilation.run(cache / "logs" / "stand_in.log", lambda step: None)
    return [
        Path(shutil.copy(library, folder / _LIBRARIES[source]))
        for source, library in zip(sources, compilation.outputs(), strict=True)
    ]


def built(folder: Path) -> dict[str, str]:
    """Compiles it to ``folder``; the environment in which cuda_driver finds it there."""
    folder.mkdir(parents=True, exist_ok=True)
    compiled(folder, *_LIBRARIES)
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
