"""Rewrites graphs that pt2e has quantized so that integers stay integers from one layer to the next.

dequantize → convolution, linear layer or sum (→ relu, hardtanh) → quantize becomes one call of the
``quantized`` library, dequantize → max pool → quantize with the same parameters the pool of the integers, and
what only moves elements moves the integers.  Weights have to be constant, int8 and symmetric (zero points 0);
activations int8 or uint8, with one scale that is known ahead.

Note [Images of bytes]
Convolutions and pools lay their results out with the channels innermost, whatever they are given.  Whoever
else reads such a result gets it as it lay in the graph before: a copy, where that was another order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from opsmith.executorch.transforms.graph_constants import (
    GraphConstants,
    ModuleConstants,
    loaded_operator,
    symmetric,
)
from opsmith.executorch.transforms.int8_linear import (
    fuse_dynamic_linear,
    fuse_static_linear,
    per_tensor,
)
from opsmith.executorch.transforms.int8_packing import packed_int8_kernel, packed_int8_weight

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule, Node

_ATEN = torch.ops.aten
_PT2E = torch.ops.quantized_decomposed

REQUANTIZED = ("conv2d_int8", "linear_int8.requantized", "add_int8", "max_pool2d_int8")
"""The operators that :func:`fuse_requantized` calls."""

# By name, since they may not be defined yet.
_BETWEEN = tuple(
    f"quantized_decomposed.{name}.default"
    for name in ("dequantize_per_tensor", "quantize_per_tensor")
)

# They give the elements that they take, in some other order or shape.
_MOVES = (
    _ATEN.clone.default,
    _ATEN.contiguous.default,
    _ATEN.flatten.using_ints,
    _ATEN.permute.default,
    _ATEN.reshape.default,
    _ATEN.squeeze.dim,
    _ATEN.squeeze.dims,
    _ATEN.transpose.int,
    _ATEN.unsqueeze.default,
    _ATEN.view.default,
)


def fuse_int8_layers(module: GraphModule) -> int:
    """Rewrites the layers of ``module``, what ``convert_pt2e`` returns, in place; returns how many.

    With them the linear layers of :func:`~opsmith.executorch.transforms.int8_linear.fuse_int8_linear`.
    A result may be one step of its quantization from the unfused one's, which is rounded more often.  Raises
    :class:`~opsmith.errors.OperatorUnknown` where no loaded backend has the operators.
    """
    constants = ModuleConstants(module)
    passes = fuse_requantized, fuse_static_linear, fuse_dynamic_linear
    fused = sum(each(module.graph, constants) for each in passes)
    if fused:
        constants.drop_unread()
    return fused


def fuse_requantized(graph: Graph, constants: GraphConstants) -> int:
    """The layers of any ``graph`` whose results are quantized again; unread nodes stay in it."""
    rewriting = _Rewriting(graph, constants)
    count = 0
    for node in graph.find_nodes(op="call_function", target=_PT2E.quantize_per_tensor.default):
        count += rewriting.rewrite(node)
    rewriting.lay_out()
    return count


@dataclass(frozen=True)
class _Quantization:
    """How a Tensor is quantized; ``least`` and ``greatest`` are integers."""

    scale: float
    zero_point: int
    least: int
    greatest: int
    dtype: torch.dtype

    def nearest(self, value: float) -> int:
        """The integer for ``value``."""
        # As the reference has it, which computes in float32.
        inverse = torch.tensor(value, dtype=torch.float32) * (1.0 / self.scale)
        if math.isinf(inverse):
            return self.greatest if inverse > 0 else self.least
        rounded = int(torch.round(inverse)) + self.zero_point
        return min(max(rounded, self.least), self.greatest)

    def within(self, low: float, high: float) -> _Quantization:
        """Of what is clamped to ``low``…``high`` before."""
        return replace(self, least=self.nearest(low), greatest=self.nearest(high))

    @property
    def arguments(self) -> tuple[float, int, int, int]:
        """As operators take them for their result."""
        return self.scale, self.zero_point, self.least, self.greatest


class _Rewriting:
    """One pass over ``graph``."""

    def __init__(self, graph: Graph, constants: GraphConstants) -> None:
        self._graph = graph
        self._constants = constants
        # Those of which the channels lie innermost, whatever the graph says.
        self._images: dict[Node, bool] = {}
        # Those with a range that an activation behind them may narrow.
        self._results: dict[Node, _Quantization] = {}
        self._packed: dict[tuple[Node, int], Node] = {}
        self._scales: dict[tuple[Node, Node], Node] = {}

    def rewrite(self, node: Any) -> bool:
        """Rewrites the layer that ends with the quantization ``node``, where that can be done.

        The result says whether it is a layer; those that only move elements or clamp them are none.
        """
        source, scale, zero_point, least, greatest, dtype = node.args
        if dtype not in (torch.int8, torch.uint8):
            return False
        result = _Quantization(scale, zero_point, least, greatest, dtype)
        if self._move(node, source, result):
            return False
        layer: Any = _sole_reader(source)
        bounds = None if layer is None else _bounds(layer)
        if layer is not None and bounds is not None:
            if self._narrow(node, layer.args[0], result, bounds):
                return False
            result = result.within(*bounds)
            layer = _sole_reader(layer.args[0])
        rewrites = {
            _ATEN.conv2d.default: self._convolution,
            _ATEN.linear.default: self._linear,
            _ATEN.add.Tensor: self._sum,
            _ATEN.add_.Tensor: self._sum,
            _ATEN.max_pool2d.default: self._pool,
        }
        rewrite = rewrites.get(layer.target) if layer is not None else None
        if layer is None or rewrite is None or set(layer.kwargs) - {"alpha", "bias"}:
            return False
        with self._graph.inserting_before(node):
            call = rewrite(layer, result)
        if call is None:
            return False
        operator, arguments, is_image = call
        with self._graph.inserting_before(node):
            replacement = self._graph.call_function(loaded_operator(operator), arguments)
        self._replace(node, replacement)
        if not isinstance(arguments[-1], bool):  # which a pool's last one is
            self._results[replacement] = result
        if is_image:
            self._images[replacement] = has_channels_innermost(replacement)
        return True

    def lay_out(self) -> None:
        """See Note [Images of bytes]."""
        for node, lies_so in self._images.items():
            others = [each for each in node.users if each not in self._images]
            if not others or lies_so:
                continue
            with self._graph.inserting_after(node):
                copy = self._graph.call_function(
                    _ATEN.clone.default, (node,), {"memory_format": torch.contiguous_format}
                )
            copy.meta = dict(node.meta)
            for each in others:
                each.replace_input_with(node, copy)

    def _replace(self, node: Any, replacement: Any) -> None:
        if replacement not in self._results:
            replacement.meta = dict(node.meta)
            source = node.args[0].meta.get("val")
            if "val" not in node.meta and source is not None:
                replacement.meta["val"] = source.to(node.args[5])
        node.replace_all_uses_with(replacement)
        self._erase(node)

    def _erase(self, node: Any) -> None:
        """Removes ``node``, and what it alone has read: what writes to its argument too, as ``relu_``."""
        read = [each for each in node.all_input_nodes if each.op == "call_function"]
        self._graph.erase_node(node)
        for each in read:
            if not each.users and not each._erased:
                self._erase(each)

    def _move(self, node: Any, source: Any, result: _Quantization) -> bool:
        """Rewrites what dequantizes, moves and quantizes as before; says whether it does no more."""
        moved = _sole_reader(source) if getattr(source, "target", None) in _MOVES else None
        given = _quantized(source if moved is None else moved.args[0])
        if given is None or given[1] != result:
            return False
        if moved is None:
            node.replace_all_uses_with(given[0])
            self._erase(node)
            return True
        with self._graph.inserting_before(node):
            replacement = self._graph.call_function(
                moved.target, (given[0], *moved.args[1:]), moved.kwargs
            )
        self._replace(node, replacement)
        return True

    def _narrow(
        self, node: Any, source: Any, result: _Quantization, bounds: tuple[Any, ...]
    ) -> bool:
        """Has the layer before an activation clamp its result, where that is quantized in the same way."""
        given = _quantized(_sole_reader(source))
        layer = None if given is None else _sole_reader(given[0])
        if given is None or layer not in self._results or given[1] != result:
            return False
        before = self._results[layer]
        narrow = result.within(*bounds)
        least, greatest = max(before.least, narrow.least), min(before.greatest, narrow.greatest)
        if least > greatest:
            return False
        self._results[layer] = replace(before, least=least, greatest=greatest)
        layer.args = (*layer.args[:-2], least, greatest)
        self._replace(node, layer)
        return True

    # ---- each kind of layer: operator, arguments, and whether the result has its channels innermost

    def _convolution(
        self, node: Any, result: _Quantization
    ) -> tuple[str, tuple[Any, ...], bool] | None:
        defaults = (node.kwargs.get("bias"), [1, 1], [0, 0], [1, 1], 1)
        given = (*node.args, *defaults[len(node.args) - 2 :])
        image, weight, bias, stride, padding, dilation, groups = given
        activations = _quantized(image)
        weights = self._weight(weight)
        if activations is None or weights is None or activations[1].dtype != result.dtype:
            return None
        if _rank(node) != 4 or weights[0].dim() != 4 or not self._is_bias(bias):
            return None
        packed = self._packed_once(weight, packed_int8_kernel(weights[0], groups), groups)
        channels, _, *kernel = weights[0].shape
        window = kernel, stride, padding, dilation
        arguments = (
            *self._activations(activations),
            *(packed, self._scales_node(weight, weights[1]), bias, channels),
            *(list(each) if isinstance(each, Sequence) else [each] for each in window),
            groups,
        )
        return "conv2d_int8.default", (*arguments, *result.arguments), True

    def _linear(self, node: Any, result: _Quantization) -> tuple[str, tuple[Any, ...], bool] | None:
        given = (*node.args, None)
        activations = _quantized(given[0])
        weights = self._weight(given[1])
        bias = given[2] if given[2] is not None else node.kwargs.get("bias")
        if activations is None or weights is None or activations[1].dtype != result.dtype:
            return None
        if not self._is_bias(bias):
            return None
        packed = self._packed_once(given[1], packed_int8_weight(weights[0]), 1)
        scales = self._scales_node(given[1], weights[1])
        arguments = (*self._activations(activations), packed, scales, bias, len(weights[0]))
        return "linear_int8.requantized", (*arguments, *result.arguments), False

    def _sum(self, node: Any, result: _Quantization) -> tuple[str, tuple[Any, ...], bool] | None:
        if len(node.args) != 2 or node.kwargs.get("alpha", 1) != 1:
            return None
        if node.target is _ATEN.add_.Tensor and _sole_reader(node.args[0]) is None:
            return None  # others read what it writes
        both = [_quantized(each) for each in node.args]
        a, b = both
        if a is None or b is None:
            return None
        shapes = [_shape(each) for each in node.args]
        if None in shapes or shapes[0] != shapes[1]:
            return None
        if {a[1].dtype, b[1].dtype} != {result.dtype}:
            return None
        if a[0] not in self._images and b[0] in self._images:
            a, b = b, a  # the result lies as the first one does
        arguments = (*self._activations(a), *self._activations(b), *result.arguments)
        return "add_int8.default", arguments, a[0] in self._images

    def _pool(self, node: Any, result: _Quantization) -> tuple[str, tuple[Any, ...], bool] | None:
        defaults: tuple[Any, ...] = ([], [0, 0], [1, 1], False)
        arguments: tuple[Any, ...] = (*node.args, *defaults[len(node.args) - 2 :])
        image, *window, ceil_mode = arguments
        activations = _quantized(image)
        if activations is None or activations[1] != result or _rank(node) != 4:
            return None
        kernel, stride, *others = (
            list(each) if isinstance(each, Sequence) else [each] for each in window
        )
        arguments = activations[0], kernel, stride or kernel, *others, ceil_mode
        return "max_pool2d_int8.default", arguments, True

    def _activations(self, quantized: tuple[Node, _Quantization]) -> tuple[Node, float, int]:
        return quantized[0], quantized[1].scale, quantized[1].zero_point

    # ---- constants

    def _weight(self, node: Any) -> tuple[Tensor, Tensor] | None:
        """The integers of a symmetric int8 weight, and the scale of each of its channels."""
        target = getattr(node, "target", None)
        if target not in (
            _PT2E.dequantize_per_channel.default,
            _PT2E.dequantize_per_tensor.default,
        ) or node.kwargs.get("out_dtype"):
            return None
        values = self._constants.value(node.args[0])
        if values is None or values.dtype != torch.int8:
            return None
        if target is _PT2E.dequantize_per_tensor.default:
            scale, zero_point = node.args[1:3]
            return (values, torch.full((len(values),), scale)) if zero_point == 0 else None
        scales = self._constants.value(node.args[1])
        zeros = None if node.args[2] is None else self._constants.value(node.args[2])
        if scales is None or (node.args[2] is not None and zeros is None):
            return None
        is_fit = node.args[3] == 0 and scales.dtype == torch.float32 and symmetric(zeros)
        return (values, scales) if is_fit else None

    def _is_bias(self, node: Any) -> bool:
        if node is None:
            return True
        value = self._constants.value(node)
        return value is not None and value.dtype == torch.float32 and value.dim() == 1

    def _packed_once(self, weight: Any, packed: Tensor, groups: int) -> Node:
        key = weight.args[0], groups
        if key not in self._packed:
            self._packed[key] = self._constants.add(f"packed_{weight.args[0].name}", packed)
        return self._packed[key]

    def _scales_node(self, weight: Any, scales: Tensor) -> Node:
        if weight.target is _PT2E.dequantize_per_channel.default:
            given: Node = weight.args[1]
            return given
        key = weight.args[0], weight
        if key not in self._scales:
            name = f"scales_{weight.args[0].name}"
            self._scales[key] = self._constants.add(name, scales.to(torch.float32))
        return self._scales[key]


def _quantized(node: Any) -> tuple[Any, _Quantization] | None:
    """The Tensor of 8 bits that ``node`` dequantizes, and how it is quantized."""
    found = per_tensor(node)
    if found is None:
        return None
    least, greatest, dtype = node.args[3:6]
    return found[0], _Quantization(found[1], found[2], least, greatest, dtype)


def _sole_reader(node: Any) -> Any:
    """``node``, where its result is read once."""
    return node if hasattr(node, "users") and len(node.users) == 1 else None


def _bounds(node: Any) -> tuple[Any, ...] | None:
    """The bounds to which an activation clamps its argument; None for what is no such activation."""
    target = node.target
    if target in (_ATEN.relu.default, _ATEN.relu_.default):
        return 0.0, math.inf
    if target in (_ATEN.relu6.default, _ATEN.relu6_.default):
        return 0.0, 6.0
    if target in (_ATEN.hardtanh.default, _ATEN.hardtanh_.default):
        return (*node.args[1:], *(-1.0, 1.0)[len(node.args) - 1 :])
    return None


def _shape(node: Any) -> Any:
    """None where nothing says it: pt2e does not say it of what it adds to a graph."""
    value = node.meta.get("val")
    if value is None and str(node.target) in _BETWEEN:
        return _shape(node.args[0])
    return None if value is None else tuple(value.shape)


def _rank(node: Any) -> int:
    shape = _shape(node)
    return -1 if shape is None else len(shape)


def has_channels_innermost(node: Any) -> bool:
    """Whether the graph had the value of ``node``, an image, channels-last."""
    value = node.meta.get("val")
    return value is not None and bool(
        value.is_contiguous(memory_format=torch.channels_last) and not value.is_contiguous()
    )
