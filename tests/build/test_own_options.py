"""Options and libraries for a user's own sources: from the description, the environment and the command."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command import run_opsmith
from opsmith.base.cache_folder import cache_root
from opsmith.build import backend as backend_room
from opsmith.build.compile import Compilation
from opsmith.build.etensor_headers import own_headers
from opsmith.build.flags import lean_compile_flags
from opsmith.build.lean import lean_sources
from opsmith.build.objects import Objects
from opsmith.build.own_options import own_link_flags, own_settings, preloads, run_hint
from opsmith.build.toolchain import Compiler, find_compiler, find_torch
from opsmith.build.units import own_units
from opsmith.description import read_backend, read_library
from opsmith.errors import BuildError, SettingInvalid
from opsmith.executorch.elf import ElfFile
from refusal import refusal
from small_builds import written

Describe = Callable[..., Path]

DRIVER = """
#include "answers.h"
__attribute__((visibility("default"))) int answer(void) { return ANSWER + sdk_answer(); }
"""
OPTIONS = "compile_flags: [-DANSWER=40], include_dirs: [include], libraries: [m, lib/libmysdk.so]"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return find_compiler(cache_root())


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """A description whose driver is linked to a library that was there before."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "answers.h").write_text("int sdk_answer(void);\n")
    (tmp_path / "driver.c").write_text(DRIVER)
    make_sdk(tmp_path, 2)
    return described(tmp_path, OPTIONS)


def make_sdk(folder: Path, answer: int) -> None:
    (folder / "lib").mkdir(exist_ok=True)
    source = written(folder / "sdk.c", f"int sdk_answer(void) {{ return {answer}; }}\n")
    command = ["gcc", "-shared", "-fPIC", "-o", folder / "lib" / "libmysdk.so", source]
    subprocess.run(command, check=True)


def described(folder: Path, options: str) -> Path:
    return written(
        folder / "backend.yaml",
        f"backend: chip\ndriver: {{sources: [driver.c], {options}}}\nlibraries: []\n",
    )


def driver(description: Path, compiler: Compiler) -> Path:
    """The driver's library, built."""
    backend = read_backend(description, None)
    library = backend_room.driver_library(backend.name, backend.driver)
    cache = cache_root()
    compilation = Compilation([library], compiler, cache)
    compilation.run(cache / "logs" / "test.log", lambda step: None)
    return compilation.outputs()[0]


# ---- from the description


def test_a_driver_is_compiled_and_linked_as_it_says(chip: Path, compiler: Compiler) -> None:
    library = driver(chip, compiler)
    assert ctypes.CDLL(str(library)).answer() == 42
    more = driver(described(chip.parent, OPTIONS.replace("40", "50")), compiler)
    assert more != library
    linked = driver(described(chip.parent, f"{OPTIONS}, link_flags: ['-Wl,-z,now']"), compiler)
    assert linked not in (library, more)


def test_a_library_that_changes_is_linked_anew(chip: Path, compiler: Compiler) -> None:
    before = driver(chip, compiler)
    make_sdk(chip.parent, 3)
    assert driver(chip, compiler) != before


def test_a_library_that_the_linker_does_not_find(chip: Path, compiler: Compiler) -> None:
    with pytest.raises(BuildError) as caught:
        driver(described(chip.parent, OPTIONS.replace("[m", "[nosuchlibrary")), compiler)
    assert str(caught.value) == (
        "the linker finds no library `nosuchlibrary`\n"
        "  remedy: give its path in `libraries`, or its folder: `link_flags: [-L/opt/mysdk/lib]`; full log: "
        f"{cache_root() / 'logs' / 'test.log'}"
    )


def test_each_library_has_its_own_options(tmp_path: Path, compiler: Compiler) -> None:
    for name in ("driver.c", "first.cpp", "second.cpp"):
        (tmp_path / name).touch()
    for name in ("first", "second"):
        text = f"library: {name}\nsources: [{name}.cpp]\ncompile_flags: [-D{name.upper()}]\nkernels: []\n"
        written(tmp_path / f"{name}.yaml", text)
    path = written(
        tmp_path / "backend.yaml",
        """
        backend: chip
        driver: {sources: [driver.c]}
        libraries:
          - first.yaml
          - {file: second.yaml, compile_flags: [-DMORE], link_flags: ['-Wl,-z,now'], libraries: [m]}
        """,
    )
    backend = read_backend(path, None)
    installed = backend_room.Installed.found(cache_root())
    library = backend_room.library_of(backend, tmp_path / "generated", installed, compiler)
    flags = {
        each.unit.name: [flag for flag in each.flags if flag in ("-DFIRST", "-DSECOND", "-DMORE")]
        for each in Objects(compiler, cache_root()).of(library)
    }
    assert flags["first.cpp"] == ["-DFIRST"]
    assert flags["second.cpp"] == ["-DSECOND", "-DMORE"]
    assert {name for name, found in flags.items() if found} == {"first.cpp", "second.cpp"}
    assert (library.own_link_flags, library.own_libraries) == (("-Wl,-z,now",), ("m",))


def test_kernels_on_lean_tensors_have_them_too(tmp_path: Path) -> None:
    (tmp_path / "kernels.cpp").touch()
    path = written(
        tmp_path / "kernels.yaml",
        """
        library: lean
        abi: executorch
        sources: [kernels.cpp]
        compile_flags: [-DLEAN]
        kernels: []
        """,
    )
    library = read_library(path, None)
    (sources,) = lean_sources(library, own_headers(find_torch()), ["-DFIRST"])
    assert lean_compile_flags(sources).index("-DLEAN") > lean_compile_flags(sources).index("-Wall")
    assert sources.flags == ("-DFIRST", "-DLEAN")


# ---- from the environment


def test_flags_of_the_environment_are_for_ones_own_sources(
    chip: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = driver(chip, compiler)
    monkeypatch.setenv("CFLAGS", "-UANSWER -DANSWER='(1 + 1)'")
    monkeypatch.setenv("LDFLAGS", "-Wl,-z,now")
    after = driver(chip, compiler)
    assert after != before
    assert ctypes.CDLL(str(after)).answer() == 4
    assert own_units([Path("a.c")])[0].own_flags == ("-UANSWER", "-DANSWER=(1 + 1)")
    assert own_units([Path("a.cpp")])[0].own_flags == ()
    assert own_link_flags() == ("-Wl,-z,now",)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "CXXFLAGS",
            "-DX='a",
            "CXXFLAGS cannot be split into options: No closing quotation: -DX='a\n"
            "  remedy: close its quotation marks, or unset it",
        ),
        (
            "LDFLAGS",
            "-Llib",
            "LDFLAGS has `-Llib`, and compilers run in a folder of the cache\n"
            "  remedy: give it an absolute path, or name the folder in `include_dirs` of a manifest",
        ),
        ("OPSMITH_DEBUG", "yes", "OPSMITH_DEBUG is `yes`\n  remedy: set it to 1, or unset it"),
        (
            "OPSMITH_SANITIZE",
            "adress",
            "OPSMITH_SANITIZE names `adress`, which is no sanitizer that opsmith builds with\n"
            "  remedy: name some of address, undefined, thread, with commas, or unset it",
        ),
        (
            "OPSMITH_SANITIZE",
            "thread,address",
            "OPSMITH_SANITIZE names `address` and `thread`, and a process has room for one of them\n"
            "  remedy: build and run twice, with one of them each",
        ),
    ],
)
def test_settings_that_mean_nothing(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert refusal(SettingInvalid, own_settings) == said


# ---- for a debugger, and with sanitizers


def test_debugged(chip: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ElfFile.read(driver(chip, compiler)).section(".debug_info") is None
    monkeypatch.setenv("OPSMITH_DEBUG", "1")
    assert ElfFile.read(driver(chip, compiler)).section(".debug_info")
    assert run_hint(compiler) == "OPSMITH_DEBUG=1"


def test_sanitized(chip: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_SANITIZE", "undefined")
    library = driver(chip, compiler)
    assert any("ubsan" in name for name in ElfFile.read(library).needed)
    assert run_hint(compiler) == "OPSMITH_SANITIZE=undefined"
    monkeypatch.setenv("OPSMITH_SANITIZE", "undefined, address")
    (asan,) = preloads(compiler)
    assert run_hint(compiler) == (
        f"OPSMITH_SANITIZE='undefined, address' LD_PRELOAD={asan} ASAN_OPTIONS=detect_leaks=0"
    )


def test_the_command_sets_both_and_says_how_to_run(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_SANITIZE", "address")
    (asan,) = preloads(compiler)
    monkeypatch.delenv("OPSMITH_SANITIZE")
    run = run_opsmith("build", "sim", "--debug", "--sanitize", "address")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == (
        f"run        OPSMITH_DEBUG=1 OPSMITH_SANITIZE=address LD_PRELOAD={asan} "
        "ASAN_OPTIONS=detect_leaks=0 python …"
    )
    script = "import opsmith; opsmith.load('sim')"
    environment = {**os.environ, "OPSMITH_SANITIZE": "address"}
    failed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300
    )
    assert failed.stderr.splitlines()[-2:] == [
        "opsmith.errors.LoadError: OPSMITH_SANITIZE is set, and this process has not begun with libasan.so",
        f"  remedy: start it so: OPSMITH_SANITIZE=address LD_PRELOAD={asan} "
        "ASAN_OPTIONS=detect_leaks=0 python …",
    ]
