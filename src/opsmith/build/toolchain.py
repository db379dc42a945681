"""The C++ compiler and the installed torch, found without importing torch.

The compiler's identity is part of every object's digest, so that another compiler never meets
another's objects.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from opsmith.base.trusted_files import read_trusted
from opsmith.build.cache import write_whole
from opsmith.errors import (
    BuildError,
    CacheUnusable,
    CompilerMissing,
    LoadError,
    PythonHeadersMissing,
)
from opsmith.schema import compiled_for, torch_version

_CANDIDATES = ("c++", "g++", "clang++")
_INSTALL = "apt-get install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora); or set CXX"
# The heap that a file with PyTorch's headers takes without looking for garbage.
_GCC_HEAP_KIB = 4 << 20
# By uname's name, those that triples have.
_ALSO_CALLED = {"AMD64": ("x86_64",), "arm64": ("aarch64",), "aarch64": ("arm64",)}
# Parts of C++20 that clang 14 and 15 lack.
_PROBE = """
#include <concepts>
#include <source_location>
static_assert(std::integral<int>);
int line(std::source_location place = std::source_location::current()) { return place.line(); }
int captured(const int (&pair)[2]) {
  const auto& [first, second] = pair;
  return [&] { return first + second; }();
}
"""


@dataclass(frozen=True)
class Compiler:
    """A compiler that takes C++20.

    ``command`` runs it: one word, or more, as in ``CXX="ccache g++"``.  ``path`` is the
    compiler's own file, links resolved; ``version`` the first line of what it says of itself;
    ``machine`` the processor that it compiles for, by ``uname``'s name.
    """

    command: tuple[str, ...]
    path: Path
    version: str
    machine: str = platform.machine()

    @property
    def identity(self) -> str:
        """The text that two compilers must share for their objects to be the same."""
        # gcc begins with the name that it was called by: c++ and g++ are one.
        said = re.sub(r"^\S+ (?=\()", "", self.version)
        return f"{self.machine} {self.path} {said} {self.options}"

    @property
    def options(self) -> str:
        """The options that are part of its command, as in ``CXX="g++ -g"``."""
        return shlex.join(word for word in self.command if word.startswith("-"))

    @property
    def is_clang(self) -> bool:
        """Whether it is clang; else it is gcc."""
        return "clang" in self.version

    @property
    def memory_flags(self) -> tuple[str, ...]:
        """The flags with which gcc looks for garbage less often: a fifth of its time, in large files."""
        return () if self.is_clang else ("--param", f"ggc-min-heapsize={_GCC_HEAP_KIB}")

    @property
    def precompiles(self) -> bool:
        """Whether it looks for a header's precompiled form beside it, as gcc does."""
        return not self.is_clang

    @property
    def sanitizer_flags(self) -> tuple[str, ...]:
        """The flags that link a sanitizer's runtime to a library as a shared one, as gcc does by itself."""
        return ("-shared-libsan",) if self.is_clang else ()

    @property
    def openmp_flags(self) -> tuple[str, ...]:
        """The flags that let ``at::parallel_for`` use the threads of torch's own libgomp.

        None for clang, which would bring a second OpenMP runtime into the process.
        """
        return () if self.is_clang else ("-fopenmp",)


@dataclass(frozen=True)
class TorchInstallation:
    """The installed torch: its version, and where its headers and libraries lie."""

    version: str
    root: Path

    @property
    def compiled_for(self) -> str:
        """The torch that code compiled against it fits: its minor release, where it is one."""
        return compiled_for(self.version)

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """The directories of its C++ headers."""
        include = self.root / "include"
        return include, include / "torch" / "csrc" / "api" / "include"

    @property
    def library_dir(self) -> Path:
        """The directory of ``libtorch_cpu.so``."""
        return self.root / "lib"


@dataclass(frozen=True)
class PythonInstallation:
    """The running Python: its version and where ``Python.h`` lies."""

    version: str
    include_dir: Path


def find_python() -> PythonInstallation:
    """The running Python; raises :class:`PythonHeadersMissing` when it has no headers."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise PythonHeadersMissing(
            f"Python kernels need Python's C headers, and {include / 'Python.h'} does not exist",
            remedy=f"apt-get install python{version}-dev (Debian, Ubuntu) or dnf install "
            f"python{version}-devel (Fedora)",
        )
    return PythonInstallation(sysconfig.get_config_var("EXT_SUFFIX") or version, include)


def find_torch() -> TorchInstallation:
    """The installed torch; raises :class:`LoadError` when there is none, or none with headers."""
    spec = importlib.util.find_spec("torch")
    version = torch_version()
    if spec is None or not spec.submodule_search_locations:
        raise LoadError("PyTorch cannot be imported", remedy="pip install torch==2.13.0")
    installation = TorchInstallation(version, Path(spec.submodule_search_locations[0]))
    header = installation.include_dirs[0] / "ATen" / "ATen.h"
    if not header.is_file():
        raise LoadError(
            f"torch {version} has no C++ headers: {header} is missing",
            remedy="install torch from its wheel: pip install --force-reinstall torch==2.13.0",
        )
    return installation


def find_compiler(cache: Path) -> Compiler:
    """The C++20 compiler to use for this machine: ``CXX`` where it is set, else the first that is found.

    What was learned of it is remembered in ``cache`` until its file changes.
    Raises :class:`CompilerMissing`.
    """
    found = find_any_compiler(cache)
    if found.machine != platform.machine():
        raise CompilerMissing(
            f"{shlex.join(found.command)} compiles for {found.machine}, and this is {platform.machine()}",
            remedy="unset CXX: only `opsmith executorch build` makes libraries for another processor",
        )
    return found


def find_any_compiler(cache: Path) -> Compiler:
    """The same, though it may compile for another machine."""
    chosen = os.environ.get("CXX", "").strip()
    commands = [shlex.split(chosen)] if chosen else [[name] for name in _CANDIDATES]
    found = [
        words for words in commands if shutil.which(words[0]) and shutil.which(_compiler(words))
    ]
    if not found:
        what = f"the compiler `{chosen}` that CXX names" if chosen else "a C++ compiler"
        raise CompilerMissing(f"{what} was not found on PATH", remedy=_INSTALL)
    refused: CompilerMissing | None = None
    for words in found:
        try:
            return _identified(words, cache)
        except CompilerMissing as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _compiler(words: list[str]) -> str:
    """The compiler's name in a command: its last word that is no option."""
    return [word for word in words if not word.startswith("-")][-1]


def _identified(words: list[str], cache: Path) -> Compiler:
    # The names are run as they were found: ccache's `g++` is a link to ccache, which asks its own name.
    command = (shutil.which(words[0]) or words[0], *words[1:])
    path = Path(shutil.which(_compiler(words)) or words[0]).resolve()
    status = path.stat()
    facts = f"{shlex.join(command)} {path} {status.st_mtime_ns} {status.st_size}"
    record = cache / "compilers" / hashlib.sha256(facts.encode()).hexdigest()
    try:
        version, machine = msgspec.json.decode(read_trusted(record), type=tuple[str, str])
    except (OSError, msgspec.DecodeError):
        version, machine = _probed(command)
        # Best effort: it can be asked again.
        with suppress(CacheUnusable):
            write_whole(record, msgspec.json.encode((version, machine)))
    return Compiler(command, path, version, machine)


def _probed(command: tuple[str, ...]) -> tuple[str, str]:
    """The first line of its version, and the machine that it compiles for."""
    try:
        # Without a file: there may be no folder that can be written.
        subprocess.run(
            [*command, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
            input=_PROBE,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        version, target = (
            subprocess.run([*command, option], check=True, capture_output=True, text=True).stdout
            for option in ("--version", "-dumpmachine")
        )
        # A triple, aarch64-linux-gnu; Apple and Debian have other names for some than Linux' uname. A wrapper
        # that does not tell is for this one.
        machine = target.partition("-")[0].strip()
        is_this = not machine or machine in _ALSO_CALLED.get(platform.machine(), ())
        return version.splitlines()[0], platform.machine() if is_this else machine
    except (OSError, subprocess.CalledProcessError, IndexError) as error:
        lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        why = next((line for line in lines if "error" in line), lines[0])
        raise CompilerMissing(
            f"{shlex.join(command)} does not compile C++20: {why}",
            remedy=f"gcc 11 or clang 16 and later do: {_INSTALL}",
        ) from None


def python_command() -> tuple[str, ...]:
    """The command for a file that needs the standard library only: a Python, and options that isolate it.

    In a process that embeds Python, ``sys.executable`` is another program, or nothing.  Raises
    :class:`BuildError` where there is no Python.
    """
    prefixed = (Path(prefix) / "bin" / "python3" for prefix in (sys.prefix, sys.base_prefix))
    candidates = (sys.executable or "", *map(str, prefixed), shutil.which("python3") or "")
    for candidate in candidates:
        if Path(candidate).name.startswith(("python", "pypy")) and os.access(candidate, os.X_OK):
            # One that finds its library only where PYTHONHOME says has to read its environment.
            return candidate, "-Ss" if "PYTHONHOME" in os.environ else "-ISs"
    raise BuildError(
        f"each step of a build runs Python, and there is none: `sys.executable` is {sys.executable!r}",
        remedy="put a `python3` on PATH",
    )


@functools.cache
def ninja_binary() -> Path:
    """The ninja of the PyPI package, or else of PATH; raises :class:`BuildError` when there is none."""
    with suppress(ImportError):
        import ninja

        # Of a package that was installed with `pip --target` it is empty.
        if ninja.BIN_DIR and (binary := Path(ninja.BIN_DIR) / "ninja").is_file():
            return binary
    found = shutil.which("ninja")
    if found is None:
        raise BuildError(
            "ninja, which runs the compiler, is missing from this environment",
            remedy="pip install --force-reinstall ninja",
        )
    return Path(found)
