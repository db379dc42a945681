"""Which operands the results of an operator may not overlap: where PyTorch refuses what ours could serve.

A kernel never computes on what it overwrites: generated code gives it other memory where ``out`` shares its
own with an operand.  PyTorch refuses some of these calls all the same.  Its meta functions do so for
structured operators, and are asked; what is here, nothing but the CPU's kernels say.
tests/kernels/test_sim_contracts.py compares it with them.  Called by the resolver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RefusedOverlap:
    """``written``, an argument that the operator writes to, may not overlap the operand ``read``.

    In part only, as TensorIterator has it; where ``wholly``, not even if both are the same elements.
    Where both are one argument, its own elements may not overlap each other.  What a structured operator
    writes to is looked at in the size that it gets, else in the one that it has.  Where ``unless_fill``, a
    call that fills what one mask names with one value is not refused: PyTorch makes it a ``masked_fill_``.
    """

    written: str
    read: str
    wholly: bool = False
    unless_fill: bool = False


# Operators that begin by copying `self` into their first result, which a partial overlap forbids.
_BEGINS_WITH_COPY = frozenset(
    {
        "cumprod.out",
        "cumsum.out",
        "scatter.reduce_out",
        "scatter.src_out",
        "scatter.value_out",
        "scatter.value_reduce_out",
        "scatter_add.out",
        "scatter_reduce.two_out",
    }
)

_INDEX_PUT = (
    RefusedOverlap("self", "indices"),
    RefusedOverlap("self", "values", wholly=True, unless_fill=True),
    RefusedOverlap("self", "indices", wholly=True, unless_fill=True),
)

# The others, with what their kernels compare.
_COMPARED: Mapping[str, tuple[RefusedOverlap, ...]] = {
    # The meta functions of these three look at an `out` that has been resized, which here is done last.
    "cat.out": (RefusedOverlap("out", "tensors", wholly=True),),
    "gather.out": (RefusedOverlap("out", "self", wholly=True), RefusedOverlap("out", "index")),
    "index.Tensor_out": (
        RefusedOverlap("out", "self", wholly=True),
        RefusedOverlap("out", "indices", wholly=True),
    ),
    "_index_put_impl_": _INDEX_PUT,
    "index_put_": _INDEX_PUT,
    "index_select.out": (
        RefusedOverlap("out", "out"),
        RefusedOverlap("out", "self", wholly=True),
        RefusedOverlap("out", "index", wholly=True),
    ),
    "masked_fill_.Scalar": (RefusedOverlap("self", "mask"),),
    "masked_fill_.Tensor": (RefusedOverlap("self", "mask"),),
    "masked_select.out": (
        RefusedOverlap("out", "out"),
        RefusedOverlap("out", "self", wholly=True),
        RefusedOverlap("out", "mask", wholly=True),
    ),
    "max.dim_max": (RefusedOverlap("max", "self"), RefusedOverlap("max_values", "self")),
    "min.dim_min": (RefusedOverlap("min", "self"), RefusedOverlap("min_indices", "self")),
    "nonzero.out": (RefusedOverlap("out", "out"), RefusedOverlap("out", "self", wholly=True)),
    # It calls pow.Tensor_Tensor_out.
    "pow.Scalar_out": (RefusedOverlap("out", "out"), RefusedOverlap("out", "exponent")),
    "sort.values": (RefusedOverlap("values", "self"),),
    "sort.values_stable": (RefusedOverlap("values", "self"),),
    "stack.out": (RefusedOverlap("out", "tensors"),),
    "topk.values": (RefusedOverlap("values", "self"), RefusedOverlap("indices", "self")),
}


def refused_overlaps(name: str) -> tuple[RefusedOverlap, ...]:
    """The overlaps that PyTorch's kernel of the operator ``name`` refuses beyond its meta function."""
    if name in _BEGINS_WITH_COPY:
        return (RefusedOverlap("out", "self"),)
    return _COMPARED.get(name, ())
