"""Whole programs in ExecuTorch on the kernel libraries: as eager computes, served by whom it is said."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # as everyone calls it
from torch import Tensor, nn

import fork_server
import quantized_models
from command import run_opsmith
from executorch_programs import build
from opsmith.errors import ProgramInvalid
from opsmith.executorch.build import BuiltLibrary
from opsmith.executorch.export import ExportPass, ModuleToExport, export_program
from opsmith.executorch.program import read_program
from opsmith.executorch.run import run_program

# The first two take what they are written for, the last all of Core ATen.
BACKEND = "backend: {name}\ndriver: sim\nlibraries: {libraries}\n"
COMBINED = "[quantized, optimized, portable]"
TOLERANCE = 2e-6


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


def perceptron() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Perceptron().eval(), (torch.randn(4, 16),)


def cnn() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Cnn().eval(), (torch.randn(2, 3, 16, 16),)


def transformer() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Transformer().eval(), (torch.arange(24).view(2, 12),)


Model = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]

# A model whose activations are quantized ahead, and what it computes on integers.
QUANTIZED = {
    f"quantized_decomposed::{name}.out": "quantized"
    for name in ("quantize_per_tensor", "dequantize_per_tensor")
}
INTEGERS = {
    name: {f"opsmith_quantized::{name}": "quantized"}
    for name in (
        "add_int8.out",
        "conv2d_int8.out",
        "linear_8da4w.out",
        "linear_int8.per_token_out",
        "linear_int8.requantized_out",
        "max_pool2d_int8.out",
    )
}
LIBRARY_OF: dict[Model, dict[str, str]] = {
    # Activations and sums after layers with packed weights are part of these.
    perceptron: {
        "optimized::linear_packed.out": "optimized",
        "aten::native_layer_norm.out": "optimized",
        "aten::_softmax.out": "optimized",
    },
    cnn: {
        "aten::_log_softmax.out": "optimized",
        "aten::max_pool2d_with_indices.out": "optimized",
        "aten::mean.out": "optimized",
        "optimized::convolution_packed.out": "optimized",  # with batch norm folded into it
        "optimized::linear_packed.out": "optimized",
    },
    transformer: {
        "aten::_softmax.out": "optimized",
        "aten::add.out": "optimized",
        "aten::all.out": "portable",
        "aten::bmm.out": "optimized",
        "aten::embedding.out": "portable",
        "aten::eq.Scalar_out": "portable",
        "aten::expand_copy.out": "portable",
        "aten::full_like.out": "portable",
        "aten::mul.Scalar_out": "portable",
        "aten::native_layer_norm.out": "optimized",
        "aten::ones.out": "portable",
        "aten::permute_copy.out": "portable",
        "aten::scalar_tensor.out": "portable",
        "aten::slice_copy.Tensor_out": "portable",
        "aten::squeeze_copy.dims_out": "portable",
        "aten::tril.out": "portable",
        "aten::where.self_out": "optimized",
        "optimized::linear_packed.out": "optimized",
    },
    quantized_models.mlp: {**QUANTIZED, **INTEGERS["linear_int8.requantized_out"]},
    quantized_models.cnn: {
        **QUANTIZED,
        **INTEGERS["conv2d_int8.out"],
        **INTEGERS["linear_int8.requantized_out"],
        **INTEGERS["max_pool2d_int8.out"],
        "aten::mean.out": "optimized",
    },
    quantized_models.residual: {
        **QUANTIZED,
        **INTEGERS["add_int8.out"],
        **INTEGERS["conv2d_int8.out"],
        **INTEGERS["linear_int8.requantized_out"],
        **INTEGERS["max_pool2d_int8.out"],
        "aten::mean.out": "optimized",
    },
    quantized_models.dynamic: {
        "quantized_decomposed::choose_qparams.Tensor_out": "quantized",
        "quantized_decomposed::quantize_per_tensor.Tensor_out": "quantized",
        **INTEGERS["linear_int8.per_token_out"],
        "aten::relu.out": "optimized",
    },
    quantized_models.grouped: {**INTEGERS["linear_8da4w.out"], "aten::relu.out": "optimized"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def backend(folder: Path, name: str, libraries: str) -> Path:
    path = folder / name / "backend.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(BACKEND.format(name=name, libraries=libraries))
    return path


def program(folder: Path, model: Model, description: Path) -> Path:
    torch.manual_seed(0)
    module, inputs = model()
    name = f"{model.__module__}_{model.__name__}"
    what = ModuleToExport(name, module, inputs, {})
    return export_program(what, folder / f"{name}.pte", description).program


def test_a_perceptron_with_the_whole_portable_library(folder: Path) -> None:
    description = backend(folder, "lean", "[portable]")
    path = program(folder, perceptron, description)
    ran = run_program(path, [build(description, folder / "whole").library])
    assert ran.served_by == dict.fromkeys(
        ["aten::linear.out", "aten::gelu.out", "aten::native_layer_norm.out", "aten::_softmax.out"],
        "portable",
    )
    assert ran.difference is not None and ran.difference < TOLERANCE


# A program calls a small part of the libraries; all these programs call a larger one.
OWN_PART, PART_OF_ALL = 0.15, 0.25
# `residual` computes all that the others do: they are nightly.
TOGETHER = [each for each in LIBRARY_OF if each not in (quantized_models.mlp, quantized_models.cnn)]


def name_of(model: Model) -> str:
    return f"{model.__module__}.{model.__name__}"


@pytest.fixture(scope="module")
def combined(folder: Path) -> Path:
    return backend(folder, "combined", COMBINED)


@pytest.fixture(scope="module")
def program_for(folder: Path, combined: Path) -> Callable[[Model], Path]:
    return functools.cache(lambda model: program(folder, model, combined))


@pytest.fixture(scope="module")
def for_all(folder: Path, combined: Path, program_for: Callable[[Model], Path]) -> BuiltLibrary:
    """One library for all of them."""
    return build(combined, folder / "for_all", *map(program_for, TOGETHER))


@functools.cache
def step_of(model: Model) -> float:
    """About a step of the result's quantization, by which roundings may differ."""
    module, inputs = model()
    result = module(*inputs)
    return 1.1 * float(result.max() - result.min()) / 255


def check(model: Model, path: Path, built: BuiltLibrary) -> None:
    """The program computes what eager does, served by whom the table says, and by whom the library says."""
    ran = run_program(path, [built.library])
    tolerance = TOLERANCE
    if model.__module__ == "quantized_models":
        tolerance = step_of(model)
    assert ran.difference is not None and ran.difference < tolerance
    # No library has the operators that dim orders add: the runtime serves them.
    own = {
        name: server
        for name, server in ran.served_by.items()
        if not name.startswith("dim_order_ops::")
    }
    assert own == LIBRARY_OF[model]
    said = {
        each.form.operator: each.kernel.library if each.kernel else "executorch"
        for each in built.forms
    }
    assert ran.served_by == {name: said[name] for name in ran.served_by}


@pytest.mark.usefixtures("runtime_in_forks")
@pytest.mark.parametrize("model", TOGETHER, ids=name_of)
def test_programs_with_one_library(
    model: Model, program_for: Callable[[Model], Path], for_all: BuiltLibrary
) -> None:
    check(model, program_for(model), for_all)
    assert for_all.text < PART_OF_ALL * for_all.full_text


def test_quantized_layers_may_stay_as_they_are(folder: Path, combined: Path) -> None:
    """Without the pass, the graph's own operators are called, on floats between."""
    module, inputs = quantized_models.cnn()
    what = ModuleToExport("cnn", module, inputs, {})
    path = folder / "unfused.pte"
    exported = export_program(what, path, combined, without=[ExportPass.FUSE_QUANTIZED])
    assert exported.quantized == 0
    operators = {each.form.operator for each in exported.forms}
    assert not any(name.startswith("opsmith_quantized") for name in operators)
    assert {"aten::max_pool2d_with_indices.out", *QUANTIZED} <= operators
    unfused_bytes = read_program(path).data.total
    fused = export_program(what, path, combined)
    assert fused.quantized == 4
    # Weights are there once, packed: filled up with zeros, beside their sums.
    assert read_program(path).data.total < 1.5 * unfused_bytes


def test_what_no_kernel_takes_of_torchao_is_refused(folder: Path, combined: Path) -> None:
    module, inputs = quantized_models.eight_bits()
    what = ModuleToExport("eight_bits", module, inputs, {})
    with pytest.raises(ProgramInvalid) as refused:
        export_program(what, folder / "eight_bits.pte", combined)
    first, *places, remedy = str(refused.value).splitlines()
    assert first == "ExecuTorch cannot lower `eight_bits`: RuntimeError"
    assert any("node torchao_choose_qparams_affine_default, " in line for line in places)
    assert remedy == (
        "  remedy: torchao's operators run in no program, but layers of "
        "Int8DynamicActivationIntxWeightConfig with weights of torch.int4, symmetric, and asymmetric "
        "activations become opsmith_quantized::linear_8da4w: where `libraries` has quantized, and without "
        "`--without fuse-quantized`"
    )
    assert not (folder / "eight_bits.pte").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("model", LIBRARY_OF, ids=name_of)
def test_a_program_with_a_library_of_its_own(
    model: Model, program_for: Callable[[Model], Path], folder: Path, combined: Path
) -> None:
    path = program_for(model)
    built = build(combined, folder / path.stem, path)
    check(model, path, built)
    assert built.text < OWN_PART * built.full_text


PACKED = """
import torch
from opsmith.executorch.transforms.packed_linear import pack_linear_layers


def packed():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(24, 40), torch.nn.ReLU(), torch.nn.Linear(40, 5)]
    model = torch.nn.Sequential(*layers)
    assert pack_linear_layers(model) == 2
    return model, (torch.linspace(-1, 1, 72).view(3, 24),)
"""


FUSED = """
import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 40, bias=False), torch.nn.Linear(40, 16)
        self.weight, self.bias = torch.nn.Parameter(torch.rand(16)), torch.nn.Parameter(torch.rand(40))
        angles = torch.arange(5.0)[:, None, None] * 0.3 ** torch.arange(4)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x, residual):
        ours = torch.ops.optimized
        x = ours.rope(x.unflatten(-1, (2, 8)), self.cos, self.sin, True).flatten(-2)
        normed, residual = ours.add_rms_norm(x, residual, [16], self.weight)
        x = self.down(ours.bias_gelu(self.up(normed), self.bias, "tanh"))
        return ours.add_layer_norm(x, residual, [16], self.weight)


def layer():
    torch.manual_seed(0)
    return Layer(), (torch.randn(2, 5, 16), torch.randn(2, 5, 16))
"""


def served_in_a_program(folder: Path, source: str, name: str, *options: str) -> dict[str, object]:
    """The report of ``opsmith executorch run`` on a module that calls the library's own operators.

    ``options`` are the export's. PyTorch knows these when the backend is loaded: that is the commands' to do.
    """
    (folder / "models.py").write_text(source)
    steps = (
        ("export", f"models:{name}", "-o", "program.pte", "--backend", "sim", *options),
        ("build", "sim", "--for", "program.pte", "-o", "built"),
        ("run", "program.pte", "--library", "built", "--json"),
    )
    for step in steps:
        done = run_opsmith("executorch", *step, cwd=folder)
        assert done.returncode == 0, done.stderr
    assert "at most from eager on sim\n" in done.stdout
    ran: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return ran


def test_packed_linear_layers(sim: object, tmp_path: Path) -> None:
    ran = served_in_a_program(tmp_path, PACKED, "packed")
    assert ran["served_by"] == {
        "optimized::linear_packed.out": "optimized",
        "aten::relu.out": "optimized",
    }
    assert ran["max_difference_from_eager"] == 0


def test_fused_operators(sim: object, tmp_path: Path) -> None:
    # Packed, its linear layers would add up in another order than eager's.
    ran = served_in_a_program(tmp_path, FUSED, "layer", "--without", "pack-weights")
    served = ran["served_by"]
    assert isinstance(served, dict)
    names = ("rope", "add_rms_norm", "bias_gelu", "add_layer_norm")
    assert {
        name: library for name, library in served.items() if "::" in name and "aten" not in name
    } == {f"optimized::{name}.out": "optimized" for name in names}
    assert ran["max_difference_from_eager"] == 0


# Not compared with eager, which would bring ExecuTorch's own kernels for it into the runtime.
DECODER = """
import torch


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randint(0, 256, (10, 16)).to(torch.uint8))
        self.register_buffer("scales", torch.rand(10, 1) * 0.1)
        self.register_buffer("keys", torch.randn(1, 16, 2, 8))
        self.register_buffer("values", torch.randn(1, 16, 2, 8))
        self.qkv = torch.nn.Linear(32, 64, bias=False)

    def forward(self, tokens):
        ours, quantized = torch.ops.llama, torch.ops.quantized_decomposed
        x = quantized.embedding_4bit(self.weight, self.scales, None, -8, 7, tokens)
        q, k, v = (each.contiguous() for each in self.qkv(x).unflatten(-1, (8, 8)).split((4, 2, 2), 2))
        ours.update_cache(k, self.keys, 4)
        ours.update_cache(v, self.values, 4)
        return ours.custom_sdpa(q, self.keys, self.values, 4, None, 0.0, True)

    def expected(self, tokens):
        rows = torch.stack([self.weight >> 4, self.weight & 15], -1).flatten(1).float() - 8
        x = (rows * self.scales)[tokens]
        q, k, v = self.qkv(x).unflatten(-1, (8, 8)).split((4, 2, 2), 2)
        k = torch.cat([self.keys[:, :4], k], 1).repeat_interleave(2, 2)
        v = torch.cat([self.values[:, :4], v], 1).repeat_interleave(2, 2)
        mask = torch.ones(3, 7, dtype=torch.bool).tril(4)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2)


def decoder():
    torch.manual_seed(0)
    return Decoder().eval(), (torch.tensor([[3, 9, 0]]),)
"""


EXECUTE = """
import sys, torch
from opsmith.executorch import load_library, read_program
from executorch.runtime import Runtime

program, library = sys.argv[1:]
load_library(library, [read_program(program)])
method = Runtime.get().load_program(program).load_method("forward")
torch.save(method.execute(torch.load("inputs.pt")), "outputs.pt")
"""


@pytest.mark.nightly
def test_a_step_of_a_language_model(tmp_path: Path) -> None:
    backend(tmp_path, "llmchip", "[llm]")
    (tmp_path / "models.py").write_text(DECODER)
    description = "llmchip/backend.yaml"
    for step in (
        ("export", "models:decoder", "-o", "program.pte", "--backend", description),
        ("build", description, "--for", "program.pte", "-o", "built"),
    ):
        done = run_opsmith("executorch", *step, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location("models", tmp_path / "models.py")
    assert spec is not None and spec.loader is not None
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    model, inputs = models.decoder()
    torch.save(inputs, tmp_path / "inputs.pt")
    (tmp_path / "program.pt2").unlink()
    ran = run_program(tmp_path / "program.pte", [tmp_path / "built"], inputs=tmp_path / "inputs.pt")
    assert {name for name, server in ran.served_by.items() if server == "llm"} == {
        "llama::update_cache.out",
        "llama::custom_sdpa.out",
        "quantized_decomposed::embedding_4bit.out",
    }
    (library,) = (tmp_path / "built").iterdir()
    command = [sys.executable, "-W", "ignore", "-c", EXECUTE, "program.pte", library]
    done = fork_server.run(command, imports=fork_server.EXECUTORCH, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (value,) = torch.load(tmp_path / "outputs.pt")
    with torch.no_grad():
        torch.testing.assert_close(value, model.expected(*inputs), rtol=1e-4, atol=1e-5)
