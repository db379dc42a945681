"""The overloads of ``torch.ops`` by operators' names."""

from __future__ import annotations

from typing import Any

import torch

from opsmith.schema import qualified


def overload_of(operator: str) -> Any:
    """The overload of the operator's name as plans have it: of ``add.out`` ``torch.ops.aten.add.out``."""
    namespace, _, name = qualified(operator).partition("::")
    base, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
