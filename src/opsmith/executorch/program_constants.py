"""The constants of an exported program: parameters and buffers, by the placeholders that stand for them.

Rewrites read them here, and put others in their place; the module that was exported keeps its own.  Called
by ``export`` and by the passes that it runs.
"""

from __future__ import annotations

from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Node

from opsmith.schema.torch_names import FakeTensor

_CONSTANT = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class ProgramConstants:
    """Those that the program does not change."""

    def __init__(self, exported: ExportedProgram) -> None:
        self._exported = exported
        changed = set(exported.graph_signature.buffers_to_mutate.values())
        self._names = {
            spec.arg.name: spec.target
            for spec in exported.graph_signature.input_specs
            if spec.kind in _CONSTANT and spec.target is not None and spec.target not in changed
        }
        # Constants of the module that nothing reads are not for a pass to remove.
        self._read = {node.name for node in self._placeholders() if node.users}

    def value(self, node: object) -> Tensor | None:
        """The value of the constant that ``node`` stands for; None for other nodes."""
        name = self._names.get(node.name) if isinstance(node, Node) else None
        if name is None:
            return None
        found = self._exported.state_dict.get(name, self._exported.constants.get(name))
        return found.detach() if isinstance(found, Tensor) else None

    def add(self, name: str, value: Tensor) -> Node:
        """The placeholder of a new buffer, before all others."""
        while name in self._exported.state_dict:
            name += "_"
        graph = self._exported.graph
        first = next(iter(graph.nodes))
        with graph.inserting_before(first):
            node: Node = graph.placeholder(f"b_{name}")
        # Fake Tensors have one mode within a graph, which knows the sizes that change.
        mode = next(
            each.meta["val"].fake_mode
            for each in graph.nodes
            if isinstance(each.meta.get("val"), FakeTensor)
        )
        node.meta["val"] = mode.from_tensor(value, static_shapes=True)
        spec = InputSpec(InputKind.BUFFER, TensorArgument(node.name), name, persistent=True)
        self._exported.graph_signature.input_specs = [
            spec,
            *self._exported.graph_signature.input_specs,
        ]
        self._exported.state_dict[name] = value
        self._names[node.name] = name
        return node

    def _placeholders(self) -> list[Node]:
        return list(self._exported.graph.find_nodes(op="placeholder"))

    def drop_unread(self) -> None:
        """Removes calls that nothing reads, and the constants that only they read."""
        graph = self._exported.graph
        graph.eliminate_dead_code()
        dropped = set()
        for node in self._placeholders():
            if node.name in self._read and not node.users and node.name in self._names:
                name = self._names.pop(node.name)
                dropped.add(node.name)
                graph.erase_node(node)
                if name not in self._names.values():
                    self._exported.state_dict.pop(name, None)
                    self._exported.constants.pop(name, None)
        signature = self._exported.graph_signature
        signature.input_specs = [s for s in signature.input_specs if s.arg.name not in dropped]
        self._exported.graph_module.recompile()
