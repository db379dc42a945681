"""Shifts by Python's operators as those calls that programs can have.

``a << 2`` is ``aten::__lshift__.Scalar``, for which neither ExecuTorch nor a library has a kernel; PyTorch
has the same computation as ``aten::bitwise_left_shift.Tensor_Scalar``.  Called by ``export``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_NAMES = {"lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"}
_OVERLOADS = {"Scalar": "Tensor_Scalar", "Tensor": "Tensor"}


def name_shifts(exported: ExportedProgram) -> None:
    """Changes the graphs of ``exported`` in place."""
    import torch

    aten = torch.ops.aten
    renamed = {
        getattr(getattr(aten, f"__{written}{old}__"), overload): getattr(
            getattr(aten, new + "_" * bool(written)), other
        )
        for old, new in _NAMES.items()
        for written in ("", "i")
        for overload, other in _OVERLOADS.items()
    }
    for module in exported.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.target = renamed.get(node.target, node.target)
            module.recompile()
