"""Whole quantized models on a device with the quantized library: as eager computes on the CPU.

In ExecuTorch: ``test_executorch_end_to_end.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
import quantized_models
from fell_back import fell_back
from opsmith.errors import OperatorUnknown
from opsmith.executorch.transforms.grouped_linear import fuse_8da4w_linear, packed_grouped_weight
from opsmith.executorch.transforms.int8_layers import fuse_int8_layers
from opsmith.executorch.transforms.int8_linear import fuse_int8_linear
from opsmith.executorch.transforms.int8_packing import packed_int8_kernel, packed_int8_weight
from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"))

DEVICE = "quantsim"


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    module, _ = quantized_models.mlp()
    # Asked first, when no backend is loaded.
    assert refusal(OperatorUnknown, lambda: fuse_int8_linear(module)) == (
        "no backend that is loaded has `opsmith_quantized::linear_int8`\n"
        "  remedy: add `quantized` to the `libraries` of its backend.yaml, and opsmith.load() it first"
    )
    opsmith.load(str(Path(__file__).with_name("backend.yaml")))


@pytest.fixture
def fallbacks() -> Iterator[Callable[[], set[str]]]:
    """The operators that ran on the CPU since the test began."""
    start = opsmith.fallbacks()
    yield lambda: fell_back(opsmith.fallbacks(since=start))


def there(value: Any) -> Any:
    return value.to(DEVICE) if isinstance(value, Tensor) else value


def check(module: torch.nn.Module, inputs: tuple[Any, ...], expected: Tensor) -> None:
    """``module`` on the device gives ``expected``, within a step of its quantization."""
    result = module(*map(there, inputs))
    assert result.device.type == DEVICE
    assert result.stride() == expected.stride()
    step = 1.1 * float(expected.max() - expected.min()) / 255
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=step)


# `residual` computes all that the first two do.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mlp", marks=pytest.mark.nightly),
        pytest.param("cnn", marks=pytest.mark.nightly),
        "residual",
        "dynamic",
    ],
)
def test_a_model_that_pt2e_has_quantized(name: str, fallbacks: Callable[[], set[str]]) -> None:
    model, inputs = getattr(quantized_models, name)()
    expected = model(*inputs).detach()
    moved = model.to(DEVICE)
    ours = moved(*map(there, inputs))
    assert ours.device.type == DEVICE
    torch.testing.assert_close(ours.cpu(), expected, rtol=1e-4, atol=1e-4)
    assert fallbacks() and not any("quantized" in operator for operator in fallbacks())
    layers = {"mlp": 2, "cnn": 4, "residual": 8, "dynamic": 2}
    assert fuse_int8_layers(moved) == layers[name]
    check(moved, inputs, expected)
    code = str(moved.code)
    assert not any(name in code for name in ("aten.linear", "aten.conv2d", "aten.max_pool2d"))


def test_linear_layers_alone() -> None:
    model, inputs = quantized_models.cnn()
    expected = model(*inputs).detach()
    moved = model.to(DEVICE)
    assert fuse_int8_linear(moved) == 1
    check(moved, inputs, expected)
    assert "conv2d_int8" not in str(moved.code)


def test_a_model_that_torchao_has_quantized(fallbacks: Callable[[], set[str]]) -> None:
    model, inputs = quantized_models.grouped()
    expected = model(*inputs).detach()
    module = torch.export.export(model, inputs).module()
    assert fuse_8da4w_linear(module) == 2
    check(module.to(DEVICE), inputs, expected)
    assert not any("quantized" in operator for operator in fallbacks())


def test_what_cannot_be_packed() -> None:
    floats = torch.ones(4, 8)
    assert refusal(ValueError, lambda: packed_int8_weight(floats)) == (
        "a weight to pack is [features, depth] of int8, not [4, 8] of torch.float32"
    )
    kernel = torch.ones(4, 2, 3, 3, dtype=torch.int8)
    assert refusal(ValueError, lambda: packed_int8_kernel(kernel, 3)) == (
        "a kernel to pack is [channels, channels of a group, height, width] of int8 with channels that 3 "
        "groups divide, not [4, 2, 3, 3] of torch.int8"
    )
    weight = torch.full((4, 8), 8, dtype=torch.int8)
    assert refusal(ValueError, lambda: packed_grouped_weight(weight, torch.ones(4, 2))) == (
        "a value of the weight is not within -8…7"
    )
    assert refusal(ValueError, lambda: packed_grouped_weight(weight, torch.ones(4, 3))) == (
        "scales of [4, 3] are not [features, groups] of a weight of [4, 8]"
    )
