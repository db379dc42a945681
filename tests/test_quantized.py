"""The quantized library: on a device, see ``quantized_backend/check_quantized.py``, and in ExecuTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apart import run_apart
from command import run_opsmith

BACKEND = Path(__file__).parent / "quantized_backend" / "backend.yaml"

pytest.importorskip("executorch")


@pytest.mark.parametrize("instruction_set", ["baseline", "avx2", ""])
def test_quantized_kernels_on_a_device(instruction_set: str) -> None:
    run_apart("quantized_backend/check_quantized.py", OPSMITH_ISA=instruction_set)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    run_opsmith("executorch", "build", str(BACKEND), "-o", str(folder))
    (built,) = folder.glob("*.so")
    return built


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_model_that_pt2e_has_quantized_in_executorch(
    name: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    program = tmp_path / f"{name}.pte"
    exported = run_opsmith(
        "executorch", "export", f"quantized_models:{name}", "-o", str(program), "--backend", str(BACKEND)
    )  # fmt: skip
    assert program.exists(), exported
    run = run_opsmith("executorch", "run", str(program), "--library", str(library), "--json")
    result = json.loads(run.stdout.strip().splitlines()[-1])
    assert result["max_difference_from_eager"] <= 1e-5
    quantized = {
        operator: server
        for operator, server in result["served_by"].items()
        if operator.startswith("quantized_decomposed::")
    }
    assert quantized == {
        "quantized_decomposed::quantize_per_tensor.out": "quantized",
        "quantized_decomposed::dequantize_per_tensor.out": "quantized",
        "quantized_decomposed::dequantize_per_channel.out": "quantized",
    }
    assert result["served_by"]["aten::linear.out"] == "executorch"
