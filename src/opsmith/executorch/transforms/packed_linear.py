"""Linear layers whose weights are packed ahead, for the kernel library ``optimized``.

Packing puts a weight in the order in which the matrix product reads it, once instead of at each call.  It is
an explicit step, on a module before it runs or is exported: a packed module has no ``weight`` any more, and
no gradients.  The layout is the same on every machine, so that a program may carry packed weights; the
kernels that read it are ``optimized::linear_packed``'s, of a loaded backend or kernel library.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Columns that lie together, as src/opsmith/kernels/optimized/matmul_operands.h has it.
_PANEL = 16
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def packed_weight(weight: Tensor) -> Tensor:
    """The ``weight`` of [features, depth] in panels of 16 features, filled up with zeros.

    float32 and float16: [⌈features/16⌉, depth, 16]; bfloat16: [⌈features/16⌉, ⌈depth/2⌉, 32], neighbours in
    depth side by side.  What ``torch.ops.optimized.pack_linear_weight`` returns, by PyTorch's own operators:
    it needs no kernel library.  Raises :class:`ValueError` for another dtype or number of dimensions.
    """
    if weight.dim() != 2 or weight.dtype not in _DTYPES:
        raise ValueError(
            "a weight to pack is [features, depth] of float32, bfloat16 or float16, "
            f"not {list(weight.shape)} of {weight.dtype}"
        )
    features, depth = weight.shape
    together = 2 if weight.dtype == torch.bfloat16 else 1
    filled = nn.functional.pad(weight, (0, -depth % together, 0, -features % _PANEL))
    panels = filled.view(-1, _PANEL, filled.shape[1] // together, together)
    return panels.transpose(1, 2).reshape(-1, filled.shape[1] // together, _PANEL * together)


class PackedLinear(nn.Module):
    """A linear layer for inference, with the panels of its weight: ``linear``'s, which it leaves alone."""

    packed: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.out_features = linear.out_features
        self.register_buffer("packed", packed_weight(linear.weight.detach()))
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, input: Tensor) -> Tensor:
        """[..., depth] → [..., features]."""
        result: Tensor = torch.ops.optimized.linear_packed(
            input, self.packed, self.bias, self.out_features
        )
        return result


def pack_linear_layers(module: nn.Module) -> int:
    """Replaces the :class:`torch.nn.Linear` modules in ``module`` by packed ones, and says how many.

    Of float32, bfloat16 and float16; subclasses stay as they are, since they may compute something else, and
    so do layers whose weight is shared with another parameter's owner: packing it would cost memory twice.
    """
    owners: dict[int, int] = {}
    for child in module.modules():
        for parameter in child.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    replaced = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if (
                type(child) is nn.Linear
                and child.weight.dtype in _DTYPES
                and owners[id(child.weight)] == 1
            ):
                setattr(parent, name, PackedLinear(child))
                replaced += 1
    return replaced
