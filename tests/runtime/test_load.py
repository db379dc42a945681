"""Loading: what works afterwards, and every way in which it is refused.

Each case has a process of its own, because a process loads one backend, once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fork_server
from opsmith.base.cache_folder import VARIABLE

Describe = Callable[..., Path]


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs ``script`` in a process in which no backend is loaded."""
    return fork_server.run(
        [sys.executable, "-c", script], timeout=600, env={**os.environ, **environment}
    )


def error_of(run: subprocess.CompletedProcess[str]) -> str:
    """The error with which the script ended: its last lines, from the exception's name on."""
    assert run.returncode == 1, run.stdout + run.stderr
    return run.stderr[run.stderr.rindex("opsmith.errors.") :].strip()


def test_the_readme_works() -> None:
    run = python(
        "import opsmith\n"
        "opsmith.load('sim')\n"
        "import torch\n"
        "torch.manual_seed(0)\n"
        "x = torch.randn(3, 4, device='sim', requires_grad=True)\n"
        "torch.nn.functional.gelu(x @ x.T).sum().backward()\n"
        "y = x.detach().cpu().requires_grad_()\n"
        "torch.nn.functional.gelu(y @ y.T).sum().backward()\n"
        "torch.testing.assert_close(x.grad.cpu(), y.grad)\n"
        "print(x.grad.device)\n"
    )
    assert (run.returncode, run.stdout) == (0, "sim:0\n"), run.stderr


def test_loading_twice_is_loading_once() -> None:
    run = python(
        "import opsmith\nassert opsmith.load('sim') is opsmith.load('sim')\nprint('same')\n"
    )
    assert run.stdout == "same\n", run.stderr


AUTOLOAD = {"OPSMITH_AUTOLOAD": "sim", "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}


def test_autoload() -> None:
    script = "import torch\nprint(torch.ones(3, device='sim').sum().item())\n"
    assert python(script, **AUTOLOAD).stdout == "3.0\n"
    assert python(script).returncode == 1


def test_autoload_of_a_backend_that_does_not_exist() -> None:
    run = python("import torch", **{**AUTOLOAD, "OPSMITH_AUTOLOAD": "simm"})
    assert run.returncode == 1
    assert "there is no backend `simm` (did you mean sim?)" in run.stderr


def test_importing_opsmith_imports_neither_torch_nor_a_compiler() -> None:
    program = (
        "import sys, opsmith, opsmith.plan, opsmith.cli.plan\n"
        "print([name for name in ('torch', 'ninja', 'clang_format') if name in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stderr


def test_a_second_backend() -> None:
    other = Path(__file__).parent / "derived_backend" / "windowed.yaml"
    run = python(f"import opsmith\nopsmith.load('sim')\nopsmith.load({str(other)!r})\n")
    assert error_of(run) == (
        "opsmith.errors.SlotTaken: the backend `sim` is loaded, and PyTorch has one slot for such a "
        f"device\n  remedy: load `{other}` in a process of its own"
    )


def test_a_slot_that_another_package_has_taken() -> None:
    run = python(
        "import torch, opsmith\n"
        "torch.utils.rename_privateuse1_backend('npu')\n"
        "opsmith.load('sim')\n"
    )
    assert error_of(run) == (
        "opsmith.errors.SlotTaken: PyTorch's one slot for an out-of-tree device is taken by `npu`\n"
        "  remedy: load `sim` in a process that does not import the package behind `npu` "
        "(TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps such packages from loading themselves)"
    )


# A driver whose table is of another version than the header that opsmith comes with.
OLD_DRIVER = """
#include <opsmith_driver.h>
static const opsmith_driver table = {.abi_version = 99, .struct_size = sizeof(opsmith_driver), .name = "old"};
__attribute__((visibility("default"))) const opsmith_driver* opsmith_get_driver(void) { return &table; }
"""


def test_a_driver_with_another_abi_version(describe: Describe) -> None:
    path = describe()
    (path.parent / "driver.c").write_text(OLD_DRIVER)
    run = python(f"import opsmith\nopsmith.load({str(path)!r})\n")
    text = error_of(run)
    assert text.startswith(f"opsmith.errors.DriverInvalid: {path}:2:1: the driver ")
    assert text.endswith(
        "was built with version 99 of opsmith_driver.h (a table of 304 bytes), but this opsmith has "
        "version 1 (304 bytes)\n"
        "  remedy: rebuild the driver with this opsmith's header"
    )


def test_a_driver_that_exports_nothing(describe: Describe) -> None:
    path = describe()
    (path.parent / "driver.c").write_text("int nothing;\n")
    text = error_of(python(f"import opsmith\nopsmith.load({str(path)!r})\n"))
    assert text.startswith(f"opsmith.errors.DriverInvalid: {path}:2:1: ")
    assert "opsmith_get_driver" in text


def test_a_driver_that_is_no_library(describe: Describe) -> None:
    path = describe(driver="{library: driver.so}")
    (path.parent / "driver.so").write_text("text")
    text = error_of(python(f"import opsmith\nopsmith.load({str(path)!r})\n"))
    assert text.startswith(f"opsmith.errors.DriverInvalid: {path}:2:1: ")
    assert "driver.so" in text


def test_a_kernel_that_the_sources_do_not_define(describe: Describe) -> None:
    path = describe("- {op: add.out, kernel_name: chip::add, structured: true}")
    text = error_of(python(f"import opsmith\nopsmith.load({str(path)!r})\n"))
    assert text == (
        f"opsmith.errors.SymbolUndefined: {path.parent}/kernels.yaml:5:6: the sources of library "
        "`chiplib` do not define `chip::add` with the signature that `add.out` needs\n"
        "  remedy: define\n"
        "    void chip::add(at::TensorIteratorBase& iter, const at::Scalar & alpha);\n"
        "  in one of its sources (kernels.cpp)"
    )


def test_a_kernel_that_does_not_compile(describe: Describe) -> None:
    path = describe("- {op: relu, kernel_name: chip::relu}")
    (path.parent / "kernels.cpp").write_text("int wrong = nonsense;\n")
    text = error_of(python(f"import opsmith\nopsmith.load({str(path)!r})\n"))
    assert text.startswith(f"opsmith.errors.CompilationFailed: {path.parent}/kernels.cpp:1:13: ")
    assert "nonsense" in text and "full log: " in text


def test_no_compiler(describe: Describe, tmp_path: Path) -> None:
    run = python(
        "import opsmith\nopsmith.load('sim')\n", CXX="nowhere++", **{VARIABLE: str(tmp_path / "c")}
    )
    assert error_of(run) == (
        "opsmith.errors.CompilerMissing: the compiler `nowhere++` that CXX names was not found on PATH\n"
        "  remedy: apt-get install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora); or set CXX"
    )


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    text = error_of(python("import opsmith\nopsmith.load('sim')\n", **{VARIABLE: str(blocked)}))
    assert text.startswith(f"opsmith.errors.CacheUnusable: the cache directory {blocked} cannot be")
