"""Projects that `opsmith new` writes, installed and tested as their vendor would.

In the default run the page *A device in an afternoon* does so with the default one (tests/docs).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vendor_environment import make_environment

VARIANTS = {
    "default": (),
    "kernels in Python": ("--kernels", "python"),
    "all in Python": ("--driver", "python"),
    "kernels in OpenCL C": ("--kernels", "opencl"),
    "kernels in Triton": ("--kernels", "triton"),
    "for ExecuTorch": ("--executorch",),
    "for ExecuTorch, driver in Python": ("--executorch", "--driver", "python"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("options", VARIANTS.values(), ids=[*VARIANTS])
def test_a_new_project_passes_its_tests_unedited(options: tuple[str, ...], tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "environment")

    def run(*command: str, folder: Path = tmp_path / "mychip") -> str:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("opsmith", "new", "mychip", *options, folder=tmp_path)
    run("pip", "install", ".")
    run("opsmith", "build", "mychip")
    program = "import torch; print(torch.ones(2, device='mychip').sum().item())"
    assert run("python", "-c", program, folder=tmp_path) == "2.0\n"
    assert " passed" in run("pytest", "-q").splitlines()[-1]


PROGRAM = """
import torch
print((torch.ones(2, device="mychip") + 1).tolist())
print((torch.ones(3, 2, device="mychip") @ torch.ones(2, 3, device="mychip")).sum().item())
"""


@pytest.mark.nightly
@pytest.mark.needs("OpenCL")
def test_a_package_with_opencl_kernels_needs_no_compiler(tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "environment")

    def run(*command: str, folder: Path = tmp_path / "mychip", **variables: str) -> str:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("opsmith", "new", "mychip", "--kernels", "opencl", folder=tmp_path)
    run("opsmith", "package", "src/mychip/backend.yaml", "--no-sources")
    run("pip", "install", *map(str, (tmp_path / "mychip" / "dist").iterdir()))
    (installed,) = (tmp_path / "environment").glob("lib/*/site-packages/mychip")
    assert "#error" in (installed / "programs.cl").read_text()
    nothing = {"CXX": "no-such-compiler", "OPSMITH_CACHE_DIR": str(tmp_path / "cache")}
    said = run("python", "-c", PROGRAM, folder=tmp_path, **nothing)
    assert said == "[2.0, 2.0]\n18.0\n"
