"""The constants of a graph, for rewrites that read them and put others in their place.

A graph module has them as attributes, also within Tensor subclasses, as torchao's quantized weights are.
Exported programs have theirs in :mod:`opsmith.executorch.program_constants`.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

_ACCESSES = "export.access_subclass_inner_tensor.default"


class GraphConstants(Protocol):
    """What a rewrite needs of them."""

    def value(self, node: object) -> Tensor | None:
        """What a node always gives; None for what is no constant."""

    def add(self, name: str, value: Tensor) -> Node:
        """The node of a new constant, called like ``name``."""


class ModuleConstants:
    """Those of a graph module: parameters and buffers."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module

    def value(self, node: object) -> Tensor | None:
        if not isinstance(node, Node):
            return None
        if str(node.target) == _ACCESSES:
            owner, name = node.args
            outer = self.value(owner)
            return None if outer is None else getattr(outer, str(name))
        if node.op != "get_attr":
            return None
        value: object = self._module
        for name in str(node.target).split("."):
            value = getattr(value, name)
        return value if isinstance(value, Tensor) else None

    def add(self, name: str, value: Tensor) -> Node:
        place = name
        while hasattr(self._module, place):
            place += "_"
        self._module.register_buffer(place, value)
        graph = self._module.graph
        with graph.inserting_before(next(iter(graph.nodes))):
            return graph.get_attr(place)


def symmetric(zero_points: Tensor | None) -> bool:
    """Whether there are no zero points other than 0."""
    return zero_points is None or not torch.any(zero_points)
