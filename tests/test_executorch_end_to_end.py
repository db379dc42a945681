"""Whole programs in ExecuTorch on the portable kernels: as eager computes, served by whom it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # as everyone calls it
from torch import Tensor, nn

from executorch_programs import build, export
from opsmith.executorch.run import run_program

BACKEND = "backend: lean\ndriver: sim\nlibraries: [portable]\n"
TOLERANCE = 2e-6

# Of what dim orders make of an operator the portable library has nothing: the runtime serves it.
PORTABLE = dict.fromkeys(
    [
        "aten::_log_softmax.out",
        "aten::_native_batch_norm_legit_no_training.out",
        "aten::_softmax.out",
        "aten::add.out",
        "aten::bmm.out",
        "aten::convolution.out",
        "aten::embedding.out",
        "aten::gelu.out",
        "aten::linear.out",
        "aten::max_pool2d_with_indices.out",
        "aten::mean.out",
        "aten::native_layer_norm.out",
        "aten::permute_copy.out",
        "aten::relu.out",
        "aten::where.self_out",
    ],
    "portable",
)


class Perceptron(nn.Sequential):
    def __init__(self) -> None:
        layers = [nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8), nn.Softmax(-1)]
        super().__init__(*layers)


class Cnn(nn.Module):
    """Two convolutions, a batch norm and a pool, with a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.head(self.features(x).flatten(1)), -1)


class Block(nn.Module):
    """Causal attention with four heads, and a perceptron, both with their norms before them."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, length, 3, 4, width // 4)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(64, 32), nn.Parameter(torch.randn(16, 32))
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 64, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "backend.yaml").write_text(BACKEND)
    return folder


def program(folder: Path, module: type[nn.Module], *inputs: Tensor) -> Path:
    torch.manual_seed(0)
    path = folder / f"{module.__name__.lower()}.pte"
    return export(module(), inputs, path, folder / "backend.yaml").program


def test_a_perceptron_with_the_whole_library(folder: Path) -> None:
    path = program(folder, Perceptron, torch.randn(4, 16))
    ran = run_program(path, [build(folder / "backend.yaml", folder / "whole").library])
    assert ran.served_by == dict.fromkeys(
        [
            "aten::linear.out",
            "aten::gelu.out",
            "aten::native_layer_norm.out",
            "aten::_softmax.out",
        ],
        "portable",
    )
    assert ran.difference is not None and ran.difference < TOLERANCE


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (Cnn, torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))),
        (Transformer, torch.arange(24).view(2, 12)),
    ],
    ids=["cnn", "transformer"],
)
def test_a_program_with_a_library_of_its_own(
    folder: Path, module: type[nn.Module], inputs: Tensor
) -> None:
    path = program(folder, module, inputs)
    built = build(folder / "backend.yaml", folder / module.__name__, path)
    ran = run_program(path, [built.library])
    assert ran.difference is not None and ran.difference < TOLERANCE
    known = {operator: name for operator, name in ran.served_by.items() if operator in PORTABLE}
    assert known == {operator: "portable" for operator in known} and len(known) >= 7
    others = {operator for operator, name in ran.served_by.items() if name != "portable"}
    assert all(operator.startswith("dim_order_ops::") for operator in others)
    # What the library says that it serves is what ran, and it is a small part of the whole.
    said = {
        each.form.operator: each.kernel.library if each.kernel else "executorch"
        for each in built.forms
    }
    assert ran.served_by == said
    assert built.text < 0.15 * built.full_text
