"""Int8 weights in the order in which the ``quantized`` library's products read them.

The layout is the same on every machine, so that a program may carry packed weights; the kernels that read it
are those of ``opsmith_quantized::conv2d_int8`` and ``linear_int8.requantized``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Columns of a panel and products of a step, as src/opsmith/kernels/quantized/requantized_matmul.h has them.
_PANEL, _STEP = 16, 4


def packed_int8_weight(weight: Tensor) -> Tensor:
    """Packs a ``weight`` of [features, depth] of int8 for ``linear_int8.requantized``.

    Gives int8 [1, ⌈features/16⌉, 1 + ⌈depth/4⌉, 64], each panel beginning with its columns' sums as int32.
    Raises :class:`ValueError` for other shapes and dtypes.
    """
    if weight.dim() != 2 or weight.dtype != torch.int8:
        raise ValueError(
            "a weight to pack is [features, depth] of int8, not "
            f"{list(weight.shape)} of {weight.dtype}"
        )
    return _packed(weight[None])


def packed_int8_kernel(weight: Tensor, groups: int) -> Tensor:
    """Packs a ``weight`` of [channels, channels of a group, height, width] of int8 for ``conv2d_int8``.

    Gives [groups, ⌈channels of a group/16⌉, 1 + ⌈depth/4⌉, 64], and [height · width, channels] where each
    group has one channel on either side.  Raises :class:`ValueError` for other shapes and dtypes.
    """
    if weight.dim() != 4 or weight.dtype != torch.int8 or groups < 1 or len(weight) % groups:
        raise ValueError(
            "a kernel to pack is [channels, channels of a group, height, width] of int8 with channels that "
            f"{groups} groups divide, not {list(weight.shape)} of {weight.dtype}"
        )
    if weight.shape[0] == groups and weight.shape[1] == 1:
        return weight.reshape(groups, -1).t().contiguous()
    # By places of the kernel, each with its channels.
    return _packed(weight.permute(0, 2, 3, 1).reshape(groups, len(weight) // groups, -1))


def _packed(weights: Tensor) -> Tensor:
    """Of [groups, columns, depth]."""
    groups, columns, depth = weights.shape
    filled = nn.functional.pad(weights, (0, -depth % _STEP, 0, -columns % _PANEL))
    panels = filled.view(groups, -1, _PANEL, filled.shape[2] // _STEP, _STEP).transpose(2, 3)
    steps = panels.reshape(*panels.shape[:3], _PANEL * _STEP)
    sums = filled.sum(2, dtype=torch.int32).view(groups, -1, 1, _PANEL).view(torch.int8)
    return torch.cat((sums, steps), 2).contiguous()
