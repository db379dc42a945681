"""Rewrites graphs with torchao's linear layers of 8-bit activations and 4-bit weights (``8da4w``).

In the graph of a model that ``Int8DynamicActivationIntxWeightConfig`` has quantized, a layer chooses scales
and zero points for each row of its input, quantizes and dequantizes it, dequantizes its weight, and
multiplies floats.  ``opsmith_quantized::linear_8da4w`` of the ``quantized`` library does all of it in one
call, on the integers, with a weight of two values a byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from opsmith.executorch.transforms.graph_constants import (
    GraphConstants,
    ModuleConstants,
    loaded_operator,
    symmetric,
)

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node

# Columns of a panel and products of a step, as src/opsmith/kernels/quantized/grouped_matmul.h has them.
_PANEL, _STEP = 16, 8
_LEAST, _GREATEST = -8, 7

# How torchao's operators are asked for float32: a default of a schema is a number.
_FLOAT32 = (None, torch.float32, 6)


def packed_grouped_weight(weight: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Packs a ``weight`` of [features, depth], int8 in -8…7, for ``opsmith_quantized::linear_8da4w``.

    ``scales`` is [features, groups] of float32.  Gives uint8 [⌈features/16⌉, groups, ⌈group/8⌉, 64], with the
    values of a column that are four apart in one byte, and float32 [⌈features/16⌉, groups, 16].  Raises
    :class:`ValueError` for other shapes, dtypes and values.
    """
    if weight.dim() != 2 or weight.dtype != torch.int8 or scales.dtype != torch.float32:
        raise ValueError(
            "a weight to pack is [features, depth] of int8 with scales of float32, not "
            f"{list(weight.shape)} of {weight.dtype} with {scales.dtype}"
        )
    features, depth = weight.shape
    groups = scales.shape[1] if scales.dim() == 2 else 0
    if groups == 0 or scales.shape[0] != features or depth % groups:
        raise ValueError(
            f"scales of {list(scales.shape)} are not [features, groups] of a weight of {list(weight.shape)}"
        )
    if weight.numel() and not bool(((weight >= _LEAST) & (weight <= _GREATEST)).all()):
        raise ValueError(f"a value of the weight is not within {_LEAST}…{_GREATEST}")
    grouped = (weight.to(torch.uint8) + 8 & 15).view(features, groups, depth // groups)
    filled = nn.functional.pad(grouped, (0, -grouped.shape[2] % _STEP, 0, 0, 0, -features % _PANEL))
    steps = filled.shape[2] // _STEP
    halves = filled.view(-1, _PANEL, groups, steps, 2, _STEP // 2).permute(4, 0, 2, 3, 1, 5)
    packed = halves[0] | halves[1] << 4
    panels = nn.functional.pad(scales, (0, 0, 0, -features % _PANEL)).view(-1, _PANEL, groups)
    return (
        packed.reshape(-1, groups, steps, _PANEL * _STEP // 2).contiguous(),
        panels.transpose(1, 2).contiguous(),
    )


def fuse_8da4w_linear(module: GraphModule) -> int:
    """Rewrites the layers of ``module``, ``torch.export.export(model, inputs).module()``, in place.

    Returns how many.  Results differ from the unfused ones' by the rounding of sums of floats.  Raises
    :class:`~opsmith.errors.OperatorUnknown` where no loaded backend has the operator.
    """
    constants = ModuleConstants(module)
    fused = fuse_grouped_linear(module.graph, constants)
    if fused:
        constants.drop_unread()
    return fused


def fuse_grouped_linear(graph: Graph, constants: GraphConstants) -> int:
    """The same of any ``graph`` with its ``constants``; what is not read any more stays in it."""
    fused = loaded_operator("linear_8da4w.default")
    packed: dict[tuple[Node, Node], tuple[Node, Node]] = {}
    count = 0
    for node in list(graph.nodes):
        layer = _layer(node, constants)
        if layer is None:
            continue
        input_, weight, scales = layer
        if (weight, scales) not in packed:
            values = constants.value(weight), constants.value(scales)
            assert values[0] is not None and values[1] is not None
            both = packed_grouped_weight(values[0].detach(), values[1].detach())
            name = f"packed_{weight.name}"
            packed[weight, scales] = (
                constants.add(name, both[0]),
                constants.add(f"{name}_scales", both[1]),
            )
        arguments = (input_, *packed[weight, scales], _bias(node), _shape(weight, constants)[0])
        with graph.inserting_before(node):
            replacement = graph.call_function(fused, arguments)
        replacement.meta = dict(node.meta)
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)
        count += 1
    return count


def _bias(node: Node) -> Any:
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")


def _shape(weight: Node, constants: GraphConstants) -> torch.Size:
    value = constants.value(weight)
    assert value is not None
    return value.shape


def _layer(node: Node, constants: GraphConstants) -> tuple[Node, Node, Node] | None:
    """The input, weight and scales of a linear layer that can be rewritten; None for any other node."""
    if node.target is not torch.ops.aten.linear.default:
        return None
    weights = _weight(node.args[1], constants)
    input_ = _quantized_rows(node.args[0])
    return None if weights is None or input_ is None else (input_, *weights)


# ---- what torchao writes


def _called(node: Any, name: str) -> dict[str, Any] | None:
    """The arguments of a call of ``torchao::name`` by name, with their defaults; None for other nodes."""
    target: Any = getattr(node, "target", None)
    if str(target) != f"torchao.{name}.default":
        return None
    given = dict(zip((each.name for each in target._schema.arguments), node.args, strict=False))
    defaults = {each.name: each.default_value for each in target._schema.arguments}
    return {**defaults, **given, **node.kwargs}


def _quantized_rows(node: Any) -> Node | None:
    """The node that is quantized to int8 and back, asymmetrically and by rows, to give ``node``; or None."""
    restored = _called(node, "dequantize_affine")
    quantized = restored and _called(restored["input"], "quantize_affine")
    if not restored or not quantized:
        return None
    chosen_by = {restored[each] for each in ("scale", "zero_point")}
    parameters = quantized["scale"], quantized["zero_point"]
    if chosen_by != set(parameters) or None in parameters:
        return None
    sources = {(str(each.target), each.args) for each in parameters}
    chooser = parameters[0].args[0] if parameters[0].args else None
    chosen = _called(chooser, "choose_qparams_affine")
    getitem = "<built-in function getitem>"
    if chosen is None or sources != {(getitem, (chooser, 0)), (getitem, (chooser, 1))}:
        return None
    if parameters[0].args[1] != 0 or chosen["input"] is not quantized["input"]:
        return None
    input_: Node = chosen["input"]
    value = input_.meta.get("val")
    rows = [1] * (value.dim() - 1) + [value.shape[-1]] if value is not None else None
    ranges = {
        (each["quant_min"], each["quant_max"], each[dtype], tuple(each["block_size"]))
        for each, dtype in (
            (chosen, "target_dtype"),
            (quantized, "output_dtype"),
            (restored, "input_dtype"),
        )
    }
    full = (-128, 127, torch.int8, tuple(rows or ()))
    whole = (None, None, *full[2:])
    is_plain = (
        value is not None
        and value.dtype == torch.float32
        and ranges <= {full, whole}
        and chosen["mapping_type"] == "ASYMMETRIC"
        and chosen["eps"] in (None, torch.finfo(torch.float32).smallest_normal)
        and chosen["scale_dtype"] in (None, torch.float32)
        and chosen["zero_point_dtype"] in (None, torch.int8, torch.int32, torch.int64)
        and restored["output_dtype"] in _FLOAT32
    )
    return input_ if is_plain else None


def _weight(node: Any, constants: GraphConstants) -> tuple[Node, Node] | None:
    """The constant values and scales of a symmetric weight of 4 bits, in groups along its rows."""
    restored = _called(node, "dequantize_affine")
    if not restored:
        return None
    weight, scales = constants.value(restored["input"]), constants.value(restored["scale"])
    given = restored["zero_point"]
    zero_points = None if given is None else constants.value(given)
    if weight is None or scales is None or (given is not None and zero_points is None):
        return None
    if weight.dim() != 2 or weight.dtype != torch.int8 or scales.dtype != torch.float32:
        return None
    block = list(restored["block_size"])
    is_grouped = (
        block[:1] == [1]
        and block[1] > 0
        and weight.shape[1] % block[1] == 0
        and scales.shape == (weight.shape[0], weight.shape[1] // block[1])
    )
    is_small = bool(((weight >= _LEAST) & (weight <= _GREATEST)).all())
    if not is_grouped or not is_small or not symmetric(zero_points):
        return None
    if restored["output_dtype"] not in _FLOAT32:
        return None
    return restored["input"], restored["scale"]
