"""tools/gpu/check, against its stand-in of libcuda."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "tools" / "gpu" / "check"


def check(folder: Path, *arguments: str, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK), "--dry-run", "--output", str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def test_the_cuda_driver_keeps_its_contract_on_the_stand_in(tmp_path: Path) -> None:
    ran = check(tmp_path, "--only", "driver")
    assert ran.returncode == 0, ran.stdout + (tmp_path / "check.log").read_text()
    step = json.loads((tmp_path / "check.json").read_text())["steps"]["driver"]
    verdicts = {each["name"]: each["verdict"] for each in step["result"]["checks"]}
    assert "failed" not in verdicts.values()
    assert verdicts["recorded work"] == verdicts["imported contents"] == "passed"


@pytest.mark.nightly
def test_faults_interrupts_and_full_memory_on_the_stand_in(tmp_path: Path) -> None:
    ran = check(tmp_path, "--only", "build", "--only", "on device", seconds=3600)
    assert ran.returncode == 0, ran.stdout + (tmp_path / "check.log").read_text()
    found = json.loads((tmp_path / "check.json").read_text())["steps"]["on device"]["result"]
    assert found["fault"]["says"] == (
        "could not synchronise a stream on cuda_driver:0: wait for a stream: an illegal memory access was "
        "encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700); a kernel that was launched before did this: "
        "OPSMITH_LAUNCH_BLOCKING=1 tells which, and NVIDIA's compute-sanitizer where in it "
        "(OPSMITH_DEVICE_LOST). The device and its tensors are gone: restart the process and continue from a "
        "checkpoint."
    )
    assert found["full"]["says"] == (
        "cuda_driver:0 out of memory. Tried to allocate 1.00 GiB: 510.00 MiB of 4.00 GiB are free, and this "
        "process holds 2.00 MiB: 512 bytes in allocations (1) and 2.00 MiB in its cache. Delete tensors that "
        "are no longer needed, use a smaller batch, or trade memory for time with torch.utils.checkpoint. "
        "The driver says: allocate 1073741824 bytes: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)"
    )


def test_a_step_that_fails_is_said_and_those_before_it_are_kept(tmp_path: Path) -> None:
    (tmp_path / "check.json").write_text(json.dumps({"steps": {"build": {"status": 0}}}))
    ran = check(tmp_path, "none.yaml", "--only", "driver")
    assert ran.returncode == 1
    assert ran.stderr == "not passed: driver\n"
    steps = json.loads((tmp_path / "check.json").read_text())["steps"]
    assert steps["build"] == {"status": 0}
    assert steps["driver"]["status"] == 2 and steps["driver"]["result"] is None
    assert "none.yaml" in (tmp_path / "check.log").read_text()


def test_a_step_that_does_not_exist_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    ran = check(tmp_path / "none", "--from", "tests")
    assert ran.returncode == 2
    assert (
        "there is no step 'tests': build, driver, on device, demo, demo again, collectives, "
        in ran.stderr
    )
    assert not os.path.exists(tmp_path / "none")
