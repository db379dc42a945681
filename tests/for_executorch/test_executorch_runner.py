"""``examples/runner``: a program in C++ on kernels that ``find_package(opsmith)`` builds for its model."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from executorch_chip import write_chip
from executorch_programs import Mixed, export, matrices
from opsmith.build.executorch import find_executorch

EXAMPLE = Path(__file__).parents[2] / "examples" / "runner"
PYTHON = f"-DPython3_EXECUTABLE={sys.executable}"

pytestmark = [
    pytest.mark.needs("cmake"),
    pytest.mark.usefixtures("runtime_in_forks"),
    pytest.mark.skipif(
        not find_executorch().is_split and not sysconfig.get_config_var("Py_ENABLE_SHARED"),
        reason="ExecuTorch 1.4 needs a Python that is a shared library",
    ),
]


class Gated(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x + y) * (y + y)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with small kernels, and a program for them."""
    folder = tmp_path_factory.mktemp("runner")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    export(Gated(), matrices(), folder / "model.pte", write_chip(folder))
    return folder


def cmake(project: Path, *arguments: str) -> str:
    done = subprocess.run(["cmake", *arguments], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_runs_the_program_and_is_not_linked_anew(project: Path) -> None:
    cmake(project, "-B", "build", PYTHON)
    cmake(project, "--build", "build")
    runner = project / "build" / "runner"
    ran = subprocess.run([runner, "model.pte"], cwd=project, capture_output=True, text=True)
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert [float(each) for each in ran.stdout.split()] == [4.0] * 12
    missing = subprocess.run([runner, "none.pte"], cwd=project, capture_output=True, text=True)
    assert missing.returncode == 1
    assert "none.pte cannot be loaded: error 0x" in missing.stderr
    before = runner.stat().st_mtime_ns
    cmake(project, "--build", "build")
    assert runner.stat().st_mtime_ns == before


def test_what_the_libraries_lack_is_said_when_it_is_built(project: Path) -> None:
    export(Mixed(), matrices(), project / "mixed.pte", project / "backend.yaml")
    cmake(project, "-B", "other", "-DPROGRAM=mixed.pte", PYTHON)
    done = subprocess.run(
        ["cmake", "--build", "other"], cwd=project, capture_output=True, text=True
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "error: " in said and "no library of `chip` serves" in said
    assert "aten::sigmoid.out" in said
