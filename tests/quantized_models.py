"""Models that pt2e has quantized, for ``opsmith executorch export`` and for a device: ``mlp`` and ``cnn``.

Activations are int8 per tensor, weights int8 per channel, as XNNPACKQuantizer has them, without delegation.
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


def quantized(model: torch.nn.Module, inputs: tuple[Any, ...]) -> torch.nn.Module:
    """``model`` after pt2e's post-training quantization, calibrated with ``inputs``."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=True)
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
