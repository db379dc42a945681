"""The constants of a graph, for rewrites that read them and put others in their place.

A graph module has them as attributes, also within Tensor subclasses, as torchao's quantized weights are.
Exported programs have theirs in :mod:`opsmith.executorch.program_constants`.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from opsmith.errors import OperatorUnknown

_ACCESSES = "export.access_subclass_inner_tensor.default"


class GraphConstants(Protocol):
    """The operations on a graph's constants that a rewrite needs."""

    def value(self, node: object) -> Tensor | None:
        """The constant value of ``node``; None for what is no constant."""

    def add(self, name: str, value: Tensor) -> Node:
        """The node of a new constant, called like ``name``."""

    def drop_unread(self) -> None:
        """Removes calls that nothing reads, with the constants that only they read; compiles the graph."""


class ModuleConstants:
    """Those of a graph module: parameters and buffers."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module
        self._read = self._targets()

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

    def drop_unread(self) -> None:
        self._module.graph.eliminate_dead_code()
        for target in self._read - self._targets():
            owner, _, name = target.rpartition(".")
            delattr(self._module.get_submodule(owner), name)
        self._module.recompile()

    def _targets(self) -> set[str]:
        """The attributes that the graph reads: their names, with those of their owners."""
        return {str(node.target) for node in self._module.graph.find_nodes(op="get_attr")}


def loaded_operator(name: str) -> Any:
    """The overload ``name`` of ``opsmith_quantized``, such as ``linear_int8.default``.

    Raises :class:`~opsmith.errors.OperatorUnknown` where no loaded backend has it.
    """
    packet, _, overload = name.partition(".")
    try:
        return getattr(getattr(torch.ops.opsmith_quantized, packet), overload)
    except AttributeError:
        raise OperatorUnknown(
            f"no backend that is loaded has `opsmith_quantized::{name.removesuffix('.default')}`",
            remedy="add `quantized` to the `libraries` of its backend.yaml, and opsmith.load() it first",
        ) from None


def symmetric(zero_points: Tensor | None) -> bool:
    """Whether there are no zero points other than 0."""
    return zero_points is None or not torch.any(zero_points)
