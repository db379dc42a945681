"""The meta kernel for the gradients of fused attention, which PyTorch lacks up to 2.11.

Without one neither ``torch.compile`` nor DTensor can differentiate attention.  It is PyTorch's for all
devices: DTensor asks it of tensors on others than the program's.  :mod:`opsmith.runtime.load` calls
:func:`shape_fake_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_BACKWARD = "_scaled_dot_product_fused_attention_overrideable_backward"


def shape_fake_attention(_device_type: str) -> None:
    """Has tensors without data have gradients of attention, where PyTorch does not see to that."""
    from opsmith.schema.torch_names import _dispatch_has_kernel_for_dispatch_key as has_kernel

    if not has_kernel(f"aten::{_BACKWARD}", "Meta"):
        _library().impl(_BACKWARD, _like_operands, "Meta")  # type: ignore[no-untyped-call]


@cache  # a library takes its kernels along when it is deleted
def _library() -> torch.library.Library:
    import torch

    return torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]


def _like_operands(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    wanted: Sequence[bool],
    *_: Any,
    **__: Any,
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of the operands' sizes, with their dimensions in the same order in memory."""
    import torch

    gradients = [torch.empty_like(each) for each in (query, key, value)]
    of_bias = torch.empty_like(bias) if bias is not None and wanted[3] else None
    return (*gradients, of_bias)
