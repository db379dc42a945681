"""``opsmith.autoload``, which a vendor's package calls: torch works whatever is wrong, and a line says it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fork_server
from opsmith.base.cache_folder import VARIABLE
from opsmith.description import find_backend
from opsmith.runtime import LoadedBackend

Describe = Callable[..., Path]
SIM = find_backend("sim")


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs ``script`` in a process that has imported torch, and opsmith."""
    return fork_server.run(
        [sys.executable, "-c", f"import torch, opsmith\n{script}"],
        timeout=600,
        env={**os.environ, **environment},
    )


def said(description: Path, **environment: str) -> str:
    """Standard error of two calls of ``opsmith.autoload``, after which torch works."""
    call = f"opsmith.autoload({str(description)!r})\n"
    run = python(f"{call}{call}print(torch.ones(2).sum().item())\n", **environment)
    assert (run.returncode, run.stdout) == (0, "2.0\n"), run.stderr
    return run.stderr


def whole_error(description: Path) -> str:
    return (
        "the whole error: TORCH_DEVICE_BACKEND_AUTOLOAD=0 python -c "
        f"'import opsmith; opsmith.load(\"{description}\")'\n"
    )


@pytest.fixture
def nothing_built(tmp_path: Path) -> dict[str, str]:
    """A machine without a compiler and with an empty cache."""
    return {"CXX": "nowhere++", VARIABLE: str(tmp_path / "empty")}


def test_what_is_not_built_is_not_compiled(
    describe: Describe, nothing_built: dict[str, str]
) -> None:
    path = describe()
    assert said(path, **nothing_built) == (
        f"opsmith: the backend `{path}` is not loaded: it is not built for this environment; to build it: "
        f"opsmith build {path}\n"
    )


def test_it_is_built_where_that_is_asked_for(
    describe: Describe, nothing_built: dict[str, str]
) -> None:
    path = describe()
    assert said(path, OPSMITH_BUILD_ON_IMPORT="1", **nothing_built) == (
        f"opsmith: the backend `{path}` is not loaded: the compiler `nowhere++` that CXX names was not found "
        f"on PATH; {whole_error(path)}"
    )
    named = said(
        path, OPSMITH_AUTOLOAD=str(path), TORCH_DEVICE_BACKEND_AUTOLOAD="0", **nothing_built
    )
    assert "the compiler `nowhere++` that CXX names was not found" in named


def test_what_is_built_is_loaded(sim: LoadedBackend) -> None:
    run = python(f"opsmith.autoload({str(SIM)!r})\nprint(torch.ones(2, device='sim').sum().item())")
    assert (run.stdout, run.stderr) == ("2.0\n", "")


def test_a_description_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "backend.yaml"
    assert said(path) == (
        f"opsmith: the backend `{path}` is not loaded: there is no file {path}; {whole_error(path)}"
    )


def test_a_mistake_in_the_description(describe: Describe) -> None:
    path = describe()
    path.write_text(path.read_text().replace("fallback:", "fallbak:"))
    assert said(path) == (
        f"opsmith: the backend `{path}` is not loaded: {path}:4:1: unknown key `fallbak` (did you mean "
        f"fallback?); {whole_error(path)}"
    )


def test_an_operator_that_torch_does_not_have_is_told_by_the_build(describe: Describe) -> None:
    path = describe("- {op: nosuchthing, kernel_name: f}")
    assert said(path).endswith(f"; to build it: opsmith build {path}\n")


def test_who_asks_for_another_backend_hears_nothing(describe: Describe, sim: LoadedBackend) -> None:
    path = describe()
    assert said(path, OPSMITH_AUTOLOAD="sim", TORCH_DEVICE_BACKEND_AUTOLOAD="0") == ""
    run = python(f"opsmith.load('sim')\nopsmith.autoload({str(path)!r})\nprint('done')")
    assert (run.stdout, run.stderr) == ("done\n", "")


def test_a_slot_that_an_earlier_package_has_taken(describe: Describe, sim: LoadedBackend) -> None:
    path = describe()
    run = python(
        f"opsmith.autoload({str(SIM)!r})\nopsmith.autoload({str(path)!r})\nopsmith.load({str(path)!r})"
    )
    taken = (
        f"the backend `sim` is loaded, and PyTorch has one slot for such a device: {SIM} loaded it when "
        "torch was imported"
    )
    remedy = (
        f'call opsmith.load("{path}") before torch is imported, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0, with '
        "which no package loads itself"
    )
    first, *_ = run.stderr.splitlines()
    assert first == f"opsmith: the backend `{path}` is not loaded: {taken}; {remedy}"
    assert run.stderr.endswith(f"opsmith.errors.SlotTaken: {taken}\n  remedy: {remedy}\n")


def test_a_slot_that_the_environment_has_given_away(describe: Describe, sim: LoadedBackend) -> None:
    path = describe()
    run = python(
        f"opsmith.load({str(path)!r})", OPSMITH_AUTOLOAD="sim", TORCH_DEVICE_BACKEND_AUTOLOAD="1"
    )
    assert run.stderr.endswith(
        "opsmith.errors.SlotTaken: the backend `sim` is loaded, and PyTorch has one slot for such a device: "
        f"OPSMITH_AUTOLOAD names it\n  remedy: unset OPSMITH_AUTOLOAD, or set it to {path}\n"
    )


def test_a_module_of_the_package_that_cannot_be_imported(sim: LoadedBackend) -> None:
    call = f"opsmith.autoload({str(SIM)!r}, modules=['nosuchmodule'])"
    run = python(
        f"{call}\nprint(torch.sim.is_available())",
        OPSMITH_AUTOLOAD="sim",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert run.stdout == "True\n"
    assert run.stderr == (
        f"opsmith: the backend `{SIM}` is loaded without its kernels in Python: ModuleNotFoundError: No "
        "module named 'nosuchmodule'; the whole error: TORCH_DEVICE_BACKEND_AUTOLOAD=0 python -c 'import "
        f'opsmith; opsmith.load("{SIM}"); import nosuchmodule\'\n'
    )


def test_kernels_in_python_need_what_calls_them(sim: LoadedBackend) -> None:
    # Other tests may have built it.
    run = python(
        "from opsmith.build import python_adapter\n"
        "python_adapter.find_adapter = lambda built: None\n"
        f"opsmith.autoload({str(SIM)!r}, modules=['nosuchmodule'])\n"
        "print(hasattr(torch, 'sim'))"
    )
    assert (run.stdout, run.stderr) == (
        "False\n",
        f"opsmith: the backend `{SIM}` is not loaded: what calls its kernels in Python is not built for this "
        "environment; to build it: OPSMITH_BUILD_ON_IMPORT=1 python -c 'import torch'\n",
    )


def test_a_command_of_opsmith_loads_nothing_by_itself(describe: Describe) -> None:
    path = describe()
    run = python(
        "import opsmith.cli.main\n"
        f"opsmith.autoload({str(path)!r})\n"
        "print(torch._C._get_privateuse1_backend_name())\n"
    )
    assert (run.stdout, run.stderr) == ("privateuseone\n", "")
