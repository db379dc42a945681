"""The nodes of an exported graph behind a program's calls, and the lines of Python that they come from.

Called by ``export``, which says of a call that nobody serves where in the module it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import GraphModule

# A frame as traceback prints it, with the line of code below.
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in .+\n(?: +(.+))?', re.MULTILINE)


@dataclass(frozen=True)
class GraphNode:
    """A node that calls ``operator`` (``aten::add.out``); ``line`` is empty where torch.export kept none."""

    operator: str
    name: str
    line: str

    def __str__(self) -> str:
        return f"node {self.name}" + (f", {self.line}" if self.line else "")


def graph_nodes(graph: GraphModule) -> tuple[GraphNode, ...]:
    """All nodes that call operators, of the graph and of those in it, such as a condition's branches."""
    import torch

    return tuple(
        GraphNode(
            _operator(str(node.target), node.target), node.name, _line(node.stack_trace or "")
        )
        for module in graph.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function"
    )


def nodes_calling(operator: str, nodes: Iterable[GraphNode]) -> tuple[GraphNode, ...]:
    """Those that call ``operator``; without its overload, those that call any."""
    return tuple(
        each
        for each in nodes
        if each.operator == operator or each.operator.partition(".")[0] == operator
    )


def _operator(printed: str, target: object) -> str:
    """A node's operator as programs name it: ``aten.add.out`` and ``aten.relu.default`` are PyTorch's."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return printed
    name: str = schema.name
    overload: str = schema.overload_name
    return f"{name}.{overload}" if overload else name


def _line(stack: str) -> str:
    """``models.py:7: y = torch.erf(x)``: the innermost frame that is not PyTorch's own."""
    import torch

    frames = _FRAME.findall(stack)
    own = str(Path(torch.__file__).parent)
    chosen = [frame for frame in frames if not frame[0].startswith(own)] or frames
    if not chosen:
        return ""
    file, number, code = chosen[-1]
    return f"{file}:{number}" + (f": {code}" if code else "")
