"""Attention of DTensors: how what serves ``scaled_dot_product_attention`` on devices may be split.

PyTorch has such rules for CUDA's operators of attention, and none for the one of other devices.  They are
registered as soon as a program imports ``torch.distributed.tensor``, which takes half a second.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from opsmith.runtime.integrations.imported import when_imported


def split_attention(_device: str) -> None:
    """Has DTensor split attention among ranks by batch and by head."""
    when_imported("torch.distributed.tensor", _register)


def _register(_: ModuleType) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    aten: Any = torch.ops.aten
    replicated = Replicate()
    # Whole on each rank, or split by batch or by head.  A bias may be broadcast over these, so it is split
    # where it is not.
    ways = (replicated, Shard(0), Shard(1))

    def of_bias(bias: Any, query: Any, way: Any) -> Any:
        if bias is None:
            return None
        is_split = way is not replicated and len(bias.shape) == len(query.shape)
        return way if is_split and bias.shape[way.dim] == query.shape[way.dim] else replicated

    def forward(query: Any, key: Any, value: Any, bias: Any = None, *_: Any, **__: Any) -> Any:
        return [
            (
                # output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, seed, offset, debug_attn_mask
                [way, way, None, None, None, None, replicated, replicated, None],
                [way, way, way, of_bias(bias, query, way), None, None, None],
            )
            for way in ways
        ]

    def backward(grad: Any, query: Any, key: Any, value: Any, bias: Any, *_: Any, **__: Any) -> Any:
        return [
            (
                [way, way, way, None],
                # grad_out, query, key, value, bias, its mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q,
                # max_k, dropout_p, is_causal, seed, offset
                [way] * 4
                + [of_bias(bias, query, way), None, way, way]
                + [None] * 6
                + [replicated] * 2,
            )
            for way in ways
        ]

    register_sharding(aten._scaled_dot_product_fused_attention_overrideable.default)(forward)
    register_sharding(aten._scaled_dot_product_fused_attention_overrideable_backward.default)(
        backward
    )
