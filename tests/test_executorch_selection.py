"""``opsmith executorch select``: what programs use, exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from command import run_opsmith
from opsmith.errors import FileMissing, ProgramInvalid
from opsmith.executorch.program import read_program
from opsmith.executorch.selection import select
from opsmith.plan.executorch_keys import TensorMeta, kernel_key

FLOAT_ROW = TensorMeta("Float", (0,))


class Sums(nn.Module):
    """Two additions in float, one in double, a cat of a list, and a view that needs no kernel."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        doubled = y.double() + y.double()
        return torch.cat([x + x, x + y, doubled.float()]).view(3, -1)


class ChannelsLast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x.to(memory_format=torch.channels_last))


@pytest.fixture(scope="session")
def save(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Exports a module for ExecuTorch into a file."""
    folder = tmp_path_factory.mktemp("programs")

    def saved(name: str, module: nn.Module, *inputs: Tensor) -> Path:
        from executorch.exir import to_edge

        path = folder / f"{name}.pte"
        if not path.exists():
            exported = torch.export.export(module.eval(), inputs)
            path.write_bytes(to_edge(exported).to_executorch().buffer)
        return path

    return saved


@pytest.fixture(scope="session")
def sums(save: Callable[..., Path]) -> Path:
    return save("sums", Sums(), torch.ones(4), torch.ones(4))


def test_a_key_has_each_tensors_dtype_and_dim_order() -> None:
    image = TensorMeta("Byte", (0, 2, 3, 1))
    assert kernel_key([FLOAT_ROW, image]) == "v1/6;0|0;0,2,3,1"
    assert kernel_key([TensorMeta("BFloat16", ())]) == "v1/15;"
    assert kernel_key([]) == ""
    assert (FLOAT_ROW.is_contiguous, image.is_contiguous) == (True, False)


def test_each_form_of_an_operator_is_counted_by_its_calls(sums: Path) -> None:
    selection = select([read_program(sums)])
    adds = {use.tensors: use for use in selection.kernels if use.operator == "aten::add.out"}
    # self, other, out, and out again as what is returned.
    floats, doubles = (FLOAT_ROW,) * 4, (TensorMeta("Double", (0,)),) * 4
    assert {tensors: use.calls for tensors, use in adds.items()} == {floats: 2, doubles: 1}
    assert adds[floats].key == "v1/6;0|6;0|6;0|6;0"
    # The list of Tensors is not in the key.
    (cat,) = [use for use in selection.kernels if use.operator == "aten::cat.out"]
    assert cat.key == "v1/6;0|6;0"
    assert selection.delegates == ()


def test_another_dim_order_is_another_form(save: Callable[..., Path]) -> None:
    path = save("channels_last", ChannelsLast(), torch.ones(1, 2, 3, 4))
    (relu,) = [
        use for use in select([read_program(path)]).kernels if use.operator == "aten::relu.out"
    ]
    assert {tensor.dim_order for tensor in relu.tensors} == {(0, 2, 3, 1)}


def test_several_programs_are_added_up(sums: Path, save: Callable[..., Path]) -> None:
    other = save("add", nn.Sequential(nn.Identity(), Double()), torch.ones(4))
    selection = select([read_program(sums), read_program(other)])
    floats = [use for use in selection.kernels if use.key == "v1/6;0|6;0|6;0|6;0"]
    (add,) = [use for use in floats if use.operator == "aten::add.out"]
    assert (add.calls, add.programs) == (3, (str(sums), str(other)))
    assert selection.programs == (str(sums), str(other))
    assert selection.operators == tuple(sorted({use.operator for use in selection.kernels}))


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x


def test_the_command(sums: Path) -> None:
    done = run_opsmith("executorch", "select", sums, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    *_, said, last = done.stdout.splitlines()
    report = json.loads(last)
    operators = {use["operator"] for use in report["kernels"]}
    assert "aten::add.out" in operators
    assert said == f"{len(operators)} operators in {len(report['kernels'])} forms, of 1 program"


def test_what_is_no_program_is_refused(sums: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    with pytest.raises(FileMissing) as missing:
        read_program(path)
    assert str(missing.value) == (
        f"the program `{path}` cannot be read: No such file or directory\n"
        "  remedy: name a .pte file, such as ExecutorchProgramManager.save() writes"
    )
    path.write_text("a program")
    with pytest.raises(ProgramInvalid) as foreign:
        read_program(path)
    assert str(foreign.value) == (
        f"`{path}` is no program of ExecuTorch: it does not begin as one does\n"
        "  remedy: export it anew; ExecutorchProgramManager.save() writes one"
    )
    whole = sums.read_bytes()
    for length in range(16, len(whole) // 2, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ProgramInvalid, match=r"is no program of ExecuTorch: "):
            read_program(path)
