"""tools/gpu/check, against its stand-in of libcuda."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).parents[2] / "tools" / "gpu" / "check"


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK), "--dry-run", "--output", str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_the_cuda_driver_keeps_its_contract_on_the_stand_in(tmp_path: Path) -> None:
    ran = check(tmp_path, "--only", "driver")
    assert ran.returncode == 0, ran.stdout + (tmp_path / "check.log").read_text()
    step = json.loads((tmp_path / "check.json").read_text())["steps"]["driver"]
    verdicts = {each["name"]: each["verdict"] for each in step["result"]["checks"]}
    assert "failed" not in verdicts.values()
    assert verdicts["recorded work"] == verdicts["imported contents"] == "passed"


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
    assert "there is no step 'tests': build, driver, demo, calls, " in ran.stderr
    assert not os.path.exists(tmp_path / "none")
