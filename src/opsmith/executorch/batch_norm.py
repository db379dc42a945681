"""Batch norm of an exported graph, folded into the convolution before it.

In evaluation, batch norm scales each channel and adds to it, which the convolution's weight and bias can do
as well.  The graph gets weights of its own; the module that was exported keeps its.  Called by ``export``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

_ATEN = torch.ops.aten

# Of these the weight has the channels of the result first.
_CONVOLUTIONS = (
    _ATEN.conv1d.default,
    _ATEN.conv1d.padding,
    _ATEN.conv2d.default,
    _ATEN.conv2d.padding,
    _ATEN.conv3d.default,
    _ATEN.conv3d.padding,
)


def fold_batch_norm(exported: ExportedProgram) -> int:
    """Folds each batch norm that directly follows a convolution into it, and says how many.

    Of graphs in evaluation, where nothing else reads the convolution's result, and the weights and statistics
    are the module's and read once.  All others stay.  Weights are computed in float64, and get their dtype
    back.
    """
    constants = _Constants(exported)
    norms = exported.graph.find_nodes(op="call_function", target=_ATEN.batch_norm.default)
    folded = sum(_fold(node, constants) for node in norms)
    if folded:
        constants.drop_unread()
        exported.graph_module.recompile()
    return folded


def _fold(norm: fx.Node, constants: _Constants) -> bool:
    """Folds ``norm`` into the convolution before it, where that can be done."""
    given: tuple[Any, ...] = norm.args
    convolution, gain, shift, mean, variance, training, _, eps, _ = given
    if training or not isinstance(convolution, fx.Node):
        return False
    if convolution.target not in _CONVOLUTIONS or len(convolution.users) != 1:
        return False
    # Their defaults are left out: without a bias, arguments that follow it are the convolution's own.
    arguments: tuple[Any, ...] = convolution.args
    image, weight, bias, *rest = (*arguments, None)[: max(3, len(arguments))]
    read = [weight, mean, variance, *(each for each in (bias, gain, shift) if each is not None)]
    if not all(constants.is_own(each) for each in read):
        return False
    kernel = constants.double(weight)
    if convolution.meta["val"].dim() != kernel.dim():
        return False  # without a batch, its channels are not where batch norm has them
    scale = (constants.double(variance) + eps).rsqrt()
    if gain is not None:
        scale = scale * constants.double(gain)
    offset = -constants.double(mean)
    if bias is not None:
        offset = offset + constants.double(bias)
    offset = offset * scale
    if shift is not None:
        offset = offset + constants.double(shift)
    dtype = constants[weight].dtype
    constants.replace(weight, (kernel * scale.view(-1, *[1] * (kernel.dim() - 1))).to(dtype))
    # Whichever there is: it has a value for each channel.
    place = next(each for each in (bias, shift, gain, mean) if each is not None)
    constants.replace(place, offset.to(dtype))
    convolution.args = (image, weight, place, *rest)
    norm.replace_all_uses_with(convolution)
    norm.graph.erase_node(norm)
    constants.released += [each for each in (gain, shift, mean, variance) if each is not None]
    return True


class _Constants:
    """The parameters and buffers of an exported graph, by the placeholders that stand for them.

    ``released`` are those that some node has ceased to read.
    """

    def __init__(self, exported: ExportedProgram) -> None:
        self._exported = exported
        signature = exported.graph_signature
        changed = set(signature.buffers_to_mutate.values())
        self._names = {
            placeholder: name
            for names in (signature.inputs_to_parameters, signature.inputs_to_buffers)
            for placeholder, name in names.items()
            if name in exported.state_dict and name not in changed
        }
        self.released: list[fx.Node] = []

    def __getitem__(self, node: fx.Node) -> Tensor:
        value: Tensor = self._exported.state_dict[self._names[node.name]]
        return value.detach()

    def double(self, node: fx.Node) -> Tensor:
        """Its value in float64."""
        return self[node].double()

    def is_own(self, node: object) -> bool:
        """Whether it is a constant that one node reads, and once."""
        return (
            isinstance(node, fx.Node)
            and node.name in self._names
            and len(node.users) == 1
            and next(iter(node.users)).all_input_nodes.count(node) == 1
        )

    def replace(self, node: fx.Node, value: Tensor) -> None:
        """Makes ``value``, of the same shape, the constant that ``node`` stands for."""
        name = self._names[node.name]
        is_parameter = isinstance(self._exported.state_dict[name], torch.nn.Parameter)
        self._exported.state_dict[name] = (
            torch.nn.Parameter(value, requires_grad=False) if is_parameter else value
        )
        node.meta["val"] = node.meta["val"].to(value.dtype)

    def drop_unread(self) -> None:
        """Removes the released ones that no node reads."""
        names = set()
        for node in self.released:
            if not node.users:
                names.add(node.name)
                self._exported.state_dict.pop(self._names[node.name])
                self._exported.graph.erase_node(node)
        signature = self._exported.graph_signature
        signature.input_specs = [
            spec for spec in signature.input_specs if spec.arg.name not in names
        ]
