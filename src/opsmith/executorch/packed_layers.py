"""Linear layers and convolutions of an exported graph, with packed weights and with what follows them.

A convolution becomes ``optimized::convolution_packed``, a linear layer ``optimized::linear_packed``; a
sum and an activation after it become arguments of that call.  Called by ``export``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from opsmith.executorch.lowering_operators import OfResult, image_of_windows
from opsmith.executorch.program_constants import ProgramConstants
from opsmith.executorch.transforms.packed_convolution import packed_convolution_weight
from opsmith.executorch.transforms.packed_linear import packed_weight
from opsmith.schema.torch_names import OpOverload

NAMESPACE = "optimized"
CONVOLUTION, LINEAR = "convolution_packed", "linear_packed"

_ATEN = torch.ops.aten
# A group of fewer channels would fill its panels with zeros mostly.
_FEWEST_OF_GROUP = 8


def _of_convolution(
    input: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    other: Tensor | None,
    out_channels: int,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
) -> Tensor:
    return image_of_windows(input, out_channels, (kernel_size, stride, padding, dilation))


def _of_linear(
    input: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    out_features: int,
    other: Tensor | None = None,
    activation: str = "none",
) -> Tensor:
    return input.new_empty((*input.shape[:-1], out_features))


RESULTS: Mapping[str, OfResult] = {CONVOLUTION: _of_convolution, LINEAR: _of_linear}
"""The operators, with the functions that shape their results."""


def pack_layers(
    exported: ExportedProgram, operators: Collection[str], *, fuse: bool
) -> tuple[int, int]:
    """Packs the layers whose weights are constants that nothing else reads, and of a dtype that kernels take.

    ``operators`` are those of :data:`RESULTS` that may be called, ``fuse`` says whether they take in what
    follows.  Returns how many layers were packed, and how many calls became part of them.
    """
    constants = ProgramConstants(exported)
    layers = fused = 0
    for node in list(exported.graph.nodes):
        layer = _layer(node, constants, operators)
        if layer is None:
            continue
        chain = _chain(node) if fuse else _Chain(node)
        _replace(layer, chain, constants)
        layers += 1
        fused += len(chain.taken_in)
    if layers:
        constants.drop_unread()
    return layers, fused


# ---- what follows


class _Chain:
    """A layer's node, the sum and the activation after it, each of which only the next one reads."""

    def __init__(self, node: fx.Node) -> None:
        self.layer = node
        self.taken_in: list[fx.Node] = []
        self.other: fx.Node | None = None
        self.activation = "none"

    @property
    def last(self) -> fx.Node:
        return self.taken_in[-1] if self.taken_in else self.layer

    def next(self) -> fx.Node | None:
        """The only reader of the last one."""
        users = list(self.last.users)
        return users[0] if len(users) == 1 and users[0].op == "call_function" else None


def _chain(node: fx.Node) -> _Chain:
    chain = _Chain(node)
    following = chain.next()
    other = _added_to(chain.last, following)
    if following is not None and other is not None and not _writes_between(node, following):
        chain.other = other
        chain.taken_in.append(following)
    following = chain.next()
    activation = _activation(following)
    if (
        following is not None
        and activation is not None
        and not _writes_between(chain.last, following)
    ):
        chain.activation = activation
        chain.taken_in.append(following)
    return chain


def _writes_between(first: fx.Node, last: fx.Node) -> bool:
    """Whether what is called between them may write to a Tensor: the layer's call moves to the last one."""
    node = first.next
    while node is not last:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            return True
        node = node.next
    return False


def _added_to(node: fx.Node, following: fx.Node | None) -> fx.Node | None:
    """The node that ``following`` adds to ``node``, of the same shape and dtype; None for other calls."""
    if following is None or following.target not in (_ATEN.add.Tensor, _ATEN.add_.Tensor):
        return None
    first, second = following.args[:2]
    if following.kwargs.get("alpha", 1) != 1 or not isinstance(first, fx.Node):
        return None
    if following.target is _ATEN.add_.Tensor and first is not node:
        return None  # it writes to the other one
    other = second if first is node else first
    if not isinstance(other, fx.Node) or other is node:
        return None
    own, added = node.meta["val"], other.meta.get("val")
    is_alike = isinstance(added, Tensor) and added.dtype == own.dtype and added.shape == own.shape
    return other if is_alike else None


# Those of which the kernels' names are ATen's.
_ACTIVATIONS = frozenset("relu relu6 hardswish hardsigmoid silu sigmoid tanh".split())


def _activation(node: fx.Node | None) -> str | None:
    """The name under which the kernels know what ``node`` calls; None for what they do not."""
    if node is None or not isinstance(node.target, OpOverload):
        return None
    namespace, _, name = node.target._schema.name.partition("::")
    name = name.removesuffix("_")
    arguments: tuple[Any, ...] = node.args
    if namespace != "aten":
        return None
    if name == "gelu":
        approximate = node.kwargs.get("approximate", "none")
        return "gelu" if approximate == "none" else "gelu_tanh"
    if name == "hardtanh":
        return "relu6" if [float(each) for each in arguments[1:3]] == [0.0, 6.0] else None
    return name if name in _ACTIVATIONS else None


# ---- the layers


@dataclass(frozen=True)
class _Layer:
    """A call of an operator with a packed weight.

    ``arguments`` are its, of the packed weight, of what is added and of the activation.
    """

    operator: str
    name: str
    packed: Tensor
    arguments: Callable[[fx.Node, fx.Node | None, str], tuple[Any, ...]]


def _layer(node: fx.Node, constants: ProgramConstants, operators: Collection[str]) -> _Layer | None:
    if node.target is _ATEN.linear.default and LINEAR in operators:
        return _linear(node, constants)
    if node.target in (_ATEN.conv2d.default, _ATEN.conv2d.padding) and CONVOLUTION in operators:
        return _convolution(node, constants)
    return None


def _own_weight(node: object, constants: ProgramConstants, *dtypes: torch.dtype) -> Tensor | None:
    """The constant that ``node`` stands for, of one of the dtypes, which only one call reads."""
    value = constants.value(node)
    if value is None or value.dtype not in dtypes or value.numel() == 0:
        return None
    return value if isinstance(node, fx.Node) and len(node.users) == 1 else None


def _linear(node: fx.Node, constants: ProgramConstants) -> _Layer | None:
    input_, weight, bias = _arguments(node, "input", "weight", "bias")
    value = _own_weight(weight, constants, torch.float32, torch.bfloat16, torch.float16)
    if value is None or value.dim() != 2:
        return None
    features = value.shape[0]
    return _Layer(
        LINEAR,
        f"packed_{weight.name}",
        packed_weight(value),
        lambda packed, *following: (input_, packed, bias, features, *following),
    )


def _convolution(node: fx.Node, constants: ProgramConstants) -> _Layer | None:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    input_, weight, bias, *rest, groups = _arguments(node, *names)
    value = _own_weight(weight, constants, torch.float32)
    if value is None or input_.meta["val"].dim() != 4:
        return None
    channels, depth, *kernel = value.shape
    is_depthwise = depth == 1 and channels == groups
    if groups > 1 and not is_depthwise and channels // groups < _FEWEST_OF_GROUP:
        return None
    stride, padding, dilation = rest
    if padding == "valid":
        padding = [0, 0]
    if isinstance(padding, str):
        return None  # `same`, which may differ by side
    stride, padding, dilation = (
        list(each) * (2 // len(each)) for each in (stride, padding, dilation)
    )
    settings = (channels, kernel, stride, padding, dilation, groups)
    return _Layer(
        CONVOLUTION,
        f"packed_{weight.name}",
        packed_convolution_weight(value, groups),
        lambda packed, other, activation: (input_, packed, bias, other, *settings, activation),
    )


def _arguments(node: fx.Node, *names: str) -> list[Any]:
    """The arguments of ``node``'s call of these names, with their defaults."""
    target = node.target
    assert isinstance(target, OpOverload)
    given = dict(zip((each.name for each in target._schema.arguments), node.args, strict=False))
    defaults = {each.name: each.default_value for each in target._schema.arguments}
    return [{**defaults, **given, **node.kwargs}[name] for name in names]


def _replace(layer: _Layer, chain: _Chain, constants: ProgramConstants) -> None:
    packed = constants.add(layer.name, layer.packed)
    target = getattr(getattr(torch.ops, NAMESPACE), layer.operator).default
    last, graph = chain.last, chain.last.graph
    arguments = layer.arguments(packed, chain.other, chain.activation)
    with graph.inserting_before(last):
        node = graph.call_function(target, arguments)
    node.meta = dict(last.meta)
    last.replace_all_uses_with(node)
    for each in reversed([chain.layer, *chain.taken_in]):
        graph.erase_node(each)
