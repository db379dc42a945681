"""Commands on a device whose installed package registers kernels in Python, wrong ones among them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from command import run_opsmith
from device_project import write_project
from opsmith.conformance.results import latest_path
from opsmith.observe.report.report_data import read_document
from test_import_torch import installed, python_path

pytestmark = pytest.mark.needs("Python.h")

KERNELS = """\
import opsmith

device = opsmith.load("mychip")


@device.kernel("sigmoid.out")
def too_steep(self, *, out):
    return out.copy_((self.cpu() * 2).sigmoid())


def product_of_32_bits(self, other, *, out):
    product = self.cpu() * other.cpu()
    return out.copy_(product if product.is_floating_point() else product.int().long())


device.kernel("mul.out")(product_of_32_bits)
"""
LOADED = (
    "loaded `mychip` as the package mychip-torch 1.2 (entry point `mychip` of `torch.backends`) does, with "
    "kernels in Python: sigmoid.out, mul.out"
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installed package, with kernels in Python that are wrong for some calls."""
    description = write_project(tmp_path_factory.mktemp("mychip"))
    (description.parent / "kernels_in_python.py").write_text(KERNELS)
    init = description.with_name("__init__.py")
    call = 'opsmith.autoload(Path(__file__).with_name("backend.yaml")'
    init.write_text(init.read_text().replace(call, call + ', modules=["mychip.kernels_in_python"]'))
    installed(description.parents[1], "mychip-torch", "mychip = mychip:autoload")
    return description.parents[1]


def command(package: Path, *arguments: object, status: int = 0) -> tuple[dict[str, Any], str]:
    """The JSON of a command, and what it said on stderr."""
    done = run_opsmith(*arguments, "--json", env={"PYTHONPATH": python_path(package)}, timeout=900)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


CONFORM = (
    "conform", "mychip", "--op", "sigmoid", "--op", "mul", "--dtype", "float32", "--dtype", "int64",
    "--check", "forward", "--check", "boundary", "--samples", "2", "--jobs", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def checked(package: Path) -> dict[str, Any]:
    summary, _ = command(package, *CONFORM, status=1)
    return summary


def test_conform_checks_what_the_package_registers(checked: dict[str, Any]) -> None:
    assert checked["loaded"] == LOADED
    failing = {(each["entry"], each["check"], each["dtype"]) for each in checked["failures"]}
    assert failing == {
        ("sigmoid", "forward", "float32"),
        ("sigmoid", "forward", "int64"),
        ("sigmoid", "boundary", "float32"),
        ("sigmoid", "boundary", "int64"),
        # OpInfo's own values of int64 are between -9 and 9.
        ("mul", "boundary", "int64"),
    }
    assert checked["totals"]["passed"] == 3


def test_explain_knows_the_kernels_of_the_package(package: Path) -> None:
    explained, errors = command(package, "explain", "sigmoid_", "--backend", "mychip", "--no-table")
    assert errors.endswith(LOADED + "\n")
    assert explained["route"] == "derived" and "too_steep" in explained["why"]


def test_the_report_leaves_out_verdicts_of_another_build(
    package: Path, checked: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    kernels = package / "mychip" / "kernels_in_python.py"
    kernels.write_text(KERNELS.replace("self.cpu() * 2", "self.cpu()"))
    answer, errors = command(package, "report", "mychip", "-o", page)
    document = read_document(page)
    assert LOADED in errors and document.loaded == LOADED
    assert document.operators.routes()["sigmoid.out"] == "kernel"
    assert answer["build"] != checked["build"] and answer["conformance"] is None
    latest = latest_path(package / "mychip" / "backend.yaml")
    updated = json.loads(latest.read_bytes())["updated"]
    assert answer["warnings"] == [
        f"the conformance results in {latest} are stale, and left out: they are of the build "
        f"{checked['build']}, made {updated}, and what is loaded now is the build {answer['build']}"
    ]


def test_a_description_that_no_package_brings_says_what_is_left_out(
    package: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mychip"
    shutil.copytree(package / "mychip", folder)
    done = run_opsmith("plan", folder, "--json", env={"PYTHONPATH": ":".join(sys.path)})
    assert done.stderr.endswith(
        f"the plan of {folder}/backend.yaml is without the kernels in Python beside it, as no installed "
        "package brings it: `pip install -e` its project\n"
    )
