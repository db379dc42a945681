"""``opsmith executorch build``: one library, whole or of what programs use, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from command import run_opsmith
from executorch_chip import FAST, PLAIN, write_chip
from executorch_programs import Largest, Mixed, build, export, matrices
from opsmith.errors import OperatorsUnserved, OutputRejected, SymbolUndefined
from opsmith.executorch.elf import ElfFile
from opsmith.executorch.library_file import read_library_file
from opsmith.executorch.sizes import text_size
from refusal import refusal


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chip(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def mixed(chip: Path) -> Path:
    return export(Mixed(), matrices(), chip.parent / "mixed.pte", chip).program


@pytest.mark.needs("binutils")
def test_the_whole_library_holds_every_kernel(chip: Path) -> None:
    built = build(chip, chip.parent / "whole")
    assert [path.name for path in (chip.parent / "whole").iterdir()] == ["libchip_executorch.so"]
    described = read_library_file(built.library).description
    assert not described.selected
    assert {each.symbol for each in described.kernels} == {each.symbol for each in built.kernels}
    assert len(built.kernels) == 7
    assert all(each.bytes > 0 for each in built.kernels)
    assert built.text == built.full_text == _size(built.library)


def _size(library: Path) -> int:
    """The size of ``text``, as binutils' ``size`` prints it."""
    done = subprocess.run(["size", library], capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[1].split()[0])


@pytest.mark.needs("binutils")
def test_a_selected_library_holds_what_the_program_calls(chip: Path, mixed: Path) -> None:
    built = build(chip, chip.parent / "selected", mixed)
    assert sorted(each.symbol for each in built.kernels) == [
        "chip::fast::native::add_out",
        "chip::fast::native::mul_out",
        "chip::plain::native::relu_out",
    ]
    # unused.cpp, which no kernel of these needs, does not compile when something is selected.
    assert built.text == text_size(built.library) < built.full_text
    described = read_library_file(built.library).description
    assert described.selected
    assert {each.operator: each.keys for each in described.kernels} == {
        "aten::add.out": ("v1/6;0,1|6;0,1|6;0,1|6;0,1",),
        "aten::mul.out": ("v1/6;0,1|6;0,1|6;0,1|6;0,1", "v1/7;0,1|7;0,1|7;0,1|7;0,1"),
        "aten::relu.out": ("v1/6;0,1|6;0,1|6;0,1",),
    }
    servers = {
        (each.form.operator, each.kernel.library if each.kernel else "") for each in built.forms
    }
    assert servers == {
        ("aten::add.out", "fast"),
        ("aten::mul.out", "fast"),
        ("aten::relu.out", "plain"),
        ("aten::sigmoid.out", ""),
        ("dim_order_ops::_to_dim_order_copy.out", ""),
    }


class Summed(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + torch.sigmoid(y)).mean(-1)


def test_a_selected_library_has_the_dtypes_of_its_program_alone(tmp_path: Path) -> None:
    """In code that several operators share too, and in each instruction set."""
    backend = tmp_path / "backend.yaml"
    backend.write_text("backend: summed\ndriver: sim\nlibraries: [optimized]\n")
    program = export(Summed(), matrices(), tmp_path / "summed.pte", backend).program
    built = build(backend, tmp_path / "built", program)
    assert {each.form.operator for each in built.forms if each.kernel} == {
        "aten::add.out",
        "aten::mean.out",
        "aten::sigmoid.out",
    }
    names = [symbol.name for symbol in ElfFile.read(built.library).symbols]
    assert any("sigmoid_float" in name for name in names)
    assert [name for name in names if "float16" in name] == []
    # Each instruction set of this machine is in both.
    assert built.text < built.full_text / 30


@pytest.mark.needs("binutils")
def test_the_command(chip: Path, mixed: Path) -> None:
    output = chip.parent / "command"
    done = run_opsmith("executorch", "build", chip, "--for", mixed, "-o", output, "--json")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in output.iterdir()] == ["libchip_executorch.so"]
    *_, share, library, last = done.stdout.splitlines()
    report = json.loads(last)
    assert library == f"library  {output}/libchip_executorch.so"
    assert report["text"] == text_size(output / "libchip_executorch.so")
    assert share == (
        f"{report['text']:,} bytes of text, {report['text'] / report['full_text']:.1%} of the full "
        f"library's {report['full_text']:,}"
    )
    add = next(each for each in report["forms"] if each["operator"] == "aten::add.out")
    assert (add["library"], add["next"]) == ("fast", "executorch")
    assert {each["operator"] for each in report["kernels"]} == {
        "aten::add.out",
        "aten::mul.out",
        "aten::relu.out",
    }


def test_another_build_replaces_the_library(chip: Path, tmp_path: Path) -> None:
    largest = export(Largest(), matrices(1), tmp_path / "largest.pte", chip).program
    first = build(chip, tmp_path / "out").text
    second = build(chip, tmp_path / "out", largest).text
    assert second < first
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["libchip_executorch.so"]


# ---- what is refused


def test_a_folder_with_another_library_is_refused(chip: Path, tmp_path: Path) -> None:
    (tmp_path / "libother.so").touch()
    assert refusal(OutputRejected, build, chip, tmp_path) == (
        f"`{tmp_path}` holds another shared library, `libother.so`, and is to hold exactly one\n"
        "  remedy: remove it, or name another folder with -o"
    )
    file = tmp_path / "file"
    file.touch()
    assert refusal(OutputRejected, build, chip, file) == (
        f"`{file}` cannot hold the library: File exists\n  remedy: name a folder of yours with -o"
    )


def test_a_kernel_that_no_source_defines(tmp_path: Path) -> None:
    fast = FAST.replace("chip::fast::add_out", "chip::fast::sum_out")
    backend = write_chip(tmp_path / "chip", fast=fast)
    assert refusal(SymbolUndefined, lambda: build(backend, tmp_path / "out")) == (
        f"{backend.parent}/fast.yaml:5:19: the sources of library `fast` do not define "
        "`chip::fast::native::sum_out` with the signature that `aten::add.out` needs\n"
        "  remedy: define\n"
        "    torch::executor::Tensor & chip::fast::native::sum_out(torch::executor::KernelRuntimeContext & "
        "context, const torch::executor::Tensor & self, const torch::executor::Tensor & other, const "
        "torch::executor::Scalar & alpha, torch::executor::Tensor & out);\n"
        "  in one of its sources (fast.cpp)"
    )
    assert list((tmp_path / "out").iterdir()) == []


def test_a_program_that_no_library_serves(chip: Path, mixed: Path, tmp_path: Path) -> None:
    plain = PLAIN.partition("kernels:")[0] + (
        "kernels:\n  - {op: max.dim_max, kernel_name: chip::plain::max_dim}\n"
    )
    fast = FAST.replace("[Float, Double]", "[Half]").replace("[Float]", "[Half]")
    backend = write_chip(tmp_path / "chip", fast=fast, plain=plain)
    with pytest.raises(OperatorsUnserved) as unserved:
        build(backend, tmp_path / "out", mixed)
    copy = "dim_order_ops::_to_dim_order_copy.out Float(0,1) Double(0,1) Double(0,1)"
    double, floats = " ".join(["Double(0,1)"] * 4), " ".join(["Float(0,1)"] * 4)
    assert str(unserved.value) == (
        f"{backend}:1:1: no library of `chip` serves anything that `{mixed}` calls\n"
        f"  aten::add.out {floats}: fast does not take Float as `self`\n"
        f"  aten::mul.out {double}: fast does not take Double(0,1) as `self`\n"
        f"  aten::mul.out {floats}: fast does not take Float(0,1) as `self`\n"
        "  aten::relu.out Float(0,1) Float(0,1) Float(0,1): no library has a kernel for it\n"
        "  aten::sigmoid.out Float(0,1) Float(0,1) Float(0,1): no library has a kernel for it\n"
        f"  {copy}: no library has a kernel for it\n"
        "  remedy: run it without a library: ExecuTorch has kernels for all of it"
    )


def test_a_backend_without_kernels_for_executorch(tmp_path: Path) -> None:
    backend = tmp_path / "backend.yaml"
    backend.write_text("backend: chip\ndriver: sim\nlibraries: [random]\n")
    assert refusal(OperatorsUnserved, lambda: build(backend, tmp_path / "out")) == (
        f"{backend}:1:1: no library of `chip` has kernels for ExecuTorch\n"
        "  remedy: list one whose manifest says `abi: executorch`, such as portable"
    )
