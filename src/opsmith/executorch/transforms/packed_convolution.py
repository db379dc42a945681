"""Weights of convolutions in the order in which ``optimized::convolution_packed`` reads them.

The layout is the same on every machine, so that a program may carry packed weights.  Called by ``export``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Channels that lie together, as src/opsmith/kernels/optimized/matmul_operands.h has it.
_PANEL = 16


def packed_convolution_weight(weight: Tensor, groups: int = 1) -> Tensor:
    """The ``weight`` of [channels, channels / groups, y, x] in panels of 16 channels, filled up with zeros.

    Of float32: [groups · ⌈channels/groups/16⌉, y · x · input channels of a group, 16], or for a depthwise
    convolution, in which each channel has a group, [⌈channels/16⌉, y · x, 16].  Raises :class:`ValueError`
    for another dtype or number of dimensions, and where the groups do not divide the channels.
    """
    if weight.dim() != 4 or weight.dtype != torch.float32 or weight.shape[0] % groups:
        raise ValueError(
            "a weight to pack is [channels, channels / groups, y, x] of float32, "
            f"not {list(weight.shape)} of {weight.dtype} in {groups} groups"
        )
    channels, depth, *_ = weight.shape
    if groups > 1 and (channels, depth) == (groups, 1):
        groups = 1  # whose rows are the channels
    places = weight.flatten(2).transpose(1, 2).reshape(groups, channels // groups, -1)
    filled = nn.functional.pad(places, (0, 0, 0, -(channels // groups) % _PANEL))
    return filled.view(-1, _PANEL, filled.shape[2]).transpose(1, 2).contiguous()
