"""Out variants of custom operators in compiled graphs.

PyTorch 2.13 gives an out variant its Tensors first and its other arguments behind them, whatever the order
of its schema, in which libraries' operators have them as they like.
"""

from __future__ import annotations

from types import ModuleType

import torch


def call_in_the_order_of_schemas(module: ModuleType) -> None:
    """Has ``torch._library._out_variant``, the ``module``, find none where the order would be another."""
    of_pytorch = module.to_out_variant

    def to_out_variant(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
        found: torch._ops.OpOverload | None = of_pytorch(op)
        return found if _has_tensors_first(op._schema) else None

    vars(module)["to_out_variant"] = to_out_variant


def _has_tensors_first(schema: torch._C.FunctionSchema) -> bool:
    """Whether Tensors that are always there come first, and nothing else is or has one."""
    kinds = [str(each.type) for each in schema.arguments]
    first = next((at for at, kind in enumerate(kinds) if kind != "Tensor"), len(kinds))
    return not any("Tensor" in kind for kind in kinds[first:])
