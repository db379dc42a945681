"""The ``attention:`` of a kernel's entry: which calls of scaled dot-product attention its kernel takes.

Called by ``manifest`` and ``formats.executorch``; which kernel is then asked is the plan's business.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from opsmith.description.document import Document, Step
from opsmith.description.model import AttentionFeature, AttentionLimits
from opsmith.errors import SyntaxInvalid

_Feature = Literal["dropout", "mask", "mask_gradient", "causal", "grouped_heads", "other_value_dim"]


class DescribedAttention(msgspec.Struct, forbid_unknown_fields=True):
    """The manifest's ``attention:``."""

    most_head_dim: int | None = None
    head_dim_multiple: int = 1
    without: list[_Feature] = []


def attention_limits(
    document: Document, steps: tuple[Step, ...], described: DescribedAttention | None
) -> AttentionLimits | None:
    """The limits in the entry at ``steps``.  Raises :class:`SyntaxInvalid` for numbers below 1."""
    if described is None:
        return None
    for key in ("most_head_dim", "head_dim_multiple"):
        value = getattr(described, key)
        if value is not None and value < 1:
            raise SyntaxInvalid(
                f"`{key}` is a number of elements, and {value} is none",
                location=document.locate(*steps, "attention", key),
                remedy=f"write 1 or more, or leave `{key}` out",
            )
    without = tuple(feature for feature in AttentionFeature if feature.value in described.without)
    return AttentionLimits(described.most_head_dim, described.head_dim_multiple, without)
