"""``torch.distributed._symmetric_memory`` on the device: refused, in words that say why."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import distributed

from opsmith.errors import NotOffered

R = TypeVar("R")


def refuse_symmetric_memory(device: str) -> None:
    """Has memory of ``device`` that ranks would share, and its rendezvous, raise :class:`NotOffered`.

    All of PyTorch's functions and operators on symmetric memory go by these.
    """
    if not distributed.is_available():
        return
    from opsmith.schema.torch_names import _SymmetricMemory, replace

    def refused(function: Callable[..., R]) -> Callable[..., R]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> R:
            for each in (*arguments, *options.values()):
                place = each.device if isinstance(each, torch.Tensor) else each
                if isinstance(place, torch.device) and place.type == device:
                    raise NotOffered(
                        f"{device} has no symmetric memory: no kernel of one rank reaches the memory of "
                        "another",
                        remedy="allocate with torch.empty, and call the collectives of torch.distributed: "
                        "all_reduce, all_gather_into_tensor, reduce_scatter_tensor",
                    )
            return function(*arguments, **options)

        return call

    for name in ("empty_strided_p2p", "rendezvous", "get_mempool_allocator"):
        if (function := getattr(_SymmetricMemory, name, None)) is not None:
            replace(f"_SymmetricMemory.{name}", staticmethod(refused(function)))
