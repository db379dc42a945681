"""Layers that are quantized, as single calls of the ``quantized`` library's operators.

Where the backend has kernels for them, which compute on the integers.  Called by ``export``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph

from opsmith.description import Backend
from opsmith.executorch.lowering_operators import (
    OfResult,
    define_for_lowering,
    image_of_windows,
)
from opsmith.executorch.program_constants import ProgramConstants
from opsmith.executorch.transforms.graph_constants import GraphConstants
from opsmith.executorch.transforms.grouped_linear import fuse_grouped_linear
from opsmith.executorch.transforms.int8_layers import REQUANTIZED, fuse_requantized
from opsmith.executorch.transforms.int8_linear import fuse_dynamic_linear, fuse_static_linear
from opsmith.schema import Catalogue

_NAMESPACE = "opsmith_quantized"
# Of graphs that call none, there is nothing to rewrite.
_QUANTIZING = {"torchao", "quantized_decomposed"}


def _linear_8da4w(
    input: Tensor, weight: Tensor, weight_scales: Tensor, bias: Tensor | None, out_features: int
) -> Tensor:
    return input.new_empty((*input.shape[:-1], out_features))


def _linear_int8(
    input: Tensor,
    input_scale: object,
    input_zero_point: object,
    weight: Tensor,
    weight_scales: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    return weight_scales.new_empty((*input.shape[:-1], weight.shape[0]))


def _requantized(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: Tensor,
    weight_scales: Tensor,
    bias: Tensor | None,
    out_features: int,
    *quantization: object,
) -> Tensor:
    return input.new_empty((*input.shape[:-1], out_features))


def _conv2d_int8(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: Tensor,
    weight_scales: Tensor,
    bias: Tensor | None,
    out_channels: int,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    *others: object,
) -> Tensor:
    return image_of_windows(input, out_channels, (kernel_size, stride, padding, dilation))


def _max_pool2d_int8(
    input: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> Tensor:
    return image_of_windows(
        input, input.shape[1], (kernel_size, stride or kernel_size, padding, dilation), ceil_mode
    )


def _add_int8(a: Tensor, *others: object) -> Tensor:
    return torch.empty_like(a)


# Note [Results of quantized operators]
# A backend's meta kernels, src/opsmith/kernels/quantized/meta/, say the same of the results' shapes.
_RESULTS: Mapping[str, OfResult] = {
    "linear_8da4w": _linear_8da4w,
    "conv2d_int8": _conv2d_int8,
    "linear_int8.requantized": _requantized,
    "add_int8": _add_int8,
    "max_pool2d_int8": _max_pool2d_int8,
    "linear_int8": _linear_int8,
    "linear_int8.per_token": _linear_int8,
}
Fuse = Callable[[Graph, GraphConstants], int]
# In this order: what is left of the graph is for those that follow.
_FUSE: tuple[tuple[tuple[str, ...], Fuse], ...] = (
    (("linear_8da4w",), fuse_grouped_linear),
    (REQUANTIZED, fuse_requantized),
    (("linear_int8",), fuse_static_linear),
    (("linear_int8.per_token",), fuse_dynamic_linear),
)


def fuse_quantized_layers(
    exported: ExportedProgram, backend: Backend, catalogue: Catalogue
) -> tuple[ExportedProgram, int]:
    """Rewrites the layers for which ``backend`` has kernels, and says how many.

    Returns the program without Tensor subclasses, where there were any in it.
    """
    called = {getattr(node.target, "namespace", "") for node in exported.graph.nodes}
    if not called & _QUANTIZING:
        return exported, 0
    available = define_for_lowering(_NAMESPACE, _RESULTS, backend, catalogue)
    if not available:
        return exported, 0
    if "export" in called:  # it takes Tensor subclasses apart
        exported = exported.run_decompositions({})
    constants: GraphConstants = ProgramConstants(exported)
    fused = sum(
        fuse(exported.graph, constants) for names, fuse in _FUSE if set(names) <= set(available)
    )
    if fused:
        constants.drop_unread()
    return exported, fused
