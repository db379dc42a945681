"""Calls of ATen operators, for the tools that try them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_map


@dataclass(frozen=True)
class Call:
    """The arguments of one call; Tensors are on the CPU and belong to nobody else."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def map(self, function: Callable[[Any], Any]) -> Call:
        """The call with ``function`` applied to every argument, those within lists included."""
        return Call(tree_map(function, self.args), tree_map(function, dict(self.kwargs)))


def overload(name: str) -> Any:
    """The callable of the ATen operator ``name``, e.g. ``add.out``."""
    base, _, rest = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), rest or "default")
