"""Models whose training steps are measured: what each is made of, and one batch for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from opsmith.demo.training import network


class Residual(nn.Module):
    """ResNet's basic block, on ``(N, inside, H, W)``."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.body(x) + self.shortcut(x))


def resnet18() -> nn.Module:
    """ResNet-18 on ``(N, 3, H, W)``."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)]
    layers += [nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for outside in (64, 128, 256, 512):
        layers += [
            Residual(inside, outside, 1 if outside == 64 else 2),
            Residual(outside, outside, 1),
        ]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def transformer() -> nn.Module:
    """Four layers of width 128 on tokens ``(N, T)``; logits ``(N, T, 1000)``."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(1000, 128), encoder, nn.Linear(128, 1000))


@dataclass(frozen=True)
class Training:
    """How a model is made, and a batch of inputs and classes for it."""

    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]

    def step(self, device: str) -> Callable[[], float]:
        """A step of SGD with momentum on ``device``; gives the loss."""
        torch.manual_seed(0)
        model = self.model().to(device)
        inputs, classes = (each.to(device) for each in self.batch())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step() -> float:
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs).flatten(0, -2), classes.flatten())
            loss.backward()
            optimizer.step()
            return loss.item()

        return step


TRAININGS = {
    "CNN of the demo, batch 64": Training(
        network, lambda: (torch.rand(64, 1, 8, 8), torch.randint(0, 10, (64,)))
    ),
    "ResNet-18, 4 images of 96 x 96": Training(
        resnet18, lambda: (torch.rand(4, 3, 96, 96), torch.randint(0, 1000, (4,)))
    ),
    "transformer of 4 layers, 8 x 64 tokens": Training(
        transformer, lambda: (torch.randint(0, 1000, (8, 64)), torch.randint(0, 1000, (8, 64)))
    ),
}
