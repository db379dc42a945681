"""Linear layers that are quantized, as single calls of the ``quantized`` library's operators.

Where the backend has kernels for them, which compute on the integers.  The operators are defined for
lowering alone if no loaded backend has: by their schemas, and by the shapes of their results.  Called by
``export``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from opsmith.description import Backend
from opsmith.executorch.program_constants import ProgramConstants
from opsmith.runtime.defining_modules import define_for_lowering
from opsmith.schema import Catalogue
from opsmith.transforms.grouped_linear import fuse_grouped_linear
from opsmith.transforms.int8_linear import fuse_static_linear

_NAMESPACE = "opsmith_quantized"


def _of_grouped(
    input: Tensor, weight: Tensor, weight_scales: Tensor, bias: Tensor | None, out_features: int
) -> Tensor:
    return input.new_empty((*input.shape[:-1], out_features))


def _of_int8(
    input: Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: Tensor,
    weight_scales: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]), dtype=torch.float32)


Fuse = Callable[[torch.fx.Graph, ProgramConstants], int]

# The operators, with the shapes of their results and what rewrites a graph into them.
_FUSED: dict[str, tuple[Callable[..., Any], Fuse]] = {
    "linear_8da4w": (_of_grouped, fuse_grouped_linear),
    "linear_int8": (_of_int8, fuse_static_linear),
}


def fuse_quantized_linear(
    exported: ExportedProgram, backend: Backend, catalogue: Catalogue
) -> tuple[ExportedProgram, int]:
    """Rewrites the quantized linear layers for which ``backend`` has kernels, and says how many.

    Returns the program without Tensor subclasses, where there were any in it.
    """
    served = {
        kernel.operator for library in backend.executorch_libraries for kernel in library.kernels
    }
    available = [name for name in _FUSED if f"{_NAMESPACE}::{name}.out" in served]
    called = {str(node.target).partition(".")[0] for node in exported.graph.nodes}
    if not available or not called & {"torchao", "quantized_decomposed"}:
        return exported, 0
    if any("access_subclass_inner_tensor" in str(node.target) for node in exported.graph.nodes):
        exported = exported.run_decompositions({})
    constants = ProgramConstants(exported)
    fused = 0
    for name in available:
        of_result, fuse = _FUSED[name]
        define_for_lowering(
            {
                operator: catalogue.operators[operator].schema
                for operator in (f"{_NAMESPACE}::{name}", f"{_NAMESPACE}::{name}.out")
            },
            of_result,
        )
        fused += fuse(exported.graph, constants)
    if fused:
        constants.drop_unread()
    return exported, fused
