"""Tools that tests need beside Python, its packages and a C++ compiler: a table, and the marker ``needs``.

``@pytest.mark.needs("cmake")`` skips a test where cmake is missing, with the reason and the command that
installs it; with ``OPSMITH_TESTS_REQUIRE_ALL=1``, as in continuous integration, such a test fails instead.
``python tests/needs.py`` prints the packages of Debian that are missing here.  ``conftest.py`` obeys the
marker and names what is missing before the first test.

``@needs.feature("GRAPHS")`` skips a test on a torch that takes this feature of
``opsmith.schema.torch_names`` away.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

VARIABLE = "OPSMITH_TESTS_REQUIRE_ALL"

AARCH64_COMPILER, AARCH64_EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass(frozen=True)
class Need:
    """Something of the system: how to see that it is there, Debian's package of it, what tests it serves.

    ``from_pypi``: the package is PyPI's, and ``requirements-dev.txt`` has it.
    """

    is_there: Callable[[], bool]
    package: str
    tested: str
    from_pypi: bool = False

    @property
    def remedy(self) -> str:
        return f"{'pip' if self.from_pypi else 'apt-get'} install {self.package}"


def _on_path(*programs: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(program) for program in programs)


def _has_opencl() -> bool:
    """Whether OpenCL has a platform."""
    try:
        count = ctypes.c_uint()
        error = ctypes.CDLL("libOpenCL.so.1").clGetPlatformIDs(0, None, ctypes.byref(count))
    except OSError:
        return False
    return bool(error == 0 and count.value > 0)


def _has_onednn() -> bool:
    """Whether the library ``onednn`` finds the one of the wheel, or of the variable that names it."""
    named = os.environ.get("OPSMITH_ONEDNN_LIBRARY")
    return Path(named or f"{sys.prefix}/lib/libdnnl.so.3").is_file()


NEEDS = {
    "AArch64": Need(
        _on_path(AARCH64_COMPILER, AARCH64_EMULATOR),
        "g++-aarch64-linux-gnu qemu-user",
        "kernels on another processor",
    ),
    "apt": Need(
        _on_path("apt-get", "dpkg-deb"),
        "apt dpkg",
        "a host with another processor, of Debian's packages for it",
    ),
    "binutils": Need(
        _on_path("nm", "size"),
        "binutils",
        "libraries' symbols, and operators in the CPU's registry",
    ),
    "chromium": Need(lambda: CHROMIUM is not None, "chromium", "the report's page, in a browser"),
    "cmake": Need(_on_path("cmake"), "cmake", "opsmith in a CMake project"),
    "oneDNN": Need(_has_onednn, "onednn-cpu-gomp", "the library `onednn`", from_pypi=True),
    "OpenCL": Need(
        _has_opencl,
        "pocl-opencl-icd ocl-icd-libopencl1",
        "the OpenCL device, and the kernels of the library `compute`",
    ),
    "Python.h": Need(
        lambda: Path(sysconfig.get_path("include"), "Python.h").is_file(),
        "python{}.{}-dev".format(*sys.version_info[:2]),
        "kernels written in Python",
    ),
    "Triton": Need(
        lambda: importlib.util.find_spec("triton") is not None,
        "triton",
        "kernels of Triton's, in its interpreter",
        from_pypi=True,
    ),
    "tvm-ffi": Need(
        lambda: importlib.util.find_spec("tvm_ffi") is not None,
        "apache-tvm-ffi",
        "kernels by tvm-ffi's C ABI",
        from_pypi=True,
    ),
}


def missing() -> dict[str, Need]:
    """The entries of ``NEEDS`` that are missing here."""
    return {name: need for name, need in NEEDS.items() if not need.is_there()}


def require(name: str) -> None:
    """Skips the whole file where what it needs is missing; for isolated files, which marks do not reach."""
    import pytest

    need = NEEDS[name]
    if not need.is_there():
        reason = f"{name} is missing: {need.remedy}"
        if all_required():
            raise RuntimeError(reason)
        pytest.skip(reason, allow_module_level=True)


def feature(name: str) -> pytest.MarkDecorator:
    """Skips a test where the installed torch has no such feature, with the name that it lacks."""
    import pytest

    reason = taken_away(name)
    return pytest.mark.skipif(bool(reason), reason=reason)


def tracing_of_writers() -> pytest.MarkDecorator:
    """Skips a test on a torch that traces no custom operator which returns what it writes to: up to 2.12."""
    import pytest

    from opsmith.schema import torch_release, torch_version

    reason = f"torch {torch_version()} traces no custom operator that returns what it writes to"
    return pytest.mark.skipif(torch_release() < (2, 13), reason=reason)


def all_to_all_of_lists() -> pytest.MarkDecorator:
    """Skips a test on a torch whose gloo has no ``all_to_all`` of lists of Tensors: up to 2.11."""
    import pytest

    from opsmith.schema import torch_release, torch_version

    reason = f"torch {torch_version()}: Backend gloo does not support alltoall"
    return pytest.mark.skipif(torch_release() < (2, 12), reason=reason)


def require_feature(name: str) -> None:
    """Skips the whole file where the installed torch has no such feature."""
    import pytest

    if reason := taken_away(name):
        pytest.skip(reason, allow_module_level=True)


def taken_away(name: str) -> str:
    """Why the installed torch has no such feature; empty where it has."""
    from opsmith.schema import torch_release, torch_version
    from opsmith.schema.torch_names import Feature, lost_in

    lost = lost_in(torch_release()).get(Feature[name])
    return f"torch {torch_version()} has no {lost.qualified}: {Feature[name].value}" if lost else ""


def all_required() -> bool:
    """Whether a test whose need is missing fails, rather than being skipped."""
    return os.environ.get(VARIABLE) == "1"


if __name__ == "__main__":
    print(" ".join(need.package for need in missing().values() if not need.from_pypi))
