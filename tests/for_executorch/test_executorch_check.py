"""``opsmith executorch check``: what it says of a program before that runs, and of files that are damaged."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from command import run_opsmith
from executorch_chip import write_chip
from executorch_programs import Mixed, Small, build, export, matrices
from opsmith.errors import LibraryRejected, OperatorsUnserved, OpsmithError, ProgramInvalid
from opsmith.executorch.check import check_program
from opsmith.executorch.program import read_program
from opsmith.executorch.run import run_program
from refusal import refusal

pytestmark = pytest.mark.usefixtures("runtime_in_forks")


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chip(tmp_path_factory.mktemp("check"))


@pytest.fixture(scope="module")
def whole(chip: Path) -> Path:
    return build(chip, chip.parent / "whole").library


@pytest.fixture(scope="module")
def mixed(chip: Path) -> Path:
    return export(Mixed(), matrices(), chip.parent / "mixed.pte", chip).program


class Weighted(nn.Module):
    """A program with weights, a state that it changes, and a list of Tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("state", torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.state.add_(x)
        return torch.cat([self.layer(x), self.state])


@pytest.fixture(scope="module")
def weighted(chip: Path) -> Path:
    return export(Weighted(), matrices(1), chip.parent / "weighted.pte", chip).program


def test_it_foretells_what_running_shows(mixed: Path, whole: Path) -> None:
    checked = check_program(mixed, [whole])
    assert checked.is_complete
    foretold = {
        each.form: each.kernel.library if each.kernel else "executorch" for each in checked.forms
    }
    ran = run_program(mixed, [whole])
    assert {call.form: call.library for call in ran.calls} == foretold
    assert sum(checked.calls) == len(ran.calls)
    checked.require_complete()


def test_without_the_runtimes_own_kernels(mixed: Path, whole: Path) -> None:
    checked = check_program(mixed, [whole], runtime_kernels=False)
    assert not checked.is_complete
    assert refusal(OperatorsUnserved, checked.require_complete) == (
        f"`{mixed}` calls operators for which none of its libraries has a kernel, where ExecuTorch's own are "
        "left out:\n"
        "  aten::sigmoid.out Float(0,1) Float(0,1) Float(0,1) (did you mean aten::silu.out, aten::mul.out, "
        "aten::add.out?)\n"
        f"  dim_order_ops::_to_dim_order_copy.out Float(0,1) Double(0,1) Double(0,1)\n"
        f"  remedy: build a library for it, and name that: opsmith executorch build backend.yaml --for "
        f"{mixed} -o DIR"
    )


def test_memory(weighted: Path) -> None:
    memory = check_program(weighted).memory
    (planned,) = memory.planned.values()
    # The input, the state, what the layer gives and what is concatenated; the weights.
    assert planned >= 4 * (12 + 12 + 12 + 24)
    assert memory.data >= 4 * (16 + 4)
    assert memory.peak == planned + memory.data < weighted.stat().st_size + planned


def test_the_command(mixed: Path, whole: Path) -> None:
    done = run_opsmith("executorch", "check", mixed, "--library", whole, "--json")
    assert done.returncode == 0, done.stderr
    *_, served, memory, last = done.stdout.splitlines()
    report = json.loads(last)
    libraries = {each["operator"]: each["library"] for each in report["forms"]}
    assert libraries["aten::relu.out"] == "plain"
    assert libraries["aten::sigmoid.out"] == "executorch"
    calls = sum(each["calls"] for each in report["forms"])
    assert report["complete"] and calls == 7
    assert served == "served   7 of 7 calls"
    planned = report["memory"]["planned"]["forward"]
    assert memory.startswith(f"memory   {planned + report['memory']['data']:,} bytes: {planned:,} ")


def test_the_command_fails_for_what_nobody_serves(mixed: Path, whole: Path) -> None:
    done = run_opsmith(
        "executorch", "check", mixed, "--library", whole, "--no-runtime-kernels", "--json"
    )
    assert done.returncode == 1
    report = json.loads(done.stdout.splitlines()[-1])
    unserved = [each["operator"] for each in report["forms"] if each["library"] is None]
    assert unserved == ["aten::sigmoid.out", "dim_order_ops::_to_dim_order_copy.out"]
    assert not report["complete"]
    assert "none of its libraries has a kernel" in done.stderr


def test_a_delegate_that_is_not_there(tmp_path: Path) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    graph = torch.export.export(Small(), matrices())
    edge = to_edge_transform_and_lower(graph, partitioner=[XnnpackPartitioner()])
    program = tmp_path / "delegated.pte"
    content = edge.to_executorch().buffer
    program.write_bytes(content)
    assert check_program(program).is_complete
    program.write_bytes(content.replace(b"XnnpackBackend", b"XnnpackBackens"))
    said = refusal(OperatorsUnserved, check_program(program).require_complete)
    assert said.startswith(
        f"`{program}` leaves a part to delegates that ExecuTorch 1.4.1 has not here: XnnpackBackens (did you "
        "mean XnnpackBackend"
    )


# ---- libraries that cannot be together


def test_two_libraries_with_the_same_kernel(
    chip: Path, mixed: Path, whole: Path, tmp_path: Path
) -> None:
    selected = build(chip, tmp_path / "selected", mixed).library
    for ask in (check_program, run_program):
        said = refusal(LibraryRejected, ask, mixed, [whole, selected])
        assert said.startswith(f"`{whole}` and `{selected}` both have a kernel of aten::")
        assert said.endswith(
            ", and the runtime holds one\n"
            "  remedy: name one of them; or list the kernel libraries of both in one backend.yaml, in order "
            "of preference, and build that"
        )


# ---- damaged programs


def test_programs_for_another_version(mixed: Path, tmp_path: Path) -> None:
    program = tmp_path / "other.pte"
    program.write_bytes(mixed.read_bytes().replace(b"ET12", b"ET13", 1))
    remedy = "  remedy: export it with the ExecuTorch that is to run it"
    assert refusal(ProgramInvalid, check_program, program) == (
        f"`{program}` is a program for another version of ExecuTorch: it has the format ET13, and ET12 is "
        f"read\n{remedy}"
    )
    program.write_bytes(mixed.read_bytes().replace(b"ET12", b"BP08", 1))
    assert refusal(ProgramInvalid, run_program, program) == (
        f"`{program}` is a program bundled with inputs and outputs for a test of it\n"
        "  remedy: name the .pte file that it was bundled from"
    )


def without_its_name(said: str, program: Path) -> str:
    return said.removeprefix(f"`{program}` is no program of ExecuTorch: ").split("\n")[0]


def packed(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        # The sizes of a Tensor, after how many they are.
        (packed(2, 3, 4), packed(2, -3, 4), "a Tensor has the sizes [-3, 4]"),
        (packed(2, 3, 4), packed(2, 3000, 4), "bytes of room"),
        # The dim order of a Tensor, likewise.
        (b"\2\0\0\0\0\1\0\0", b"\2\0\0\0\0\7\0\0", "has the dim order [0, 7]"),
        # The Tensors of a list.
        (b"aten::cat", b"aten::\xff\xff\xff", "the operators of `forward`: 'utf-8' codec"),
    ],
)
def test_each_part_of_a_program_is_looked_at(
    weighted: Path, tmp_path: Path, old: bytes, new: bytes, said: str
) -> None:
    program, content = tmp_path / "damaged.pte", weighted.read_bytes()
    assert old in content and len(old) == len(new)
    program.write_bytes(content.replace(old, new))
    assert said in without_its_name(refusal(ProgramInvalid, check_program, program), program)


def test_wherever_a_program_is_damaged(weighted: Path, tmp_path: Path) -> None:
    """It is refused in words that name its part, or read: never anything else, and never for long."""
    program, content = tmp_path / "damaged.pte", weighted.read_bytes()
    refused = set()
    for place in range(0, len(content) - 4, 4):
        for value in (b"\xff\xff\xff\xff", b"\x7f\0\0\0"):
            program.write_bytes(content[:place] + value + content[place + 4 :])
            try:
                read_program(program)
            except ProgramInvalid as error:
                assert str(program) in error.message and error.remedy
                refused.add(without_its_name(str(error), program).partition(":")[0])
    parts = ("data", "values", "buffers", "operators", "inputs and outputs")
    assert {part for part in parts if any(part in each for each in refused)} == set(parts)
    assert any(each.startswith("instruction 0 of `forward`") for each in refused)


@pytest.mark.parametrize("damage", [lambda x: x[:-1], lambda x: x[: len(x) // 2], lambda x: b""])
def test_a_program_that_was_cut_off(
    weighted: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    program = tmp_path / "cut.pte"
    program.write_bytes(damage(weighted.read_bytes()))
    for ask in (check_program, run_program):
        with pytest.raises(OpsmithError) as refused:
            ask(program)
        assert isinstance(refused.value, ProgramInvalid) and refused.value.remedy
