"""Out variants of custom operators in compiled graphs.

PyTorch 2.13 gives an out variant its Tensors first and its other arguments behind them, whatever the order
of its schema, in which libraries' operators have them as they like.
"""

from __future__ import annotations

from opsmith.schema.torch_names import CFunctionSchema, OpOverload, replace


def keep_the_order_of_schemas(_device: str) -> None:
    """Has PyTorch find no out variant of a custom operator where the order would be another."""
    from opsmith.schema.torch_names import to_out_variant as of_pytorch

    def found_in_order(op: OpOverload) -> OpOverload | None:
        found: OpOverload | None = of_pytorch(op)
        return found if _has_tensors_first(op._schema) else None

    replace("to_out_variant", found_in_order)


def _has_tensors_first(schema: CFunctionSchema) -> bool:
    """Whether Tensors that are always there come first, and nothing else is or has one."""
    kinds = [str(each.type) for each in schema.arguments]
    first = next((at for at, kind in enumerate(kinds) if kind != "Tensor"), len(kinds))
    return not any("Tensor" in kind for kind in kinds[first:])
