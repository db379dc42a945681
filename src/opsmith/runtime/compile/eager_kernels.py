"""Graphs for devices without a host window: loops are fused, all else calls the backend's kernels.

A library may have a kernel whose source Inductor writes (``fused_kernel`` in its manifest); without one,
every operator of a graph is called.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from opsmith.runtime.compile.compiling import compiling, overloads
from opsmith.schema.torch_names import OpOverload, tree_leaves

NOTHING_FUSED = "no library of the backend has a fused kernel"

# Operators that Inductor calls with memory of its own planning.
_PLANNED = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("mm", "addmm", "bmm", "baddbmm", "convolution")
)


def mark_called(gm: torch.fx.GraphModule, device: str) -> None:
    """Marks the calls on ``device`` that no loops are made of."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and _is_called(node, device):
            node.meta["should_fallback"] = True


def _is_called(node: torch.fx.Node, device: str) -> bool:
    target = node.target
    if not isinstance(target, OpOverload) or target in _PLANNED:
        return False
    tensors = [
        each
        for each in tree_leaves(
            (node.meta.get("val"), [given.meta.get("val") for given in node.all_input_nodes])
        )
        if isinstance(each, torch.Tensor)
    ]
    if all(each.device.type != device for each in tensors) or target.is_view:
        return False
    return target not in _fused() or not all(each.dtype in _fused_dtypes() for each in tensors)


@cache
def _fused() -> frozenset[OpOverload]:
    """The operators that a fused kernel calculates."""
    prims = torch.ops.prims
    made = (prims.convert_element_type, prims.iota, prims.inductor_random, prims.inductor_randint)
    known = (*made, prims.inductor_lookup_seed, prims.inductor_seeds, prims.inductor_seed)
    return overloads(compiling().fused) | {each.default for each in known}


@cache
def _fused_dtypes() -> frozenset[torch.dtype]:
    from opsmith.runtime.compile.c_expressions import TYPES

    fused = compiling().fused_kernel
    return frozenset(dtype for dtype, each in TYPES.items() if fused and each.name in fused.dtypes)


class RunningKernel:
    """For generated code: the fused kernel of ``source``, compiled when it runs first."""

    def __init__(self, name: str, is_reduction: bool, source: str) -> None:
        fused = compiling().fused_kernel
        assert fused is not None, "graphs without one are not compiled"
        make, self._run = _operator(fused.make), _operator(fused.run)
        self._kernel = make(source, name, is_reduction)

    def __call__(self, tensors: list[torch.Tensor], numbers: list[int]) -> None:
        self._run(self._kernel, tensors, numbers)


def _operator(name: str) -> Any:
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator).default
