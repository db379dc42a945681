"""``import torch`` where devices' packages are installed: what it loads, and the line that says why not.

The packages lie on ``PYTHONPATH`` with the metadata of an editable installation.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from command import run_opsmith
from device_project import write_project
from opsmith.base.cache_folder import VARIABLE

NPU = """\
def autoload():
    import torch

    torch.utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", __import__("types").ModuleType("chip_npu.npu"))
"""


def installed(folder: Path, distribution: str, entry: str) -> None:
    """Writes what pip keeps of the package in ``folder``, whose entry point is ``entry``."""
    metadata = folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n"
    )
    (metadata / "entry_points.txt").write_text(f"[torch.backends]\n{entry}\n")


def build(folder: Path) -> str:
    """The output of `opsmith build` for the package there."""
    done = run_opsmith("build", "mychip", env={"PYTHONPATH": python_path(folder)}, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def python_path(*folders: Path) -> str:
    return os.pathsep.join([*map(str, folders), *sys.path])


def python(script: str, *folders: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process as a user starts it, with the packages in ``folders``."""
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "PYTHONPATH": python_path(*folders),
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
            **environment,
        },
    )


@pytest.fixture(scope="module")
def mychip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a package that is installed and not built."""
    folder = write_project(tmp_path_factory.mktemp("mychip")).parents[1]
    installed(folder, "mychip-torch", "mychip = mychip:autoload")
    return folder


@pytest.fixture(scope="module")
def built(mychip: Path) -> Path:
    """The same, built as the line on stderr says."""
    build(mychip)
    return mychip


@pytest.fixture
def npu(tmp_path: Path) -> Path:
    """The folder of a package that takes PyTorch's slot, and is not made with opsmith."""
    (tmp_path / "chip_npu.py").write_text(NPU)
    installed(tmp_path, "chip-npu", "chip_npu = chip_npu:autoload")
    return tmp_path


IS_THERE = "import torch; print(hasattr(torch, 'mychip'))"


def test_a_package_that_is_not_built_says_how_to_build_it(mychip: Path, tmp_path: Path) -> None:
    run = python(IS_THERE, mychip, **{VARIABLE: str(tmp_path / "empty")})
    assert (run.returncode, run.stdout) == (0, "False\n")
    assert run.stderr == (
        "opsmith: the backend `mychip` is not loaded: it is not built for this environment; to build it: "
        "opsmith build mychip\n"
    )


def test_then_it_is_there(built: Path) -> None:
    run = python("import torch; print((torch.ones(2, device='mychip') + 1).tolist())", built)
    assert (run.stdout, run.stderr) == ("[2.0, 2.0]\n", "")
    other = python("import torch, opsmith; opsmith.load('sim')", built)
    assert other.stderr.endswith(
        "opsmith.errors.SlotTaken: the backend `mychip` is loaded, and PyTorch has one slot for such a "
        "device: the package mychip-torch 1.2 (entry point `mychip` of `torch.backends`) loaded it when "
        'torch was imported\n  remedy: call opsmith.load("sim") before torch is imported, or set '
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0, with which no package loads itself\n"
    )


def test_a_program_that_loads_another_device_first_has_it(built: Path) -> None:
    works = "import torch; print(torch.ones(2, device='sim').sum().item())"
    run = python(f"import opsmith; opsmith.load('sim'); {works}", built)
    assert (run.stdout, run.stderr) == ("2.0\n", "")
    named = python(
        "import torch; print(torch.ones(2, device='sim').sum().item())",
        built,
        OPSMITH_AUTOLOAD="sim",
    )
    assert (named.stdout, named.stderr) == ("2.0\n", "")


def test_a_device_of_others_has_the_slot(built: Path, npu: Path) -> None:
    run = python("import torch, opsmith\nprint('torch is there')\nopsmith.load('sim')", npu, built)
    taken = (
        "PyTorch's one slot for an out-of-tree device is taken by `npu`, which the package chip-npu 1.2 "
        "(entry point `chip_npu` of `torch.backends`) brings"
    )
    remedy = (
        "in a process that does not import chip_npu (TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps such packages "
        "from loading themselves)"
    )
    assert run.stdout == "torch is there\n"
    assert run.stderr.splitlines()[0] == (
        f"opsmith: the backend `mychip` is not loaded: {taken}; load `mychip` {remedy}"
    )
    assert run.stderr.endswith(
        f"opsmith.errors.SlotTaken: {taken}\n  remedy: load `sim` {remedy}\n"
    )


@pytest.mark.needs("Python.h")
def test_kernels_in_python_are_built_too(built: Path, tmp_path: Path) -> None:
    folder = write_project(tmp_path).parents[1]
    init = folder / "mychip" / "__init__.py"
    call = 'opsmith.autoload(Path(__file__).with_name("backend.yaml")'
    modules = ', modules=["mychip.kernels_in_python"]'
    init.write_text(init.read_text().replace(call, call + modules))
    installed(folder, "mychip-torch", "mychip = mychip:autoload")
    assert "opsmith_adapter" in build(folder)
    script = (
        "import torch, sys; print((-torch.ones(2, device='mychip')).tolist(), {!r} in sys.modules)"
    )
    run = python(script.format("mychip.kernels_in_python"), folder)
    assert (run.stdout, run.stderr) == ("[-1.0, -1.0] True\n", "")
