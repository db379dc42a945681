"""Quantized models, for ``opsmith executorch export`` and for a device.

``mlp``, ``cnn`` and ``residual`` are static: activations are int8 per tensor, weights int8 per channel, as
XNNPACKQuantizer has them, without delegation.  ``dynamic`` chooses the scale of its activations as it runs.
``grouped`` is torchao's 8da4w: activations int8 per token, weights of 4 bits by groups of 32.
"""

from __future__ import annotations

from typing import Any

import torch


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(24, 40), torch.nn.ReLU(), torch.nn.Linear(40, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Cnn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 16, 3, padding=1),
            torch.nn.ReLU(),
        )
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean((2, 3)))


class Residual(torch.nn.Module):
    """Convolutions of all kinds with batch norm, whose results are added up and pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(*_normed(3, 16, 5, stride=2), torch.nn.ReLU())
        self.pool = torch.nn.MaxPool2d(3, 2, 1)
        self.body = torch.nn.Sequential(
            *_normed(16, 16, 3, groups=16), torch.nn.ReLU6(), *_normed(16, 16, 3, groups=2)
        )
        self.shortcut = torch.nn.Conv2d(16, 16, 1)
        self.last = torch.nn.Conv2d(16, 8, 3, dilation=2)
        self.head = torch.nn.Sequential(
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.stem(x))
        x = torch.relu(self.body(x) + self.shortcut(x))
        return self.head(self.last(x))


def _normed(inside: int, outside: int, kernel: int, **given: int) -> list[torch.nn.Module]:
    convolution = torch.nn.Conv2d(inside, outside, kernel, padding=kernel // 2, **given)
    return [convolution, torch.nn.BatchNorm2d(outside)]


def quantized(
    model: torch.nn.Module, inputs: tuple[Any, ...], *, dynamic: bool = False
) -> torch.nn.Module:
    """``model`` after pt2e's post-training quantization, calibrated with ``inputs``."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    )
    prepared = prepare_pt2e(torch.export.export(model.eval(), inputs).module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


def mlp() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    inputs = (torch.randn(5, 24),)
    return quantized(Mlp(), inputs), inputs


def cnn() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    inputs = (torch.randn(2, 3, 12, 12),)
    return quantized(Cnn(), inputs), inputs


def residual() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    inputs = (torch.randn(2, 3, 40, 36),)
    return quantized(Residual(), inputs), inputs


def dynamic() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    inputs = (torch.randn(5, 24),)
    return quantized(Mlp(), inputs, dynamic=True), inputs


def grouped() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    return _by_torchao("int4")


def eight_bits() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """Weights of 8 bits by groups, which no kernel takes."""
    return _by_torchao("int8")


def _by_torchao(weights: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 20, bias=False)]
    model = torch.nn.Sequential(*layers).eval()
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=getattr(torch, weights), weight_granularity=PerGroup(32)
    )
    quantize_(model, config)
    return model, (torch.randn(3, 5, 64),)
