"""The installed ExecuTorch: where its headers and its runtime lie, in all that differs between its versions.

Nothing else asks for the version, or knows a name of the wheel's files.

=====================  =====================================  =============================================
                       1.4                                    1.5
=====================  =====================================  =============================================
the registry           in the extension module                in ``lib/libexecutorch.so``
the extension module   ``pybindings/_portable_lib``           ``pybindings/_C``
``parallel_for``       in the extension module                in ``lib/libexecutorch_threadpool.so``
logging, x86-64 Linux  in a delegate's library                in ``lib/libexecutorch.so``
kernels of its own     in the extension module                in ``lib/libexecutorch_kernels_optimized.so``
=====================  =====================================  =============================================

The format of programs is the same (``schema/program.fbs``), and so are the headers that kernels include.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from opsmith.build.etensor_headers import ETensorHeaders
from opsmith.errors import ExecutorchMissing

INSTALL = 'pip install "opsmith[executorch]"'

KNOWN_RELEASES = ((1, 4), (1, 6))
"""From the first, up to the second; pyproject.toml says the same to pip."""

FOREIGN = "OPSMITH_EXECUTORCH"
"""The variable that names the folder of an ExecuTorch for another processor."""

_HEADER = "executorch/runtime/kernel/kernel_includes.h"
_VERSION = re.compile(r'^__version__ = "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class ExecutorchInstallation:
    """The installed ExecuTorch: its version, and where its headers and its runtime lie.

    ``is_foreign``: it is not installed, but that of another processor, which nothing here loads.
    """

    version: str
    root: Path
    is_foreign: bool = False

    @property
    def include_dir(self) -> Path:
        """The directory of its C++ headers."""
        return self.root / "include"

    @property
    def headers(self) -> ETensorHeaders:
        """Its headers for kernels, with the part of c10 that it brings."""
        c10 = self.include_dir / "executorch/runtime/core/portable_type/c10"
        return ETensorHeaders((self.include_dir, c10), self.root, "executorch", self.version)

    @property
    def is_split(self) -> bool:
        """Whether the runtime is a library of its own, which needs no Python: from 1.5 on."""
        return self._core.is_file()

    @property
    def runtime(self) -> Path:
        """The file that has the registry of kernels."""
        return self._core if self.is_split else self._extension("_portable_lib")

    @property
    def extension_module(self) -> str:
        """The name of the Python module that is the runtime, or has it loaded with it."""
        name = "_C" if self._extension("_C").is_file() else "_portable_lib"
        return f"executorch.extension.pybindings.{name}"

    @property
    def libraries(self) -> tuple[Path, ...]:
        """The libraries that a kernel library links: the runtime, and what has its threads and its logging.

        Of 1.4, logging and ``runtime_abort`` are a delegate's symbols in the wheel for x86-64 Linux, and the
        runtime's own in others.
        """
        if self.is_split:
            return self.runtime, self.root / "lib" / "libexecutorch_threadpool.so"
        delegate = self.root / "backends" / "qualcomm" / "libqnn_executorch_backend.so"
        return (self.runtime, *([delegate] if delegate.is_file() else []))

    def runner_libraries(self, torch_libraries: Path) -> tuple[Path, ...]:
        """The libraries that a program in C++ links to run programs of ExecuTorch; kernels come on top.

        Of 1.4 that is the extension module, and what Python and torch, in ``torch_libraries``, have for it:
        no interpreter runs.  Raises :class:`ExecutorchMissing` where this Python is no shared library.
        """
        if self.is_split:
            return self.libraries
        place, name = map(sysconfig.get_config_var, ("LIBDIR", "LDLIBRARY"))
        if not sysconfig.get_config_var("Py_ENABLE_SHARED") or not place or not name:
            raise ExecutorchMissing(
                f"ExecuTorch {self.version} has its runtime in an extension module of Python, and a program "
                "can link that with a Python that is a shared library only",
                remedy="install executorch 1.5, whose runtime is a library of its own, or build a Python "
                "with --enable-shared",
            )
        names = ("libtorch_python.so", "libtorch.so", "libtorch_cpu.so", "libc10.so")
        return (*self.libraries, *(torch_libraries / each for each in names), Path(place) / name)

    def kernel_link_flags(self, name: str) -> tuple[str, ...]:
        """How a kernel library called ``name`` is linked, so that a program in C++ can link it in turn.

        It finds the runtime beside itself, or else where that is installed.
        """
        places = dict.fromkeys(() if self.is_foreign else (each.parent for each in self.libraries))
        soname = f"-Wl,-soname,lib{name}.so"
        return soname, "-Wl,-rpath,$ORIGIN", *(f"-Wl,-rpath,{place}" for place in places)

    @property
    def python(self) -> str:
        """The tag of the Python that a library for it needs, ``cpython-311``; empty where it needs none."""
        return "" if self.is_split else sys.implementation.cache_tag or ""

    @property
    def _core(self) -> Path:
        return self.root / "lib" / "libexecutorch.so"

    def _extension(self, name: str) -> Path:
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        return self.root / "extension" / "pybindings" / f"{name}{suffix}"


def find_target_executorch() -> ExecutorchInstallation:
    """The ExecuTorch that libraries are built for: the installed one, or what :data:`FOREIGN` names.

    That has to be of the installed version, which exports programs and plans their kernels.  Raises
    :class:`ExecutorchMissing`.
    """
    installed, named = find_executorch(), os.environ.get(FOREIGN, "")
    if not named:
        return installed
    root = Path(named).absolute()
    try:
        found = _VERSION.search((root / "version.py").read_text(encoding="utf-8"))
    except OSError:
        found = None
    foreign = ExecutorchInstallation(found[1] if found else "", root, is_foreign=True)
    if not found or not (foreign.include_dir / _HEADER).is_file():
        raise ExecutorchMissing(
            f"{FOREIGN} is `{named}`, which is no folder `executorch` of its wheel",
            remedy=_foreign_remedy(installed.version),
        )
    if foreign.version.partition("+")[0] != installed.version.partition("+")[0]:
        raise ExecutorchMissing(
            f"{FOREIGN} names ExecuTorch {foreign.version}, and {installed.version} is installed here, "
            "which exports the programs",
            remedy=f"pip install executorch=={foreign.version}, or unpack the wheel of {installed.version}",
        )
    if not foreign.is_split:
        raise ExecutorchMissing(
            f"ExecuTorch {foreign.version} has its runtime in an extension module of Python, which libraries "
            "for another processor cannot be linked to",
            remedy="take 1.5 or later, here and there, whose runtime is a library of its own",
        )
    return foreign


def check_machine(
    executorch: ExecutorchInstallation, machine: str, is_for: str, compiler: str
) -> None:
    """Raises :class:`ExecutorchMissing` where the runtime ``is_for`` another machine than ``compiler``."""
    if is_for == machine:
        return
    raise ExecutorchMissing(
        f"{compiler} compiles for {machine}, and `{executorch.runtime}`, which libraries are linked to, is "
        f"for {is_for}",
        remedy=f"{_foreign_remedy(executorch.version, machine)}; or name another compiler with CXX",
    )


def _foreign_remedy(version: str, machine: str = "MACHINE") -> str:
    return (
        f"pip download executorch=={version} --no-deps --platform manylinux_2_28_{machine}, unzip it, and "
        f"set {FOREIGN} to its folder `executorch`"
    )


def find_executorch() -> ExecutorchInstallation:
    """The installed ExecuTorch.

    Raises :class:`ExecutorchMissing` where there is none, none with headers, or one of another release.
    """
    spec = importlib.util.find_spec("executorch")
    places = list(spec.submodule_search_locations or ()) if spec else []
    installation = ExecutorchInstallation(executorch_version(), Path(places[0] if places else ""))
    header = installation.include_dir / _HEADER
    if not places or not header.is_file():
        what = f"lacks {header}" if places else "is not installed"
        raise ExecutorchMissing(
            f"libraries and programs for ExecuTorch's runtime need ExecuTorch, which {what}",
            remedy=INSTALL,
        )
    numbers = tuple(int(part) for part in re.findall(r"\d+", installation.version)[:2])
    oldest, too_new = KNOWN_RELEASES
    if not oldest <= numbers < too_new:
        known = ",".join(
            f"{sign}{a}.{b}" for sign, (a, b) in zip((">=", "<"), KNOWN_RELEASES, strict=True)
        )
        raise ExecutorchMissing(
            f"ExecuTorch {installation.version} is installed, and opsmith knows the releases {known}",
            remedy=INSTALL,
        )
    return installation


def executorch_version() -> str:
    """The version of the installed ExecuTorch; empty where there is none."""
    try:
        return importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        return ""
