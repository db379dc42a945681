"""The commands as people and programs run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import fork_server
from opsmith.schema import torch_version

Describe = Callable[..., Path]


def opsmith(*arguments: str, status: int = 0) -> str:
    """Runs the command; its standard output, or its standard error where it is to fail."""
    run = fork_server.run([sys.executable, "-m", "opsmith", *arguments], timeout=900)
    assert run.returncode == status, run.stdout + run.stderr
    return run.stdout if status == 0 else run.stderr


def last_line(output: str) -> dict[str, Any]:
    value = json.loads(output.splitlines()[-1])
    assert isinstance(value, dict)
    return value


def test_demo(tmp_path: Path) -> None:
    figure = tmp_path / "curves.png"
    start = time.perf_counter()
    output = opsmith("demo", "--epochs", "4", "--figure", str(figure), "--json")
    elapsed = time.perf_counter() - start
    result = last_line(output)
    assert list(result) == [
        "device", "accuracy", "cpu_accuracy", "max_loss_difference", "step_ms", "cpu_step_ms",
        "calls_by_route", "first_step_s",
    ]  # fmt: skip
    assert result["device"] == "sim"
    assert result["accuracy"] > 0.9
    assert abs(result["accuracy"] - result["cpu_accuracy"]) < 0.02
    # The same weights, batches and dropout masks: float32 rounding is all that may differ.
    assert result["max_loss_difference"] < 1e-3
    calls = result["calls_by_route"]
    assert calls["kernel"] > 1000 and calls["derived"] > 0
    assert 0 < calls["fallback"] < 300
    assert calls["denied"] == calls["missing"] == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "epoch   loss on sim" in output and "median time per step" in output
    assert f"first training step: {result['first_step_s']:.1f} s after the start" in output
    # Python and torch are imported before it; the other steps of four epochs come after it.
    assert 0 < result["first_step_s"] < elapsed


def test_demo_where_the_picture_cannot_be_written(tmp_path: Path) -> None:
    text = opsmith("demo", "--epochs", "1", "--figure", str(tmp_path / "no" / "x.png"), status=1)
    assert "the picture cannot be written" in text and "--figure" in text


def test_plan_as_json() -> None:
    plan = last_line(opsmith("plan", "sim", "--json"))
    assert list(plan) == ["backend", "torch", "operators", "counts", "places", "not_served"]
    assert {each["name"] for each in plan["not_served"]} >= {"clone.out", "empty.out"}
    assert all("ExecuTorch's programs only" in each["why"] for each in plan["not_served"])
    assert plan["backend"] == "sim"
    assert sum(plan["counts"].values()) == len(plan["operators"])
    by_name = {operator["name"]: operator for operator in plan["operators"]}
    assert list(by_name["add.out"]) == ("name route place source library why served_by".split())
    assert sum(plan["places"].values()) == sum(
        each["place"] is not None for each in by_name.values()
    )
    assert by_name["add.out"]["route"] == "kernel"
    assert by_name["add.out"]["library"] == "optimized"
    assert by_name["fill_.Tensor"] | {"why": "", "served_by": {}} == {
        "name": "fill_.Tensor", "route": "derived", "place": "on the host, in place",
        "source": "fill.Tensor_out",
        "library": "portable", "why": "", "served_by": {},
    }  # fmt: skip
    assert plan["counts"]["structured"] + plan["counts"]["kernel"] > 40


def test_plan_for_people() -> None:
    output = opsmith("plan")
    assert output.startswith("sim on torch ")
    for route in ("kernel", "structured", "derived", "composite", "fallback"):
        assert f"│ {route}" in output


def test_plan_of_one_route() -> None:
    output = opsmith("plan", "--route", "derived")
    assert "relu_" in output and "as_strided" not in output


def test_plan_of_an_unknown_route() -> None:
    assert "'nothing' is not one of" in opsmith("plan", "--route", "nothing", status=2)


def test_plan_of_a_faulty_description(describe: Describe) -> None:
    path = describe("- {op: add.oot, kernel_name: f}")
    assert opsmith("plan", str(path), status=1) == (
        f"error: {path.parent}/kernels.yaml:5:6: torch {torch_version()} has no operator `add.oot` (did you "
        "mean add.out, add.Tensor, add.Scalar_out?)\n"
        "  remedy: name the overload too; `opsmith plan` lists every operator\n"
    )


def test_explain() -> None:
    explained = last_line(
        opsmith("explain", "add_.Tensor", "--backend", "sim", "--build", "--json")
    )
    assert explained["schema"] == (
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
    )
    assert explained["route"] == "derived"
    assert explained["source"] == "add.out"
    assert [link["library"] for link in explained["served_by"]["chain"]] == [
        "optimized",
        "portable",
    ]
    assert explained["served_by"]["last_resort"] == "fallback"
    assert explained["autograd"] == ""  # PyTorch's own formula
    table = {row["key"]: row for row in explained["dispatch_table"]}
    assert "RegisterSim_" in table["PrivateUse1"]["kernel"]
    assert table["PrivateUse1"]["kind"] == "kernel"
    assert "VariableType" in table["AutogradPrivateUse1"]["kernel"]


def test_explain_for_people() -> None:
    output = opsmith("explain", "aten::relu_", "--build")
    assert "aten::relu_(Tensor(a!) self) -> Tensor(a!)" in output
    assert "derived" in output and "portable/kernels.yaml:" in output
    assert "dispatch table" in output and "PrivateUse1" in output and "IPU" not in output


def test_explain_an_unknown_operator() -> None:
    assert opsmith("explain", "add_.Tensr", status=1) == (
        f"error: torch {torch_version()} has no operator `add_.Tensr` (did you mean add_.Tensor, "
        "add_.Scalar?)\n  remedy: `opsmith plan sim` lists every operator\n"
    )


@pytest.mark.parametrize("command", ["plan", "plan --json", "--help"])
def test_output_that_cannot_be_written(command: str) -> None:
    """Large and small ones: the latter are written when the process ends."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "opsmith", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "error: standard output cannot be written: No space left on device\n"
        "  remedy: send it to a file on a disk with room\n",
    )


@pytest.mark.parametrize(
    ("command", "is_pipe"),
    [
        ("report --against {}", True),
        ("report --conform {}", False),
        ("report --coverage {}", True),
        ("report --bench {}", False),
        ("import {}", True),
        ("executorch select {}", False),
        ("executorch check {}", True),
        ("fallbacks --allow {} program.py", False),
    ],
)
def test_what_is_no_file_is_not_read(command: str, is_pipe: bool, tmp_path: Path) -> None:
    """Nothing ever comes from the pipe, and the device never ends."""
    path = tmp_path / "given"
    if is_pipe:
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    why = f"it is a {'pipe' if is_pipe else 'device'}, not a file\n  remedy: "
    assert why in opsmith(*command.format(path).split(), status=1)


def test_build() -> None:
    built = last_line(opsmith("build", "sim", "--json"))
    assert list(built) == ["backend", "library", "driver", "adapter", "generated", "run"]
    assert built["adapter"] is None  # no kernel of sim is in Python
    assert Path(built["library"]).name == "libopsmith_sim.so"
    assert Path(built["driver"]).is_file()
    assert (Path(built["generated"]) / "SimNativeFunctions.h").is_file()


def test_build_of_an_unknown_backend() -> None:
    assert opsmith("build", "nowhere", status=1) == (
        "error: there is no backend `nowhere`\n"
        "  remedy: name a shipped backend (cuda_driver, opencl, sim) or the path of a backend.yaml\n"
    )


TORCHGEN = """\
backend: Chip
cpp_namespace: chip
supported: [relu, reshape]
full_codegen: [sin, cos]
"""


def test_plan_of_what_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "chip.yaml").write_text(TORCHGEN)
    backend = tmp_path / "backend.yaml"
    backend.write_text("backend: chip\ndriver: sim\nlibraries: [chip.yaml]\n")
    assert "3 items of the description are not served; list them with --not-served\n" in opsmith(
        "plan", str(backend)
    )
    lines = opsmith("plan", str(backend), "--not-served").splitlines()
    assert lines[0].startswith(
        "not served: it is CompositeImplicitAutograd: a kernel for the device"
    )
    assert lines[1] == f"  {tmp_path}/chip.yaml:3:19: reshape"
    assert lines[2].startswith("not served: under `full_codegen`: torchgen's gen_lazy_tensor would")
    assert lines[3:] == [f"  {tmp_path}/chip.yaml:4:{column}" for column in ("16: sin", "21: cos")]
    (first, *others) = last_line(opsmith("plan", str(backend), "--json"))["not_served"]
    assert first | {"why": ""} == {
        "name": "reshape", "source": f"{tmp_path}/chip.yaml:3:19", "library": "chip", "why": "",
    }  # fmt: skip
    assert [item["name"] for item in others] == ["sin", "cos"]


def test_import_to_a_file_and_to_standard_output(tmp_path: Path) -> None:
    source, target = tmp_path / "chip.yaml", tmp_path / "kernels.yaml"
    source.write_text(TORCHGEN)
    text = opsmith("import", str(source))
    assert text.startswith("# Imported by opsmith from chip.yaml.\nlibrary: chip\n")
    assert opsmith("import", str(source), "-o", str(target)) == ""
    assert target.read_text() == text
    assert opsmith("import", str(source), "-o", str(target), status=1) == (
        f"error: {target} exists already\n"
        "  remedy: write another file, or overwrite it with --force\n"
    )
    target.write_text("")
    opsmith("import", str(source), "-o", str(target), "--force")
    assert target.read_text() == text


def test_import_says_what_it_cannot_carry_over(tmp_path: Path) -> None:
    source = tmp_path / "chip.yaml"
    source.write_text(TORCHGEN)
    run = fork_server.run([sys.executable, "-m", "opsmith", "import", source])
    lines = run.stderr.splitlines()
    assert lines[0].startswith("not carried over: it is CompositeImplicitAutograd: ")
    assert lines[1] == f"  {source}:3:19: reshape"
    assert lines[2].startswith("not carried over: under `full_codegen`: ")
    assert lines[3:] == [f"  {source}:4:16: sin", f"  {source}:4:21: cos"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "library: chip\nkernels: []\n",
            "{}:1:1: this is a manifest of opsmith already\n"
            "  remedy: import turns the YAML of torchgen, op-plugin and ExecuTorch into manifests\n",
        ),
        (
            "mechanism: 3\n",
            "{}:1:1: this is no description of kernels in a format that opsmith reads\n"
            "  remedy: write a manifest of opsmith (`library`, `kernels`), a backend YAML of torchgen "
            "(`backend`, `cpp_namespace`, `supported`), Ascend's op_plugin_functions.yaml "
            "(`all_version`, `official`), or ExecuTorch's functions.yaml or "
            "custom_ops.yaml (a list of entries with `op` or `func`, and `kernels`)\n",
        ),
    ],
)
def test_import_of_another_file(text: str, error: str, tmp_path: Path) -> None:
    source = tmp_path / "x.yaml"
    source.write_text(text)
    assert opsmith("import", str(source), status=1) == f"error: {error.format(source)}"


def test_import_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    source, target = tmp_path / "chip.yaml", tmp_path / "no" / "kernels.yaml"
    source.write_text(TORCHGEN)
    assert opsmith("import", str(source), "-o", str(target), status=1).endswith(
        f"error: `{target}` cannot be written: No such file or directory\n"
        "  remedy: name a file in a folder of yours\n"
    )


@pytest.mark.parametrize("command", ["demo", "plan", "explain", "build", "import", "doctor"])
def test_every_command_has_help(command: str) -> None:
    assert f"opsmith {command}" in opsmith(command, "--help")


def test_commands_import_nothing_that_an_extra_brings() -> None:
    program = """
        import sys

        for extra in sys.argv[1:]:
            sys.modules[extra] = None  # importing it raises ModuleNotFoundError
        from opsmith.cli import executorch, main

        for each in (*main.COMMANDS, *executorch.COMMANDS):
            each.command()
    """
    extras = (
        "executorch expecttest hypothesis matplotlib numpy pytest sklearn torchao torchvision"
    ).split()
    done = subprocess.run(
        [sys.executable, "-c", dedent(program), *extras], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
