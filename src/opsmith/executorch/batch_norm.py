"""Batch norm of an exported graph, folded into the convolution before it.

In evaluation, batch norm scales each channel and adds to it, which the convolution's weight and bias can do
as well.  The graph gets weights of its own; the module that was exported keeps its.  Called by ``export``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from opsmith.executorch.program_constants import ProgramConstants

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
    constants = ProgramConstants(exported)
    norms = exported.graph.find_nodes(op="call_function", target=_ATEN.batch_norm.default)
    folded = sum(_fold(node, constants) for node in norms)
    if folded:
        constants.drop_unread()
    return folded


def _fold(norm: fx.Node, constants: ProgramConstants) -> bool:
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
    read = [each for each in (weight, mean, variance, bias, gain, shift) if each is not None]
    values = {each: constants.value(each) for each in read if _is_read_once(each)}
    wide = {each: value.double() for each, value in values.items() if value is not None}
    if len(wide) < len(read):
        return False
    kernel = wide[weight]
    if convolution.meta["val"].dim() != kernel.dim():
        return False  # without a batch, its channels are not where batch norm has them
    scale = (wide[variance] + eps).rsqrt() * wide.get(gain, 1.0)
    offset = (wide.get(bias, 0.0) - wide[mean]) * scale + wide.get(shift, 0.0)
    dtype = weight.meta["val"].dtype
    scaled = (kernel * scale.view(-1, *[1] * (kernel.dim() - 1))).to(dtype)
    convolution.args = (
        image,
        constants.add(f"folded_{weight.name}", scaled),
        constants.add(f"folded_{weight.name}_bias", offset.to(dtype)),
        *rest,
    )
    norm.replace_all_uses_with(convolution)
    norm.graph.erase_node(norm)
    return True


def _is_read_once(node: fx.Node) -> bool:
    return len(node.users) == 1 and next(iter(node.users)).all_input_nodes.count(node) == 1
