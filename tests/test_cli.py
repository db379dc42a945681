"""The commands as people and programs run them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Describe = Callable[..., Path]


def opsmith(*arguments: str, status: int = 0) -> str:
    """Runs the command; its standard output, or its standard error where it is to fail."""
    run = subprocess.run(
        [sys.executable, "-m", "opsmith", *arguments], capture_output=True, text=True, timeout=900
    )
    assert run.returncode == status, run.stdout + run.stderr
    return run.stdout if status == 0 else run.stderr


def last_line(output: str) -> dict[str, Any]:
    value = json.loads(output.splitlines()[-1])
    assert isinstance(value, dict)
    return value


def test_demo(tmp_path: Path) -> None:
    figure = tmp_path / "curves.png"
    output = opsmith("demo", "--epochs", "4", "--figure", str(figure), "--json")
    result = last_line(output)
    assert list(result) == [
        "device", "accuracy", "cpu_accuracy", "max_loss_difference", "step_ms", "cpu_step_ms",
        "calls_by_route",
    ]  # fmt: skip
    assert result["device"] == "sim"
    assert result["accuracy"] > 0.9
    assert abs(result["accuracy"] - result["cpu_accuracy"]) < 0.02
    # The same weights, batches and dropout masks: float32 rounding is all that may differ.
    assert result["max_loss_difference"] < 1e-3
    calls = result["calls_by_route"]
    assert calls["structured"] > 1000 and calls["derived"] > 0 and calls["fallback"] > 0
    assert calls["denied"] == calls["missing"] == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "epoch   loss on sim" in output and "median time per step" in output


def test_demo_where_the_picture_cannot_be_written(tmp_path: Path) -> None:
    text = opsmith("demo", "--epochs", "1", "--figure", str(tmp_path / "no" / "x.png"), status=1)
    assert "the picture cannot be written" in text and "--figure" in text


def test_plan_as_json() -> None:
    plan = last_line(opsmith("plan", "sim", "--json"))
    assert list(plan) == ["backend", "torch", "operators", "counts"]
    assert plan["backend"] == "sim"
    assert sum(plan["counts"].values()) == len(plan["operators"])
    by_name = {operator["name"]: operator for operator in plan["operators"]}
    assert list(by_name["add.out"]) == ["name", "route", "source", "library", "why"]
    assert by_name["add.out"]["route"] == "structured"
    assert by_name["add.out"]["library"] == "hosted"
    assert by_name["relu_"] | {"why": ""} == {
        "name": "relu_", "route": "derived", "source": "relu", "library": "hosted", "why": "",
    }  # fmt: skip
    assert plan["counts"]["structured"] + plan["counts"]["kernel"] > 40


def test_plan_for_people() -> None:
    output = opsmith("plan")
    assert output.startswith("sim on torch ")
    for route in ("kernel", "structured", "derived", "composite", "fallback"):
        assert f"│ {route}" in output


def test_plan_of_one_route() -> None:
    output = opsmith("plan", "--route", "derived")
    assert "relu_" in output and "add.out" not in output


def test_plan_of_an_unknown_route() -> None:
    assert "'nothing' is not one of" in opsmith("plan", "--route", "nothing", status=2)


def test_plan_of_a_faulty_description(describe: Describe) -> None:
    path = describe("- {op: add.oot, kernel_name: f}")
    assert opsmith("plan", str(path), status=1) == (
        f"error: {path.parent}/kernels.yaml:5:6: torch 2.13.0+cpu has no operator `add.oot` (did you "
        "mean add.out, add.Tensor, add.Scalar_out?)\n"
        "  remedy: name the overload too; `opsmith plan` lists every operator\n"
    )


def test_explain() -> None:
    explained = last_line(opsmith("explain", "add_.Tensor", "--backend", "sim", "--json"))
    assert explained["schema"] == (
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
    )
    assert explained["route"] == "structured"
    assert "opsmith/kernels/hosted/kernels.yaml:" in explained["source"]
    table = {row["key"]: row for row in explained["dispatch_table"]}
    assert "RegisterSim_" in table["PrivateUse1"]["kernel"]
    assert table["PrivateUse1"]["kind"] == "kernel"
    assert "VariableType" in table["AutogradPrivateUse1"]["kernel"]


def test_explain_for_people() -> None:
    output = opsmith("explain", "aten::relu_")
    assert "aten::relu_(Tensor(a!) self) -> Tensor(a!)" in output
    assert "derived" in output and "hosted/kernels.yaml:" in output
    assert "dispatch table" in output and "PrivateUse1" in output and "IPU" not in output


def test_explain_an_unknown_operator() -> None:
    assert opsmith("explain", "add_.Tensr", status=1) == (
        "error: torch 2.13.0+cpu has no operator `add_.Tensr` (did you mean add_.Tensor, "
        "add_.Scalar?)\n  remedy: `opsmith plan sim` lists every operator\n"
    )


def test_build() -> None:
    built = last_line(opsmith("build", "sim", "--json"))
    assert list(built) == ["backend", "library", "driver", "generated"]
    assert Path(built["library"]).name == "libopsmith_sim.so"
    assert Path(built["driver"]).is_file()
    assert (Path(built["generated"]) / "SimNativeFunctions.h").is_file()


def test_build_of_an_unknown_backend() -> None:
    assert opsmith("build", "nowhere", status=1) == (
        "error: there is no backend `nowhere`\n"
        "  remedy: name a shipped backend (sim) or the path of a backend.yaml\n"
    )


@pytest.mark.parametrize("command", ["demo", "plan", "explain", "build", "doctor"])
def test_every_command_has_help(command: str) -> None:
    assert f"opsmith {command}" in opsmith(command, "--help")
