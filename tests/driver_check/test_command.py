"""``opsmith driver check`` as people and programs call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fork_server

SIM = ["sim", "--check", "device count", "--check", "fills"]


def check(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        [sys.executable, "-m", "opsmith", "driver", "check", *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120"},
    )


def test_a_driver_that_passes() -> None:
    done = check(*SIM)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("driver sim  ")
    assert done.stdout.endswith("\n3 checks passed\n")
    shown = check(*SIM, "--all").stdout
    assert "`fill` sets every byte that it is to set, and no other" in " ".join(shown.split())


def test_json_of_a_driver_that_is_none(tmp_path: Path) -> None:
    library = tmp_path / "libchip.so"
    library.write_text("text")
    done = check(str(library), "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["ok"], report["driver"]) == (False, "libchip.so")
    first, *others = report["checks"]
    assert (first["name"], first["verdict"]) == ("library", "failed")
    assert first["happened"].startswith(f"the driver cannot be opened: {library}: file too short")
    assert first["notice"] == "opsmith.load() raises DriverInvalid"
    assert {each["verdict"] for each in others} == {"skipped"}


def test_what_is_shown_of_a_failure(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text("import opsmith.driver\n")
    done = check("driver.py:Chip", cwd=tmp_path)
    assert done.returncode == 1
    words = " ".join(done.stdout.replace("│", " ").split())
    assert f"happened `{tmp_path}/driver.py` has no class `Chip`; remedy: write class" in words
    assert "PyTorch opsmith.load() raises DriverInvalid" in words
    assert "not made: 55 checks, since the driver has no table that can be called" in words


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere"], "`nowhere` is neither a backend nor a driver"),
        (["libnowhere.so.1"], "there is no library libnowhere.so.1"),
        (["driver.py"], "`driver.py` names no class of Python"),
        (["driver.py:Chip"], "there is no file "),
        (["sim", "--check", "fils"], "there is no check `fils` (did you mean fills?)"),
        (["sim", "--backend", "sim"], "the driver is named twice: sim and --backend sim"),
        (["sim", "--time-limit", "0"], "--time-limit"),
    ],
)
def test_what_cannot_be_checked(arguments: list[str], text: str, tmp_path: Path) -> None:
    done = check(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert text in " ".join(done.stderr.replace("│", " ").split())


def test_the_list_of_checks() -> None:
    listed = json.loads(check("--list", "--json").stdout)
    assert len(listed) == 55
    assert listed[0]["name"] == "entries"
    assert "│ fills " in check("--list").stdout
