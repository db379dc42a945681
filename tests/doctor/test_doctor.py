"""``opsmith doctor``: what it finds, and the command that it gives for what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from opsmith.build.backend import BuiltBackend
from opsmith.build.compile import Compilation
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import find_compiler, find_torch
from opsmith.cli.main import app
from opsmith.description import Rng
from opsmith.driver.table import Table
from opsmith.errors import Location
from opsmith.vendor.doctor import requirements
from opsmith.vendor.doctor.driver_facts import expected_abi_version
from opsmith.vendor.doctor.requirements import Diagnosis, diagnose
from opsmith.vendor.doctor.tested_releases import Area, Demo, ReleaseRun

NAMES = [
    "opsmith",
    "python",
    "torch",
    "features",
    "tests",
    "torch headers",
    "compiler",
    "ninja",
    "clang-format",
    "cache",
    "executorch",
    "driver of sim",
]
COMMAND = """
import sys
from opsmith.cli.main import main
sys.argv = ["opsmith", "demo"]
main()
"""
TABLE = """
#include <stdint.h>
static const struct {
  uint32_t abi_version, struct_size; const char *name, *others[OTHERS]; const void *host_window, *later;
} table = {VERSION, sizeof(table), "toy", {0}, WINDOW, 0};
__attribute__((visibility("default"))) const void *opsmith_get_driver(void) { return &table; }
""".replace("OTHERS", str((Table.host_window.offset - Table.last_error.offset) // 8))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own, in which nothing has been built."""
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def check(name: str, backend: str = "sim") -> Diagnosis:
    return next(check for check in diagnose(backend) if check.name == name)


@pytest.fixture
def built_driver(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the backend's built driver is, as far as the doctor knows."""
    path = tmp_path / "libtoy.so"
    built = BuiltBackend("sim", path, path, tmp_path, True, Rng.PHILOX, Location(tmp_path), cache)
    monkeypatch.setattr(requirements, "find_built", lambda description: built)
    return path


def compile_driver(text: str, path: Path, cache: Path) -> None:
    source = path.with_suffix(".c")
    source.write_text(text)
    cache.mkdir(exist_ok=True)
    compilation = Compilation([SharedLibrary("toy", (source,))], find_compiler(cache), cache)
    compilation.run(cache / "log", lambda step: None)
    shutil.copy(compilation.outputs()[0], path)


def test_a_machine_that_has_everything(cache: Path) -> None:
    checks = diagnose("sim")
    assert [check.name for check in checks] == NAMES
    assert all(check.ok and not check.remedy for check in checks[:-1])
    found = {check.name: check.found for check in checks}
    assert found["python"] == f"{platform.python_version()} at {sys.executable}"
    assert found["torch"] == find_torch().version
    assert found["torch headers"] == str(find_torch().include_dirs[0])
    assert find_compiler(cache).version in found["compiler"]
    assert found["cache"].startswith(f"{cache}, 0.0 MiB used, ")
    assert checks[-1] == Diagnosis(
        "driver of sim", False, "not built yet", "opsmith build sim", required=False
    )


def test_the_command_succeeds_before_anything_is_built() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert result.output.endswith("everything that is needed is here\n")
    assert "opsmith build sim" in result.output


def test_the_command_as_json() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    answer = json.loads(result.output.splitlines()[-1])
    assert result.exit_code == 0
    assert answer["ok"] is True
    assert [check["name"] for check in answer["checks"]] == NAMES
    assert answer["checks"][0]["found"] == importlib.metadata.version("opsmith")
    assert answer["checks"][-1] == {
        "name": "driver of sim",
        "ok": False,
        "required": False,
        "found": "not built yet",
        "remedy": "opsmith build sim",
    }


def test_without_a_compiler_the_command_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "clang++-99")
    assert check("compiler") == Diagnosis(
        "compiler",
        False,
        "the compiler `clang++-99` that CXX names was not found on PATH",
        "apt-get install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora); or set CXX",
    )
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.output.splitlines()[-1])["ok"] is False


def pretend_torch(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this process take the installed torch for ``version``."""
    find = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: version if name == "torch" else find(name)
    )


def test_a_torch_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_torch("2.8.0+cu128", monkeypatch)
    assert check("torch") == Diagnosis(
        "torch",
        False,
        "2.8.0+cu128, but opsmith is for torch 2.9 to 2.15",
        'pip install "torch>=2.9,<2.16"',
    )


def test_a_torch_newer_than_any_known_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_torch("2.16.0a0+git1234", monkeypatch)
    assert check("torch") == Diagnosis(
        "torch",
        False,
        "2.16.0a0+git1234, which is newer than torch 2.15, the newest that opsmith is tested with: nobody "
        "has checked the names and headers of PyTorch that opsmith uses, nor what it knows of operators",
        'pip install "torch>=2.9,<2.16"',
        required=False,
    )


def test_a_torch_without_the_libraries_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a wheel for CUDA that was installed with ``--no-deps``."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        'raise ImportError("libcudnn.so.9: cannot open shared object file")\n'
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    version = find_torch().version
    why = "ImportError: libcudnn.so.9: cannot open shared object file"
    remedy = f"pip install --force-reinstall torch=={version}, with the packages that it requires"
    requirements._import_failure.cache_clear()
    assert check("torch") == Diagnosis(
        "torch", False, f"{version}, which cannot be imported: {why}", remedy
    )
    requirements._import_failure.cache_clear()
    said = f"torch {version} cannot be imported: {why.partition(': ')[2]}"
    for code in ("import opsmith; opsmith.load('sim')", COMMAND):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert said in done.stderr.splitlines()[-2], done.stderr
        assert done.stderr.splitlines()[-1] == f"  remedy: {remedy}"


def test_what_a_release_takes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_torch("2.12.1+cu130", monkeypatch)
    assert check("torch") == Diagnosis("torch", True, "2.12.1+cu130")
    assert check("features") == Diagnosis(
        "features",
        False,
        "`with torch.<device>.device(…)` breaks the graph of a compiled function (no "
        "torch._dynamo.variables.ctx_manager.GenericDeviceVariable); "
        "`cpp_wrapper` and AOTInductor write no graph for the device (no "
        "torch._inductor.codegen.cpp_wrapper_cpu.CppWrapperCpu._generate_end_jit)",
        'pip install "torch>=2.13"',
        required=False,
    )


def test_what_passed_on_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Demo(accuracy=0.96, cpu_accuracy=0.96, max_loss_difference=1e-7)
    areas = {"eager": Area(passed=20), "compile": Area(3, 2, 1), "graphs": Area(skipped=4)}
    kept = {"2.14": ReleaseRun("2.14.1+cu130", "2026-11-27", demo, areas)}
    monkeypatch.setattr(requirements, "tested_releases", lambda: kept)
    pretend_torch("2.14.0", monkeypatch)
    assert check("tests") == Diagnosis(
        "tests",
        False,
        "2.14.1+cu130, 2026-11-27: tests that pass: eager 20, compile 2 of 5 fail, graphs none",
        required=False,
    )
    pretend_torch("2.15.0", monkeypatch)
    assert check("tests") == Diagnosis(
        "tests",
        False,
        "nobody has run them on torch 2.15, but on 2.14",
        "opsmith conform, which compares each operator with the CPU's",
        required=False,
    )


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.14.1", "2.15.0a0+git1234"])
def test_a_release_that_takes_nothing_away(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_torch(version, monkeypatch)
    assert check("features") == Diagnosis(
        "features", True, "every name of PyTorch's own that opsmith uses"
    )


def test_a_missing_clang_format(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "clang_format" else find_spec(name),
    )
    assert check("clang-format") == Diagnosis(
        "clang-format",
        False,
        "clang-format does not run: it is not installed in this environment",
        "pip install --force-reinstall clang-format",
    )


def test_a_disk_that_is_almost_full(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=12 << 20))
    assert check("cache") == Diagnosis(
        "cache",
        False,
        f"the cache directory {cache} cannot be written: only 12.0 MiB are free on its disk",
        "free some space there, or set OPSMITH_CACHE_DIR to a directory of your own",
    )


def test_a_driver_of_this_version(built_driver: Path, cache: Path) -> None:
    version = expected_abi_version()
    compile_driver(
        TABLE.replace("VERSION", str(version)).replace("WINDOW", "&table"), built_driver, cache
    )
    found = check("driver of sim")
    assert found == Diagnosis(
        "driver of sim", True, f"`toy`, ABI version {version} ({built_driver})"
    )


def test_a_driver_without_the_host_window_that_the_description_counts_on(
    built_driver: Path, cache: Path
) -> None:
    text = TABLE.replace("VERSION", str(expected_abi_version())).replace("WINDOW", "0")
    compile_driver(text, built_driver, cache)
    assert check("driver of sim") == Diagnosis(
        "driver of sim",
        False,
        f"{built_driver.parent}: `toy` has no host window (its entry `host_window` is NULL), and the "
        "description counts on one",
        "add `host_window: off` to `driver` there",
    )


def test_a_driver_of_another_version(built_driver: Path, cache: Path) -> None:
    compile_driver(TABLE.replace("VERSION", "99").replace("WINDOW", "&table"), built_driver, cache)
    assert check("driver of sim") == Diagnosis(
        "driver of sim",
        False,
        "`toy` has version 99 of opsmith_driver.h, but this opsmith has version "
        f"{expected_abi_version()} ({built_driver})",
        "rebuild the driver with this opsmith's header",
    )


def test_a_library_that_is_no_driver(built_driver: Path, cache: Path) -> None:
    compile_driver("int nothing;\n", built_driver, cache)
    assert check("driver of sim") == Diagnosis(
        "driver of sim",
        False,
        f"the driver {built_driver} cannot be opened: "
        f"{built_driver}: undefined symbol: opsmith_get_driver",
        f"build it again, and see that the libraries it needs are found: ldd {built_driver}",
    )


def test_a_driver_that_crashes_does_not_take_the_doctor_along(
    built_driver: Path, cache: Path
) -> None:
    crash = TABLE.replace("return &table;", "__builtin_trap();").replace("VERSION", "1")
    crash = crash.replace("WINDOW", "&table")
    compile_driver(crash, built_driver, cache)
    found = check("driver of sim")
    assert not found.ok
    assert found.found.startswith(
        f"the driver {built_driver} cannot be opened: the process that tried ended with status -"
    )


def test_a_backend_that_does_not_exist() -> None:
    found = check("driver of smi", "smi")
    assert not found.ok and found.required
    assert "did you mean sim" in found.found + found.remedy
