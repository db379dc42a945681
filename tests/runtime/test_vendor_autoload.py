"""``opsmith.autoload``, which a vendor's package calls: torch is there whatever is wrong, and it is said."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fork_server
from opsmith.cache_folder import VARIABLE
from opsmith.description import find_backend
from opsmith.schema import torch_version

Describe = Callable[..., Path]


def after_import(
    description: Path, then: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """A process whose ``import torch`` ends with the call, twice, and which then goes on with ``then``."""
    script = (
        "import torch, opsmith\n"
        f"opsmith.autoload({str(description)!r})\n"
        f"opsmith.autoload({str(description)!r})\n"
        "print(torch.ones(2).sum().item())\n"
        f"{then}\n"
    )
    return fork_server.run(
        [sys.executable, "-c", script], timeout=600, env={**os.environ, **environment}
    )


def warning_of(run: subprocess.CompletedProcess[str]) -> str:
    """The one warning: what it says, without the line of code that Python shows after it."""
    assert (run.returncode, run.stdout) == (0, "2.0\n"), run.stderr
    assert run.stderr.count("was not loaded: ") == 1, run.stderr
    _, _, text = run.stderr.partition("AutoloadWarning: ")
    return "\n".join(text.splitlines()[:2])


def test_without_a_compiler_torch_is_there_and_the_reason_too(
    describe: Describe, tmp_path: Path
) -> None:
    path = describe()
    run = after_import(path, CXX="nowhere++", **{VARIABLE: str(tmp_path / "empty")})
    assert warning_of(run) == (
        f"the device of {path} was not loaded: the compiler `nowhere++` that CXX names was not found on "
        "PATH\n"
        "  remedy: apt-get install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora); or set CXX"
    )


def test_a_description_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "backend.yaml"
    assert warning_of(after_import(path)) == (
        f"the device of {path} was not loaded: there is no such file\n"
        "  remedy: install the package again; where it is your own, see that its wheel carries the YAML files"
    )


def test_a_mistake_in_the_description(describe: Describe) -> None:
    path = describe("- {op: nosuchthing, kernel_name: f}")
    assert f"kernels.yaml:5:6: torch {torch_version()} has no operator `nosuchthing`" in warning_of(
        after_import(path)
    )


def test_another_backend_that_the_environment_names(describe: Describe) -> None:
    path = describe()
    then = "print(opsmith.load('sim').name)"
    run = after_import(path, then, OPSMITH_AUTOLOAD="sim")
    assert run.stdout == "2.0\nsim\n", run.stderr
    assert (
        f"the device of {path} was not loaded: OPSMITH_AUTOLOAD names another backend, `sim`\n"
        "  remedy: unset OPSMITH_AUTOLOAD to have this one\n"
    ) in run.stderr


def test_another_backend_that_is_loaded(describe: Describe) -> None:
    path = describe()
    run = fork_server.run(
        [
            sys.executable,
            "-c",
            f"import opsmith; opsmith.load('sim'); opsmith.autoload({str(path)!r})",
        ],
        timeout=600,
        env=dict(os.environ),
    )
    assert run.returncode == 0, run.stderr
    other = find_backend("sim")
    assert (
        f"the device of {path} was not loaded: another backend is loaded, {other}, and PyTorch has one slot "
        "for such a device\n  remedy: uninstall one of the packages that bring a device, or name the one to "
        f"load: OPSMITH_AUTOLOAD={path}\n"
    ) in run.stderr


def test_warnings_that_are_errors_leave_torch_alone(describe: Describe, tmp_path: Path) -> None:
    path = describe()
    run = after_import(
        path, CXX="nowhere++", PYTHONWARNINGS="error", **{VARIABLE: str(tmp_path / "empty")}
    )
    assert (run.returncode, run.stdout) == (0, "2.0\n"), run.stderr
    assert run.stderr.startswith(f"opsmith: the device of {path} was not loaded: the compiler")


def test_a_command_of_opsmith_loads_nothing_by_itself(describe: Describe) -> None:
    path = describe()
    script = (
        "import opsmith.cli.main, torch, opsmith\n"
        f"opsmith.autoload({str(path)!r})\n"
        "print(torch._C._get_privateuse1_backend_name())\n"
    )
    run = fork_server.run([sys.executable, "-c", script], timeout=600, env=dict(os.environ))
    assert (run.stdout, run.stderr) == ("privateuseone\n", "")
