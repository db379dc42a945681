"""Rewrites graphs that pt2e has quantized: dequantize → linear becomes one int8 linear.

``opsmith_quantized::linear_int8`` of the ``quantized`` library adds up the integers themselves, so neither
activations nor weights are made floats.  Weights have to be int8, per channel and symmetric (zero points
0); activations int8 or uint8 with one scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opsmith.errors import OperatorUnknown

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node


def fuse_int8_linear(module: GraphModule) -> int:
    """Rewrites the linear layers of ``module``, what ``convert_pt2e`` returns, in place; returns how many.

    The result of a layer differs from the unfused one's by rounding only.  Raises
    :class:`~opsmith.errors.OperatorUnknown` where no loaded backend has the operator.
    """
    import torch

    try:
        linear_int8 = torch.ops.opsmith_quantized.linear_int8.default
    except AttributeError:
        raise OperatorUnknown(
            "no backend that is loaded has `opsmith_quantized::linear_int8`",
            remedy="add `quantized` to the `libraries` of its backend.yaml, and opsmith.load() it first",
        ) from None
    fused = 0
    for node in list(module.graph.nodes):
        arguments = _arguments_of(node, module)
        if arguments is None:
            continue
        with module.graph.inserting_before(node):
            replacement = module.graph.call_function(linear_int8, arguments)
        replacement.meta = dict(node.meta)
        node.replace_all_uses_with(replacement)
        fused += 1
    if fused:
        module.graph.eliminate_dead_code()
        module.recompile()
    return fused


def _arguments_of(node: Node, module: GraphModule) -> tuple[Any, ...] | None:
    """What to call the int8 operator with in the place of ``node``; None where that is not possible."""
    import torch

    if node.target is not torch.ops.aten.linear.default:
        return None
    activations, weight, *rest = node.args
    input_ = _per_tensor(activations)
    weights = _symmetric_weight(weight, module)
    if input_ is None or weights is None:
        return None
    bias = rest[0] if rest else node.kwargs.get("bias")
    return (*input_, *weights, bias)


def _per_tensor(node: Any) -> tuple[Any, float, int] | None:
    """The Tensor, scale and zero point of a dequantized Tensor of 8 bits."""
    import torch

    operator = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    if getattr(node, "target", None) is not operator or node.kwargs.get("out_dtype"):
        return None
    tensor, scale, zero_point, _, _, dtype = node.args
    return (tensor, scale, zero_point) if dtype in {torch.int8, torch.uint8} else None


def _symmetric_weight(node: Any, module: GraphModule) -> tuple[Any, Any] | None:
    """The int8 weight and the scales of its rows, both as nodes."""
    import torch

    operator = torch.ops.quantized_decomposed.dequantize_per_channel.default
    if getattr(node, "target", None) is not operator or node.kwargs.get("out_dtype"):
        return None
    weight, scales, zero_points, axis, _, _, dtype = node.args
    values = _constant(scales, module)
    zeros = None if zero_points is None else _constant(zero_points, module)
    is_known = values is not None and (zero_points is None or zeros is not None)
    if not is_known or axis != 0 or dtype != torch.int8:
        return None
    if values is None or values.dtype != torch.float32 or (zeros is not None and zeros.any()):
        return None
    return weight, scales


def _constant(node: Node, module: GraphModule) -> torch.Tensor | None:
    """The parameter or buffer that a node reads; None for anything else."""
    if node.op != "get_attr":
        return None
    value: Any = module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value  # type: ignore[no-any-return]
