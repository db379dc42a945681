"""Rewrites graphs that pt2e has quantized: dequantize → linear becomes one int8 linear.

``opsmith_quantized::linear_int8`` of the ``quantized`` library adds up the integers themselves, so neither
activations nor weights are made floats.  Weights have to be int8, per channel and symmetric (zero points
0); activations int8 or uint8 with one scale, which is known ahead or chosen while the model runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from opsmith.executorch.transforms.graph_constants import (
    GraphConstants,
    ModuleConstants,
    loaded_operator,
    symmetric,
)

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node

_BYTES = (torch.int8, torch.uint8)


def fuse_int8_linear(module: GraphModule) -> int:
    """Rewrites the linear layers of ``module``, what ``convert_pt2e`` returns, in place; returns how many.

    The result of a layer differs from the unfused one's by rounding only.  Raises
    :class:`~opsmith.errors.OperatorUnknown` where no loaded backend has the operator.
    """
    constants = ModuleConstants(module)
    fused = fuse_static_linear(module.graph, constants) + fuse_dynamic_linear(
        module.graph, constants
    )
    if fused:
        constants.drop_unread()
    return fused


def fuse_static_linear(graph: Graph, constants: GraphConstants) -> int:
    """The same of any ``graph``, where activations have a scale that is known; unread nodes stay in it."""
    return _fuse(graph, constants, "linear_int8.default", per_tensor)


def fuse_dynamic_linear(graph: Graph, constants: GraphConstants) -> int:
    """Where the scale is a Tensor, chosen while the model runs: one, or one for each row."""
    return _fuse(graph, constants, "linear_int8.per_token", _chosen)


def _fuse(graph: Graph, constants: GraphConstants, operator: str, quantized: Any) -> int:
    fused = loaded_operator(operator)
    count = 0
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default):
        activations, weight, *rest = node.args
        input_ = quantized(activations)
        weights = symmetric_weight(weight, constants)
        if input_ is None or weights is None:
            continue
        bias = rest[0] if rest else node.kwargs.get("bias")
        with graph.inserting_before(node):
            replacement = graph.call_function(fused, (*input_, *weights, bias))
        replacement.meta = dict(node.meta)
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)
        count += 1
    return count


def per_tensor(node: Any) -> tuple[Node, float, int] | None:
    """The Tensor, scale and zero point of a dequantized Tensor of 8 bits."""
    operator = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    if getattr(node, "target", None) is not operator or node.kwargs.get("out_dtype"):
        return None
    tensor, scale, zero_point, _, _, dtype = node.args
    return (tensor, scale, zero_point) if dtype in _BYTES else None


def _chosen(node: Any) -> tuple[Node, Node, Node] | None:
    """The Tensor of 8 bits, scales and zero points, where those are Tensors too."""
    operators = torch.ops.quantized_decomposed
    target = getattr(node, "target", None)
    if target is operators.dequantize_per_tensor.tensor:
        tensor, scales, zero_points, _, _, dtype = node.args
        is_float = not node.kwargs.get("out_dtype")
    elif target is operators.dequantize_per_token.default:
        tensor, scales, zero_points, _, _, dtype, result = node.args
        is_float = result == torch.float32
    else:
        return None
    return (tensor, scales, zero_points) if dtype in _BYTES and is_float else None


def symmetric_weight(node: Any, constants: GraphConstants) -> tuple[Node, Node] | None:
    """The int8 weight and the scales of its channels, both as nodes."""
    operator = torch.ops.quantized_decomposed.dequantize_per_channel.default
    if getattr(node, "target", None) is not operator or node.kwargs.get("out_dtype"):
        return None
    weight, scales, given, axis, _, _, dtype = node.args
    values = constants.value(scales)
    zero_points = None if given is None else constants.value(given)
    if values is None or (given is not None and zero_points is None):
        return None
    is_fit = values.dtype == torch.float32 and symmetric(zero_points)
    return (weight, scales) if is_fit and axis == 0 and dtype == torch.int8 else None
