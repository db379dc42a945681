"""Layers with packed weights in exported programs: which, what becomes part of them, how images lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from executorch_programs import export
from opsmith.executorch.export import Exported, ExportPass
from opsmith.executorch.program import read_program

CONVOLUTION, LINEAR = "optimized::convolution_packed.out", "optimized::linear_packed.out"
COPY = "dim_order_ops::_clone_dim_order.out"


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "backend.yaml"
    path.write_text("backend: packed\ndriver: sim\nlibraries: [optimized, portable, dim_order]\n")
    return path


def exported(module: nn.Module, x: Tensor, backend: Path, **options: Any) -> Exported:
    return export(module.eval(), (x,), backend.parent / "program.pte", backend, **options)


def operators(program: Exported) -> list[str]:
    return [call.form.operator for call in read_program(program.program).calls]


class Residual(nn.Module):
    """Convolutions of each kind, with all that a layer takes in."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.Hardswish(inplace=True),
        )
        self.depthwise = nn.Sequential(nn.Conv2d(16, 16, 5, padding=2, groups=16), nn.ReLU6())
        self.pointwise = nn.Conv2d(16, 16, 1)
        self.head = nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = functional.relu(self.pointwise(self.depthwise(x)) + x, inplace=True)
        x = functional.adaptive_avg_pool2d(functional.max_pool2d(x, 2), 1)
        result: Tensor = self.head(x.flatten(1))
        return result


IMAGE = torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)


def test_layers_are_packed_with_what_follows_them(backend: Path) -> None:
    program = exported(Residual(), IMAGE, backend)
    assert operators(program) == [
        *[CONVOLUTION] * 3,
        "aten::max_pool2d_with_indices.out",
        "aten::mean.out",
        *[LINEAR] * 2,
    ]
    assert (program.packed, program.fused, program.folded) == (5, 5, 1)
    forms = {each.form.operator: each.form for each in program.forms}
    assert forms["aten::max_pool2d_with_indices.out"].tensors[0].dim_order == (0, 2, 3, 1)


def test_each_step_can_be_left_out(backend: Path) -> None:
    def calls(*without: ExportPass) -> list[str]:
        return operators(exported(Residual(), IMAGE, backend, without=without))

    unfused = calls(ExportPass.FUSE_ACTIVATIONS)
    assert (unfused.count(CONVOLUTION), unfused.count(LINEAR)) == (3, 2)
    assert {"aten::hardswish.out", "aten::add.out", "aten::relu.out", "aten::gelu.out"} < {*unfused}
    contiguous = calls(ExportPass.CHANNELS_LAST)
    assert (contiguous.count("aten::convolution.out"), contiguous.count(LINEAR)) == (3, 2)
    plain = calls(ExportPass.PACK_WEIGHTS)
    assert (plain.count("aten::convolution.out"), plain.count("aten::linear.out")) == (3, 2)


class Kept(nn.Module):
    """Layers that stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 6), nn.Linear(6, 20, bias=False)
        self.head.weight = self.embedding.weight  # read by both
        self.rows = nn.Conv1d(6, 6, 3)
        self.even = nn.Conv2d(1, 8, 2, padding="same")
        self.grouped = nn.Conv2d(8, 8, 3, groups=4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(x)
        images = self.grouped(self.even(x[:, None]))
        return self.head(x), self.rows(x.transpose(1, 2)).sum() + images


def test_layers_that_are_not_packed(backend: Path) -> None:
    program = exported(Kept(), torch.arange(18).view(2, 9), backend)
    assert program.packed == 0
    assert not {CONVOLUTION, LINEAR} & {*operators(program)}


class Read(nn.Module):
    """Layers and what follows them, where something else reads or writes the result in between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(3, 8, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        twice = self.first(x)
        image = x * 2
        written = self.second(image)
        image.add_(1)
        broadcast = self.third(x) + x.mean()
        return functional.relu(twice) + twice + functional.relu(written) + broadcast + image.sum()


def test_what_something_else_reads_or_writes_stays_apart(backend: Path) -> None:
    program = exported(Read(), IMAGE, backend)
    assert (program.packed, program.fused) == (3, 0)
    assert operators(program).count("aten::relu.out") == 2
    assert operators(program)[-1] == COPY  # for the program's caller


class Mixed(nn.Module):
    """Images that meet others and what depends on the order of their elements."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)
        self.shift = nn.Parameter(torch.randn(8, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return (y * self.shift).flatten(2).softmax(-1), y + torch.ones_like(x[:, :1])


def test_images_are_contiguous_for_what_sees_their_order(backend: Path) -> None:
    program = exported(Mixed(), IMAGE, backend)
    orders = {
        each.form.operator: [meta.dim_order for meta in each.form.tensors]
        for each in program.forms
        if each.form.operator in ("aten::mul.out", "aten::add.out")
    }
    assert orders["aten::mul.out"][0] == (0, 2, 3, 1)
    assert orders["aten::add.out"][0] == (0, 1, 2, 3)
    assert operators(program).count(COPY) == 2


class NormOfPixels(nn.Module):
    """As in ConvNeXt: of an image that comes from a permutation, eager's convolutions are channels-last."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 2), nn.Conv2d(8, 8, 1)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.first(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        result: Tensor = (
            self.norm(self.second(y).permute(0, 2, 3, 1)) + x.permute(0, 2, 3, 1).mean()
        )
        return result


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_permutations_read_contiguous_images(backend: Path, layout: torch.memory_format) -> None:
    program = exported(NormOfPixels(), IMAGE.to(memory_format=layout), backend)
    orders = [
        list(meta.dim_order)
        for call in read_program(program.program).calls
        for meta in call.form.tensors
        if call.form.operator == "aten::permute_copy.out"
    ]
    assert orders and all(order == sorted(order) for order in orders)


def test_results_lie_as_the_module_lays_them(backend: Path) -> None:
    """Channels-last where its input is, and where it asks for that."""
    image = IMAGE.to(memory_format=torch.channels_last)
    assert operators(exported(nn.Conv2d(3, 8, 1), image, backend)) == [CONVOLUTION]
    assert operators(exported(nn.Conv2d(3, 8, 1), IMAGE, backend)) == [CONVOLUTION, COPY]


def test_sizes_that_change(backend: Path) -> None:
    rows = {0: torch.export.Dim("rows", max=7)}
    program = exported(
        nn.Sequential(nn.Linear(6, 3), nn.SiLU()), torch.ones(2, 6), backend, dynamic_shapes=(rows,)
    )
    assert operators(program) == [LINEAR]


def test_a_backend_without_the_kernels(tmp_path: Path) -> None:
    path = tmp_path / "backend.yaml"
    path.write_text("backend: plain\ndriver: sim\nlibraries: [portable]\n")
    program = exported(nn.Linear(6, 3), torch.ones(2, 6), path)
    assert (program.packed, operators(program)) == (0, ["aten::linear.out"])
