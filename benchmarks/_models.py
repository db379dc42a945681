"""Models whose training steps are measured: what each is made of, and one batch for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d, scaled_dot_product_attention, silu

from opsmith.cli.demonstration.training import network


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


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions, on ``(N, inside, H, W)``; its stride is at the second."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        relu = nn.ReLU(inplace=True)
        self.body = nn.Sequential(
            *normed(inside, width, 1), relu, *normed(width, width, 3, stride), relu,
            *normed(width, outside, 1),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = normed(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """ResNet-50 on ``(N, 3, H, W)``: He et al., Deep Residual Learning, 2016, table 1."""
    layers: list[nn.Module] = [*normed(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for index in range(blocks):
            layers.append(Bottleneck(inside, width, 2 if index == 0 and width != 64 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class SqueezeExcitation(nn.Module):
    """Scales each channel of ``(N, C, H, W)`` by what its mean and the others' say: Hu et al., 2018."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.ReLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale(x)


def normed(
    inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution with batch norm."""
    convolution = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outside))


class Inverted(nn.Module):
    """MobileNetV3's block, on ``(N, inside, H, W)``."""

    def __init__(
        self,
        inside: int,
        kernel: int,
        wide: int,
        outside: int,
        squeezed: int,
        act: type,
        stride: int,
    ) -> None:
        super().__init__()
        layers = [*normed(inside, wide, 1), act()] if wide != inside else []
        layers += [*normed(wide, wide, kernel, stride, wide), act()]
        layers += [SqueezeExcitation(wide, squeezed)] if squeezed else []
        self.body = nn.Sequential(*layers, *normed(wide, outside, 1))
        self.has_shortcut = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.has_shortcut else self.body(x)


def mobilenet_v3_small() -> nn.Module:
    """MobileNetV3-Small on ``(N, 3, H, W)``: Howard et al., Searching for MobileNetV3, 2019, table 2."""
    relu, swish = nn.ReLU, nn.Hardswish
    blocks = [
        Inverted(16, 3, 16, 16, 8, relu, 2),
        Inverted(16, 3, 72, 24, 0, relu, 2),
        Inverted(24, 3, 88, 24, 0, relu, 1),
        Inverted(24, 5, 96, 40, 24, swish, 2),
        Inverted(40, 5, 240, 40, 64, swish, 1),
        Inverted(40, 5, 240, 40, 64, swish, 1),
        Inverted(40, 5, 120, 48, 32, swish, 1),
        Inverted(48, 5, 144, 48, 40, swish, 1),
        Inverted(48, 5, 288, 96, 72, swish, 2),
        Inverted(96, 5, 576, 96, 144, swish, 1),
        Inverted(96, 5, 576, 96, 144, swish, 1),
    ]
    head = [*normed(96, 576, 1), swish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    head += [nn.Linear(576, 1024), swish(), nn.Linear(1024, 1000)]
    return nn.Sequential(*normed(3, 16, 3, 2), swish(), *blocks, *head)


def transformer() -> nn.Module:
    """Four layers of width 128 on tokens ``(N, T)``; logits ``(N, T, 1000)``."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(1000, 128), encoder, nn.Linear(128, 1000))


class Attention(nn.Module):
    """Self-attention on ``(N, T, width)``; ``rotated`` turns queries and keys by their positions."""

    def __init__(self, width: int, heads: int, *, causal: bool, rotated: bool = False) -> None:
        super().__init__()
        self.inside = nn.Linear(width, 3 * width, bias=not rotated)
        self.outside = nn.Linear(width, width, bias=not rotated)
        self.heads, self.causal, self.rotated = heads, causal, rotated

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inside(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.rotated:
            q, k = turned(q), turned(k)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.outside(mixed.transpose(1, 2).flatten(-2))


def turned(x: Tensor) -> Tensor:
    """Rotary embedding of ``(…, T, width)``: Su et al., RoFormer, 2021."""
    half = x.size(-1) // 2
    frequencies = 10_000 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.size(-2), device=x.device)[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    sine, cosine = angles.sin(), angles.cos()
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


class Gated(nn.Module):
    """Llama's feed-forward layers, on ``(…, width)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A transformer's layer on ``(N, T, width)``, normed before its two parts, or behind them."""

    def __init__(
        self,
        attention: nn.Module,
        feed: nn.Module,
        norm: type[nn.Module],
        *,
        after: bool,
        width: int = 128,
    ):
        super().__init__()
        self.attention, self.feed, self.after = attention, feed, after
        self.norms = nn.ModuleList([norm(width), norm(width)])

    def forward(self, x: Tensor) -> Tensor:
        for norm, part in zip(self.norms, (self.attention, self.feed), strict=True):
            x = norm(x + part(x)) if self.after else x + part(norm(x))
        return x


def feed_forward(width: int = 128) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Tokens(nn.Module):
    """Token and position embeddings: ``(N, T)`` to ``(N, T, width)``."""

    def __init__(self, positions: int, known: int = 1000, width: int = 128) -> None:
        super().__init__()
        self.tokens = nn.Embedding(known, width)
        self.positions = nn.Parameter(0.02 * torch.randn(positions, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.tokens(x) + self.positions[: x.size(1)]


class Patches(nn.Module):
    """Images ``(N, 3, H, W)`` as ``(N, T, 128)``, patches of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 128, 8, 8)
        self.positions = nn.Parameter(0.02 * torch.randn(64, 128))

    def forward(self, x: Tensor) -> Tensor:
        return self.embed(x).flatten(2).transpose(1, 2) + self.positions


def mlp() -> nn.Module:
    """Four layers on ``(N, 256)``."""
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def vit() -> nn.Module:
    """Four layers on images ``(N, 3, 64, 64)``; the mean over patches is classified."""
    blocks = (
        Block(Attention(128, 4, causal=False), feed_forward(), nn.LayerNorm, after=False)
        for _ in range(4)
    )
    pool = nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 1000))
    return nn.Sequential(Patches(), *blocks, pool)


def bert() -> nn.Module:
    """Four layers on tokens ``(N, T)``, normed behind their parts."""
    blocks = (
        Block(Attention(128, 4, causal=False), feed_forward(), nn.LayerNorm, after=True)
        for _ in range(4)
    )
    return nn.Sequential(Tokens(64), nn.LayerNorm(128), *blocks, nn.Linear(128, 1000))


def gpt2() -> nn.Module:
    """Four causal layers on tokens ``(N, T)``, normed before their parts."""
    blocks = (
        Block(Attention(128, 4, causal=True), feed_forward(), nn.LayerNorm, after=False)
        for _ in range(4)
    )
    return nn.Sequential(Tokens(64), *blocks, nn.LayerNorm(128), nn.Linear(128, 1000))


def gpt2_small() -> nn.Module:
    """GPT-2 of 124 million parameters on up to 1,024 tokens ``(N, T)``, Radford et al., 2019."""
    return gpt2_of(50257, 768, 12, 12)


def gpt2_of(known: int, width: int, heads: int, layers: int) -> nn.Module:
    """GPT-2 of another size, for ``known`` tokens."""
    blocks = (
        Block(
            Attention(width, heads, causal=True),
            feed_forward(width),
            nn.LayerNorm,
            after=False,
            width=width,
        )
        for _ in range(layers)
    )
    head = nn.Linear(width, known, bias=False)
    return nn.Sequential(Tokens(1024, known, width), *blocks, nn.LayerNorm(width), head)


def llama() -> nn.Module:
    """Four causal layers with rotary embeddings, RMSNorm and SwiGLU on tokens ``(N, T)``."""
    blocks = (
        Block(Attention(128, 4, causal=True, rotated=True), Gated(128), nn.RMSNorm, after=False)
        for _ in range(4)
    )
    return nn.Sequential(nn.Embedding(1000, 128), *blocks, nn.RMSNorm(128), nn.Linear(128, 1000))


def convolved(inside: int, outside: int) -> nn.Module:
    """Two convolutions with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for width in (inside, outside):
        layers += [nn.Conv2d(width, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)]
        layers += [nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Ronneberger et al., U-Net, 2015, with three levels; ``(N, 3, H, W)`` to ``(N, 10, H, W)``."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 64)
        self.down = nn.ModuleList(
            convolved(*pair) for pair in zip((3, 16, 32), widths, strict=True)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in (32, 16))
        self.joined = nn.ModuleList(convolved(2 * w, w) for w in (32, 16))
        self.classes = nn.Conv2d(16, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for index, down in enumerate(self.down):
            x = down(max_pool2d(x, 2) if index else x)
            levels.append(x)
        for up, joined, level in zip(self.up, self.joined, levels[-2::-1], strict=True):
            x = joined(torch.cat([level, up(x)], 1))
        return self.classes(x)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "MLP": (mlp, lambda: torch.randn(256, 256)),
    "CNN of the demo": (network, lambda: torch.rand(64, 1, 8, 8)),
    "ResNet-18": (resnet18, lambda: torch.rand(4, 3, 96, 96)),
    "ViT": (vit, lambda: torch.rand(8, 3, 64, 64)),
    "BERT-like": (bert, lambda: torch.randint(0, 1000, (8, 64))),
    "GPT-2-like": (gpt2, lambda: torch.randint(0, 1000, (8, 64))),
    "Llama-like": (llama, lambda: torch.randint(0, 1000, (8, 64))),
    "U-Net": (UNet, lambda: torch.rand(4, 3, 64, 64)),
}
"""Models of the kinds that are compiled, each with a batch for it."""


@dataclass(frozen=True)
class Training:
    """How a model is made, and a batch of inputs and classes for it."""

    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]

    def step(
        self,
        device: str,
        layout: torch.memory_format = torch.preserve_format,
        context: Callable[[], AbstractContextManager[object]] = nullcontext,
        *,
        is_compiled: bool = False,
    ) -> Callable[[], float]:
        """A step of SGD with momentum on ``device``; gives the loss.

        Images and weights are in ``layout``; the forward pass, compiled where ``is_compiled``, and the
        loss are computed in ``context``.
        """
        torch.manual_seed(0)
        model = self.model().to(device).to(memory_format=layout)  # type: ignore[call-overload]
        inputs, classes = (each.to(device) for each in self.batch())
        if inputs.dim() == 4:
            inputs = inputs.to(memory_format=layout)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        forward = torch.compile(model) if is_compiled else model

        def step() -> float:
            optimizer.zero_grad()
            with context():
                loss = cross_entropy(forward(inputs).flatten(0, -2), classes.flatten())
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    def inference(self, device: str) -> Callable[[], object]:
        """The model of the inputs on ``device``, done when it returns."""
        torch.manual_seed(0)
        model, inputs = self.model().eval().to(device), self.batch()[0].to(device)

        def infer() -> object:
            with torch.no_grad():
                result = model(inputs)
            if device != "cpu":
                torch.accelerator.synchronize()
            return result

        return infer


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
