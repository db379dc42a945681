"""Kernel libraries for another processor: built with its compiler and the ExecuTorch of its wheel."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from executorch_chip import write_chip
from executorch_programs import Small, build, export, matrices
from needs import AARCH64_COMPILER
from opsmith.build.cache import usable_cache
from opsmith.build.csrc import CSRC
from opsmith.build.executorch import find_executorch
from opsmith.build.flags import lean_flags
from opsmith.build.toolchain import find_compiler
from opsmith.errors import CompilerMissing, ExecutorchMissing, LibraryRejected
from opsmith.executorch.check import check_program
from opsmith.executorch.elf import ElfFile
from opsmith.executorch.library_file import read_library_file
from opsmith.executorch.run import run_program
from refusal import refusal

EXAMPLE = Path(__file__).parents[2] / "examples" / "runner"
VERSION = find_executorch().version.partition("+")[0]
HERE = platform.machine()

pytestmark = [
    pytest.mark.needs("AArch64"),
    pytest.mark.skipif(HERE == "aarch64", reason="it is this processor"),
]

# The functions of the runtime that a library of small kernels calls, beside csrc/lean.
RUNTIME = """\
#include <executorch/runtime/kernel/operator_registry.h>
namespace executorch::runtime {
Span<const Kernel> get_registered_kernels() { return {}; }
}
"""


@pytest.fixture(scope="module")
def executorch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``executorch`` of a wheel for AArch64, as far as a build asks for it."""
    folder = tmp_path_factory.mktemp("wheel") / "executorch"
    (folder / "lib").mkdir(parents=True)
    (folder / "include").symlink_to(find_executorch().include_dir)
    (folder / "version.py").write_text(f'__version__ = "{VERSION}"\n')
    source = folder / "runtime.cpp"
    source.write_text(RUNTIME)
    flags = [flag for flag in lean_flags() if "visibility" not in flag]
    flags += [f"-isystem{path}" for path in find_executorch().headers.include_dirs]
    for name, sources in {
        "executorch": [*(CSRC / "lean").glob("*.cpp"), source],
        "executorch_threadpool": [],
    }.items():
        library = folder / "lib" / f"lib{name}.so"
        subprocess.run(
            [AARCH64_COMPILER, *flags, f"-I{CSRC}", "-shared", f"-Wl,-soname,{library.name}",
             *sources, "-o", library],
            check=True,
        )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chip(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def small(chip: Path) -> Path:
    return export(Small(), matrices(), chip.parent / "small.pte", chip).program


def remedy(machine: str) -> str:
    return (
        f"pip download executorch=={VERSION} --no-deps --platform manylinux_2_28_{machine}, unzip it, and "
        "set OPSMITH_EXECUTORCH to its folder `executorch`"
    )


def test_a_library_is_for_the_compilers_processor(
    chip: Path, small: Path, executorch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", AARCH64_COMPILER)
    monkeypatch.setenv("OPSMITH_EXECUTORCH", str(executorch))
    library = build(chip, chip.parent / "built", small).library
    assert ElfFile.read(library).machine == "aarch64"
    assert "libexecutorch.so" in ElfFile.read(library).needed
    assert read_library_file(library).description.built_for.machine == "aarch64"
    assert check_program(small, [library]).is_complete
    # Nothing of it is this machine's.
    assert b"executorch/lib" not in library.read_bytes()
    assert refusal(LibraryRejected, run_program, small, [library]) == (
        f"`{library}` was built for a processor of the kind aarch64, and this is {HERE}\n"
        "  remedy: build it anew here: opsmith executorch build backend.yaml -o DIR"
    )


def test_the_installed_executorch_is_for_this_processor(
    chip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", AARCH64_COMPILER)
    runtime = find_executorch().runtime
    assert refusal(ExecutorchMissing, build, chip, tmp_path) == (
        f"{shutil.which(AARCH64_COMPILER)} compiles for aarch64, and `{runtime}`, which libraries are linked "
        f"to, is for {HERE}\n  remedy: {remedy('aarch64')}; or name another compiler with CXX"
    )


def test_an_executorch_for_another_processor_needs_a_compiler_for_it(
    chip: Path, tmp_path: Path, executorch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_EXECUTORCH", str(executorch))
    compiler = find_compiler(usable_cache())
    assert refusal(ExecutorchMissing, build, chip, tmp_path) == (
        f"{compiler.command[0]} compiles for {HERE}, and `{executorch / 'lib' / 'libexecutorch.so'}`, which "
        "libraries are linked to, is for aarch64\n"
        f"  remedy: {remedy(HERE)}; or name another compiler with CXX"
    )


def test_a_folder_that_is_no_executorch(
    chip: Path, tmp_path: Path, executorch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_EXECUTORCH", str(tmp_path))
    assert refusal(ExecutorchMissing, build, chip, tmp_path) == (
        f"OPSMITH_EXECUTORCH is `{tmp_path}`, which is no folder `executorch` of its wheel\n"
        f"  remedy: {remedy('MACHINE')}"
    )
    other = tmp_path / "executorch"
    shutil.copytree(executorch, other, symlinks=True)
    monkeypatch.setenv("OPSMITH_EXECUTORCH", str(other))
    (other / "version.py").write_text('__version__ = "1.3.0"\n')
    assert refusal(ExecutorchMissing, build, chip, tmp_path) == (
        f"OPSMITH_EXECUTORCH names ExecuTorch 1.3.0, and {find_executorch().version} is installed here, "
        "which exports the programs\n"
        f"  remedy: pip install executorch==1.3.0, or unpack the wheel of {find_executorch().version}"
    )
    (other / "version.py").write_text(f'__version__ = "{VERSION}"\n')
    shutil.rmtree(other / "lib")
    assert refusal(ExecutorchMissing, build, chip, tmp_path) == (
        f"ExecuTorch {VERSION} has its runtime in an extension module of Python, which libraries for another "
        "processor cannot be linked to\n"
        "  remedy: take 1.5 or later, here and there, whose runtime is a library of its own"
    )


def test_a_device_is_for_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", AARCH64_COMPILER)
    assert refusal(CompilerMissing, find_compiler, usable_cache()) == (
        f"{shutil.which(AARCH64_COMPILER)} compiles for aarch64, and this is {HERE}\n"
        "  remedy: unset CXX: only `opsmith executorch build` makes libraries for another processor"
    )


@pytest.mark.needs("cmake")
def test_cmake_with_a_toolchain_file(
    chip: Path, small: Path, executorch: Path, tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    shutil.copytree(chip.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / "phone.cmake").write_text(
        "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR aarch64)\n"
        f"set(CMAKE_CXX_COMPILER {AARCH64_COMPILER})\n"
    )
    options = [
        f"-DPython3_EXECUTABLE={sys.executable}",
        "-DCMAKE_TOOLCHAIN_FILE=phone.cmake",
        f"-DOPSMITH_EXECUTORCH={executorch}",
        "-DPROGRAM=small.pte",
    ]
    for command in (
        ["-B", "build", *options],
        ["--build", "build", "--target", "runner_kernels_library"],
    ):
        done = subprocess.run(["cmake", *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    library = tmp_path / "build" / "runner_kernels.kernels" / "librunner_kernels.so"
    assert ElfFile.read(library).machine == "aarch64"
