"""The layout of images in an exported graph whose convolutions give channels-last ones.

What computes pixel by pixel, or on windows, goes on channels-last; what sees the order of the elements gets a
contiguous copy, and so does the program's caller.  Called by ``export``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from opsmith.executorch.packed_layers import CONVOLUTION, NAMESPACE
from opsmith.executorch.transforms.int8_layers import has_channels_innermost
from opsmith.schema.torch_names import OpOverload

# Beside what PyTorch tags as pointwise: results are channels-last where the first operand is.
_ANY_LAYOUT = frozenset(
    "hardswish hardswish_ dropout dropout_ max_pool2d avg_pool2d adaptive_avg_pool2d "
    "upsample_nearest2d upsample_bilinear2d cat".split()
)
# Results that have lost the pixels, whatever the layout was.
_REDUCTIONS = frozenset(("mean", "sum", "amax", "amin"))


def settle_layouts(exported: ExportedProgram, *, everywhere: bool = True) -> int:
    """Puts copies where an operator takes another layout than its operand has, and says how many.

    ``everywhere`` is whether other operators than convolutions go on channels-last.
    """
    layouts = _Layouts(exported.graph, everywhere)
    inputs = set(exported.graph_signature.user_inputs)
    for node in list(exported.graph.nodes):
        if node.op == "call_function":
            layouts.settle(node)
        elif node.op == "placeholder" and node.name in inputs:
            layouts.begin(node)
        elif node.op == "output":
            layouts.end(node)
    if layouts.copies:
        exported.graph_module.recompile()
    return layouts.copies


class _Layouts:
    def __init__(self, graph: fx.Graph, everywhere: bool) -> None:
        self._graph, self._everywhere = graph, everywhere
        self._channels_last: set[fx.Node] = set()
        self.copies = 0

    def begin(self, model_input: fx.Node) -> None:
        if _is_image(model_input) and _was_channels_last(model_input):
            self._channels_last.add(model_input)

    def end(self, output: fx.Node) -> None:
        """The caller gets the layout that the module gives."""
        for each in output.all_input_nodes:
            if not _was_channels_last(each):
                self._read_contiguous(output, each)

    def settle(self, node: fx.Node) -> None:
        name = _name(node)
        if name == f"{NAMESPACE}::{CONVOLUTION}":
            other: Any = node.args[3]
            if other is not None and other not in self._channels_last:
                node.update_arg(3, self._copy(other, torch.channels_last, node))
            self._channels_last.add(node)
            return
        if not any(each in self._channels_last for each in node.all_input_nodes):
            return
        if self._everywhere and _is_mean_of_pixels(node):
            # PyTorch would decompose it into a view of what is channels-last.
            node.target = torch.ops.aten.mean.dim
            node.args = (node.args[0], [2, 3], True)
            return
        asked = _asked_layout(node)
        if asked is not None:
            if asked is torch.channels_last:
                self._channels_last.add(node)
            return
        if self._everywhere and _takes_any_layout(node):
            others = [
                each
                for each in node.all_input_nodes
                if each not in self._channels_last and _has_layout(each)
            ]
            if others and not _writes(node):
                self._make_contiguous(node)
                return
            for each in others:
                node.replace_input_with(each, self._copy(each, torch.channels_last, node))
            if _is_image(node):
                self._channels_last.add(node)
        elif not self._is_reduction(name) and not _writes(node):
            self._make_contiguous(node)

    def _is_reduction(self, name: str) -> bool:
        return self._everywhere and name.removeprefix("aten::") in _REDUCTIONS

    def _make_contiguous(self, node: fx.Node) -> None:
        for each in node.all_input_nodes:
            self._read_contiguous(node, each)

    def _read_contiguous(self, node: fx.Node, operand: fx.Node) -> None:
        if operand in self._channels_last:
            node.replace_input_with(operand, self._copy(operand, torch.contiguous_format, node))

    def _copy(self, node: fx.Node, layout: torch.memory_format, reader: fx.Node) -> fx.Node:
        # For each reader its own: what is written to the value in between is in the later ones alone.
        with self._graph.inserting_before(reader):
            copy = self._graph.call_function(
                torch.ops.aten.clone.default, (node,), {"memory_format": layout}
            )
        copy.meta = dict(node.meta)
        self.copies += 1
        return copy


def _name(node: fx.Node) -> str:
    target = node.target
    return target._schema.name if isinstance(target, OpOverload) else ""


def _takes_any_layout(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    return torch.Tag.pointwise in target.tags or _name(node).removeprefix("aten::") in _ANY_LAYOUT


def _is_image(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dim() == 4


def _asked_layout(node: fx.Node) -> torch.memory_format | None:
    """The layout that a copy is asked for; None where it is not said, or that of its operand."""
    asked: Any = node.kwargs.get("memory_format")
    return None if asked is torch.preserve_format else asked


def _was_channels_last(node: fx.Node) -> bool:
    sizes = node.meta["val"].shape
    return all(isinstance(size, int) for size in sizes) and has_channels_innermost(node)


def _is_mean_of_pixels(node: fx.Node) -> bool:
    if _name(node) != "aten::adaptive_avg_pool2d":
        return False
    size: Any = node.args[1]
    return list(size) in ([1], [1, 1]) and _is_image(node)


def _writes(node: fx.Node) -> bool:
    """Whether it writes to an operand, of which no copy will do."""
    target = node.target
    return isinstance(target, OpOverload) and target._schema.is_mutable


def _has_layout(node: fx.Node) -> bool:
    """Whether its value lies differently in memory when it is channels-last."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return False
    if value.dim() == 4:
        return any(size != 1 for size in value.shape[2:])
    return sum(size != 1 for size in value.shape) > 1
