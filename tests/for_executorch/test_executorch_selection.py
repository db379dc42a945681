"""``opsmith executorch select``: what programs use, exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from command import imported_by, run_opsmith
from opsmith.errors import FileMissing, ProgramInvalid
from opsmith.executorch.program import KernelCall, ProgramInput, read_program
from opsmith.executorch.selected_kernels import select
from opsmith.plan.executorch.kernel_keys import (
    Argument,
    CallForm,
    TensorMeta,
    dtype_name,
    kernel_key,
)
from refusal import refusal

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


@pytest.mark.parametrize("name", ["sums", "channels_last", "choice", "delegated"])
def test_a_program_is_read_as_executorch_reads_it(
    name: str, exported: Callable[[str], Path]
) -> None:
    path = exported(name)
    program, theirs = read_program(path), read_by_executorch(path)
    assert program.calls == tuple(theirs["calls"])
    assert program.delegates == theirs["delegates"]
    assert program.inputs == theirs["inputs"]
    assert (bool(program.calls), bool(program.delegates)) == (
        name != "delegated",
        name == "delegated",
    )


class Choice(nn.Module):
    """A branch, which is jumps; an index, which is a list with an absent Tensor; a dynamic size."""

    def forward(self, x: Tensor, chosen: Tensor, count: int) -> Tensor:
        def more(t: Tensor) -> Tensor:
            return t + 1

        def less(t: Tensor) -> Tensor:
            return t - 1

        return torch.cond(x.sum() > 0, more, less, (x,))[:, chosen] * count


@pytest.fixture(scope="session")
def exported(
    save: Callable[..., Path], sums: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A program with each kind of what a program can hold."""
    folder = tmp_path_factory.mktemp("kinds")

    def made(name: str) -> Path:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge, to_edge_transform_and_lower

        if name == "sums":
            return sums
        if name == "channels_last":
            return save(name, ChannelsLast(), torch.ones(1, 2, 3, 4))
        path = folder / f"{name}.pte"
        if name == "choice":
            rows = torch.export.Dim("rows", min=2, max=8)
            graph = torch.export.export(
                Choice(),
                (torch.ones(4, 3), torch.tensor([0, 2]), 3),
                dynamic_shapes=({0: rows}, None, None),
            )
            edge = to_edge(graph)
        else:
            graph = torch.export.export(Double(), (torch.ones(4),))
            edge = to_edge_transform_and_lower(graph, partitioner=[XnnpackPartitioner()])
        path.write_bytes(edge.to_executorch().buffer)
        return path

    return made


def read_by_executorch(path: Path) -> dict[str, Any]:
    """The same as :func:`read_program`, by ExecuTorch's own deserializer."""
    from executorch.exir import schema
    from executorch.exir._serialize._program import deserialize_pte_binary

    def meta(tensor: schema.Tensor) -> TensorMeta:
        return TensorMeta(dtype_name(int(tensor.scalar_type)), tuple(tensor.dim_order))

    calls, delegates, inputs = [], Counter[str](), {}
    for plan in deserialize_pte_binary(path.read_bytes()).program.execution_plan:
        values = [each.val for each in plan.values]

        def argument(place: int, values: list[Any] = values) -> Argument:
            value = values[place]
            if isinstance(value, schema.TensorList | schema.OptionalTensorList):
                return tuple(meta(values[each]) for each in value.items if each >= 0)
            return meta(value) if isinstance(value, schema.Tensor) else None

        for instruction in (each for chain in plan.chains for each in chain.instructions):
            call = instruction.instr_args
            if isinstance(call, schema.KernelCall):
                operator = plan.operators[call.op_index]
                name = ".".join(filter(None, (operator.name, operator.overload)))
                form = CallForm(name, tuple(argument(each) for each in call.args))
                calls.append(KernelCall(form, plan.name))
            elif isinstance(call, schema.DelegateCall):
                delegates[plan.delegates[call.delegate_index].id] += 1
        inputs[plan.name] = tuple(
            ProgramInput(meta(value), tuple(value.sizes), value.shape_dynamism.value != 0)
            if isinstance(value, schema.Tensor)
            else None
            for value in (values[place] for place in plan.inputs)
        )
    return {"calls": calls, "delegates": delegates, "inputs": inputs}


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


def test_the_command_imports_no_exporter(sums: Path) -> None:
    imported = imported_by("-m", "opsmith", "executorch", "select", sums)
    assert "opsmith.executorch.program" in imported
    assert imported & {"torch", "torchgen.model", "executorch.exir", "numpy"} == set()


def test_what_is_no_program_is_refused(sums: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    assert refusal(FileMissing, read_program, path) == (
        f"the program `{path}` cannot be read: No such file or directory\n"
        "  remedy: name a .pte file, such as ExecutorchProgramManager.save() writes"
    )
    path.write_text("a program")
    assert refusal(ProgramInvalid, read_program, path) == (
        f"`{path}` is no program of ExecuTorch: it does not begin as one does\n"
        "  remedy: export it anew; ExecutorchProgramManager.save() writes one"
    )
    whole = sums.read_bytes()
    for length in range(16, len(whole) // 2, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ProgramInvalid, match=r"is no program of ExecuTorch: "):
            read_program(path)


def test_a_program_without_the_last_of_its_weights_is_refused(
    save: Callable[..., Path], tmp_path: Path
) -> None:
    whole = save("linear", nn.Linear(4, 4), torch.ones(1, 4)).read_bytes()
    path = tmp_path / "model.pte"
    path.write_bytes(whole[:-1])
    with pytest.raises(
        ProgramInvalid, match=f"it ends after {len(whole) - 1:,} of {len(whole):,} bytes"
    ):
        read_program(path)


def test_a_damaged_program_is_refused_or_read(sums: Path, tmp_path: Path) -> None:
    path, whole = tmp_path / "model.pte", sums.read_bytes()
    refused = 0
    for place in range(40, len(whole), 7):
        for value in (0x00, 0x7F, 0xFF):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                read_program(path)
            except ProgramInvalid:
                refused += 1
    assert refused > 100
