"""Arguments that operators write to although their schemas do not mark them.

PyTorch lets them pass since its own devices write where the caller's memory is.  A kernel on copies must
know of them: what it wrote to a copy has to go back.  Read by the resolver, for kernels, and by the plan, for
the fallback.
"""

from __future__ import annotations

from collections.abc import Mapping

_STATISTICS = ("running_mean", "running_var")

# By the operators' names without overloads: an out variant writes what its functional variant does.
_UNMARKED: Mapping[str, tuple[str, ...]] = {
    "_batch_norm_impl_index": _STATISTICS,
    "_copy_from": ("dst",),
    "_copy_from_and_resize": ("dst",),
    "_saturate_weight_to_fp16": ("weight",),
    "batch_norm": _STATISTICS,
    "batch_norm_gather_stats": _STATISTICS,
    "batch_norm_gather_stats_with_counts": _STATISTICS,
    "batch_norm_update_stats": _STATISTICS,
    "cudnn_batch_norm": _STATISTICS,
    "instance_norm": _STATISTICS,
    "miopen_batch_norm": _STATISTICS,
    "native_batch_norm": _STATISTICS,
}


def unmarked_writes(operator: str) -> tuple[str, ...]:
    """The arguments that the operator of this name writes to and its schema does not mark."""
    return _UNMARKED.get(operator.partition(".")[0], ())
