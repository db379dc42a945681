"""``opsmith executorch export``: what is kept whole, what is kept beside the program, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch import Tensor, nn

from command import run_opsmith
from executorch_chip import write_chip
from executorch_programs import Silu, Small, export, matrices
from opsmith.errors import InputsRejected, OperatorsUnserved, OutputRejected, ProgramInvalid
from opsmith.executorch.export import Exported, ExportPass
from opsmith.executorch.program import read_program
from opsmith.executorch.run import run_program
from refusal import refusal

MODELS = '''
import torch
from torch import nn


def perceptron():
    """A module with its example inputs."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)]
    return nn.Sequential(*layers), (torch.ones(3, 4),)


def rows():
    """One whose inputs may have up to five rows."""
    return nn.Linear(4, 2), (torch.ones(3, 4),), ({0: torch.export.Dim("rows", max=5)},)
'''


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chip(tmp_path_factory.mktemp("export"))


def operators(exported: Exported) -> list[str]:
    return [call.form.operator for call in read_program(exported.program).calls]


def test_linear_is_not_decomposed(chip: Path, tmp_path: Path) -> None:
    exported = export(nn.Linear(4, 2), matrices(1), tmp_path / "linear.pte", chip)
    assert operators(exported) == ["aten::linear.out"]
    assert exported.preserved == ("linear",)


def test_what_a_library_has_a_kernel_for_is_not_decomposed(chip: Path, tmp_path: Path) -> None:
    exported = export(Silu(), matrices(1), tmp_path / "silu.pte", chip)
    assert operators(exported) == ["aten::silu.out"]
    assert exported.preserved == ("silu",)
    assert [
        (each.form.operator, each.kernel.library) for each in exported.forms if each.kernel
    ] == [("aten::silu.out", "plain")]


def test_what_no_kernel_takes_is_decomposed_after_all(chip: Path, tmp_path: Path) -> None:
    doubles = matrices(1, torch.float64)
    exported = export(Silu(), doubles, tmp_path / "silu.pte", chip)
    assert operators(exported) == ["aten::sigmoid.out", "aten::mul.out"]
    assert exported.preserved == ()


def test_the_example_inputs_are_kept_beside_the_program(chip: Path, tmp_path: Path) -> None:
    inputs = matrices()
    exported = export(Small(), inputs, tmp_path / "small.pte", chip)
    assert (exported.program, exported.graph) == (tmp_path / "small.pte", tmp_path / "small.pt2")
    kept = torch.export.load(exported.graph)
    assert kept.example_inputs is not None
    for mine, theirs in zip(kept.example_inputs[0], inputs, strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(kept.module()(*inputs), inputs[0] + inputs[1])


class Normed(nn.Module):
    """Convolutions with batch norm: of all kinds that are folded, and one whose result is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.grouped = nn.Sequential(
            nn.Conv2d(8, 8, 3, groups=8, padding="same"), nn.BatchNorm2d(8, affine=False)
        )
        self.bare = nn.Sequential(nn.Conv2d(8, 4, 1, bias=False), nn.BatchNorm2d(4, affine=False))
        self.conv, self.norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        for each in self.modules():
            if isinstance(each, nn.BatchNorm2d):
                for value in (each.running_mean, each.weight, each.bias):
                    if value is not None:
                        nn.init.normal_(value)
                nn.init.uniform_(each.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(self.bare(self.grouped(self.plain(x))))
        result: Tensor = self.norm(x) + x
        return result


def test_batch_norm_is_folded_into_convolutions(chip: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, image = Normed().eval(), torch.randn(2, 3, 8, 8)
    expected, weights = module(image), {name: x.clone() for name, x in module.state_dict().items()}
    program = tmp_path / "normed.pte"
    exported = export(module, (image,), program, chip)
    assert exported.folded == 3
    norms = [name for name in operators(exported) if "batch_norm" in name]
    assert len(norms) == 1
    ran = run_program(program)
    assert ran.difference is not None and ran.difference < 1e-5
    # The module, and the graph that is kept, are as they were.
    assert torch.equal(module(image), expected)
    assert all(torch.equal(weights[name], x) for name, x in module.state_dict().items())
    left = export(module, (image,), program, chip, without=[ExportPass.FOLD_BATCH_NORM])
    assert (left.folded, len([x for x in operators(left) if "batch_norm" in x])) == (0, 4)
    assert read_program(program).data.total > 0


def test_what_is_kept_whole_can_be_decomposed(chip: Path, tmp_path: Path) -> None:
    exported = export(
        Silu(), matrices(1), tmp_path / "silu.pte", chip, without=[ExportPass.KEEP_WHOLE]
    )
    assert operators(exported) == ["aten::sigmoid.out", "aten::mul.out"]


def test_channels_last_inputs_keep_their_dim_order(chip: Path, tmp_path: Path) -> None:
    image = torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last)
    exported = export(nn.ReLU(), (image,), tmp_path / "image.pte", chip)
    (call,) = read_program(exported.program).calls
    assert {meta.dim_order for meta in call.form.tensors} == {(0, 2, 3, 1)}


def test_the_command(chip: Path) -> None:
    (chip.parent / "models.py").write_text(MODELS)
    done = run_opsmith(
        "executorch", "export", "models:perceptron", "-o", "model.pte", "--backend", chip, "--json",
        cwd=chip.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["exporting models:perceptron", "lowering it to ExecuTorch"]
    *_, program, graph, last = done.stdout.splitlines()
    assert (program, graph) == ("program  model.pte", "graph    model.pt2")
    report = json.loads(last)
    assert {each["operator"]: each["library"] for each in report["forms"]} == {
        "aten::linear.out": "executorch",
        "aten::relu.out": "plain",
    }
    assert report["program"] == "model.pte"
    assert report["graph"] == "model.pt2"


def test_a_factory_may_say_which_sizes_change(chip: Path) -> None:
    (chip.parent / "models.py").write_text(MODELS)
    done = run_opsmith(
        "executorch", "export", "models:rows", "-o", "rows.pte", "--backend", chip, cwd=chip.parent
    )
    assert done.returncode == 0, done.stderr
    (taken,) = read_program(chip.parent / "rows.pte").inputs["forward"]
    assert taken is not None
    assert (taken.sizes, taken.dynamic) == ((5, 4), True)


# ---- what is refused


def test_inputs_in_an_order_that_executorch_does_not_take(chip: Path, tmp_path: Path) -> None:
    x = torch.randn(4, 3).t()
    with pytest.raises(InputsRejected) as refused:
        export(Small(), (matrices(1)[0], x), tmp_path / "small.pte", chip)
    assert str(refused.value) == (
        "example input 1 of `Small` has the strides [1, 3], and ExecuTorch takes contiguous and "
        "channels-last Tensors only\n"
        "  remedy: give x.contiguous(): a program keeps the layout of its example inputs"
    )
    assert not (tmp_path / "small.pte").exists()


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x


def test_a_module_that_cannot_be_exported(chip: Path, tmp_path: Path) -> None:
    with pytest.raises(ProgramInvalid) as refused:
        export(Branching(), matrices(1), tmp_path / "branching.pte", chip)
    said = str(refused.value).splitlines()
    assert said[0].startswith("torch.export cannot export `Branching`: ")
    assert said[-1] == "  remedy: mend the module until torch.export.export(module, inputs) works"


class Erring(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.special.bessel_j0(x)
        return torch.cond(x.sum() > 0, torch.special.bessel_j1, torch.neg, (y,))


def test_a_call_that_nobody_serves(chip: Path, tmp_path: Path) -> None:
    """With the graph's node and the line of Python, of branches too; and no file is written."""
    program = tmp_path / "erring.pte"
    said = refusal(OperatorsUnserved, export, Erring(), matrices(1), program, chip)
    lines = said.splitlines()
    assert lines[0] == (
        "`Erring` calls operators for which neither a library of `chip` nor ExecuTorch 1.4.1 has a kernel:"
    )
    floats = "Float(0,1) Float(0,1) Float(0,1)"
    first = Erring.forward.__code__.co_firstlineno + 1
    assert lines[1:3] == [
        f"  aten::special_bessel_j0.out {floats}: no library has a kernel for it",
        f"    node aten_special_bessel_j0_default, {__file__}:{first}: y = torch.special.bessel_j0(x)",
    ]
    assert lines[3] == f"  aten::special_bessel_j1.out {floats}: no library has a kernel for it"
    assert lines[4].startswith("    node aten_special_bessel_j1_default")
    assert lines[5:] == [
        "  remedy: write it with others, or add a kernel to a library; where a library of your own will "
        "serve it: --allow-unserved"
    ]
    assert not program.exists()
    written = export(Erring(), matrices(1), program, chip, allow_unserved=True)
    assert program.exists() and not all(each.is_served for each in written.forms)


def test_an_operator_without_an_out_variant(chip: Path, tmp_path: Path) -> None:
    library = torch.library.Library("outless", "DEF")
    library.define("twice(Tensor self) -> Tensor")
    library.impl("twice", lambda self: self * 2, "CompositeExplicitAutograd")

    class Outless(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = torch.ops.outless.twice(x)
            return result

    said = refusal(ProgramInvalid, export, Outless(), matrices(1), tmp_path / "out.pte", chip)
    assert "Missing out variants: {'outless::twice'}" in said
    line = Outless.forward.__code__.co_firstlineno + 1
    assert f"outless_twice_default, {__file__}:{line}: result: Tensor = torch.ops.outless" in said


def test_a_buffer_is_written_by_a_layer_with_trained_parameters(chip: Path, tmp_path: Path) -> None:
    class Cache(nn.Module):
        last: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.register_buffer("last", torch.zeros(3, 2))

        def forward(self, x: Tensor) -> Tensor:
            self.last.copy_(self.layer(x))
            return self.last + 0

    exported = export(Cache(), (torch.ones(3, 4),), tmp_path / "cache.pte", chip)
    assert {"aten::linear.out", "aten::copy_"} <= set(operators(exported))


def test_shifts_are_called_by_the_names_that_have_kernels(chip: Path, tmp_path: Path) -> None:
    class Shifts(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x = x << 2
            x >>= 1
            return (x << y) >> y

    inputs = (torch.tensor([1, 2, -3]), torch.tensor([0, 3, 1]))
    exported = export(Shifts(), inputs, tmp_path / "shifts.pte", chip, allow_unserved=True)
    assert operators(exported) == [
        "aten::bitwise_left_shift.Tensor_Scalar_out",
        "aten::bitwise_right_shift.Tensor_Scalar_out",
        "aten::bitwise_left_shift.Tensor_out",
        "aten::bitwise_right_shift.Tensor_out",
    ]
    graph = torch.export.load(exported.graph).module()
    torch.testing.assert_close(graph(*inputs), Shifts()(*inputs))


def test_where_it_cannot_be_written(chip: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputRejected) as refused:
        export(Small(), matrices(), tmp_path / "none" / "small.pte", chip)
    assert str(refused.value) == (
        f"`{tmp_path}/none/small.pte` cannot be written: No such file or directory\n"
        "  remedy: name a file in a folder of yours"
    )
    with pytest.raises(ProgramInvalid) as clash:
        export(Small(), matrices(), tmp_path / "small.pt2", chip)
    assert str(clash.value) == dedent(f"""\
        `{tmp_path}/small.pt2` is to hold the exported graph, and cannot be the program too
          remedy: name it small.pte""")
