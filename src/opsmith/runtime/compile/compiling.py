"""The plan's part on compiled graphs, and the record of what graphs call: for all of this package."""

from __future__ import annotations

from typing import Any

import torch

from opsmith.plan.model import Compiling
from opsmith.runtime.loaded import loaded_backend
from opsmith.schema.torch_names import OpOverload

called_in_code: list[list[str]] = []
"""The operators that each graph's code calls, of the graphs for which code was generated."""


def compiling() -> Compiling:
    """The part on compiled graphs of the loaded backend's plan."""
    return loaded_backend().plan.compiling


def overloads(names: tuple[str, ...]) -> frozenset[OpOverload]:
    """The operators that are called so in the plan."""
    found = set()
    for name in names:
        namespace, _, rest = name.rpartition("::")
        packet, _, overload = rest.partition(".")
        operator = getattr(getattr(torch.ops, namespace or "aten"), packet)
        found.add(getattr(operator, overload or "default"))
    return frozenset(found)


def note_called() -> None:
    """Adds what the graph calls that is being written to :data:`called_in_code`."""
    from opsmith.schema.torch_names import ExternKernelSchedulerNode, MultiOutput, V

    nodes = V.graph.scheduler.nodes
    called = [node.node for node in nodes if isinstance(node, ExternKernelSchedulerNode)]
    called_in_code.append(
        [_called_name(each) for each in called if not isinstance(each, MultiOutput)]
    )


def _called_name(node: Any) -> str:
    operator = getattr(node, "op_overload", None)
    return str(operator or node.python_kernel_name).replace("extern_kernels.", "aten.")
