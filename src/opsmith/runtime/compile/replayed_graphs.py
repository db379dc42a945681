"""``mode="reduce-overhead"``: a compiled graph is recorded in a graph of the driver's, and replayed.

Only what is recorded whole is replayed: graphs of ATen's operators, whose inputs lie on one device and are
not changed, other than parameters and buffers, which are used where they are.  Other inputs are copied to
where the recording reads them, and results from where it writes them.  A call with other shapes, or with
parameters elsewhere, is recorded anew; what cannot be recorded is called as it is, with a message to the log.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opsmith.errors import TorchNameMissing
from opsmith.schema.torch_names import Feature, OpOverload, require

_log = logging.getLogger(__name__)

_CALLED = "a graph is not replayed, and its operators are called: %s"
_MOST_RECORDINGS = 8  # of one graph: each keeps memory of its own

Call = Callable[[Sequence[Any]], Any]


def replayed(call: Call, gm: torch.fx.GraphModule, static: Sequence[int], device: str) -> Call:
    """``call``, which runs ``gm``, or what replays it; ``static`` are the inputs that stay where they are.

    Of a backward pass PyTorch counts among them what its forward pass has saved, which is here elsewhere in
    each pass.
    """
    try:
        require(Feature.GRAPHS)
    except TorchNameMissing as error:
        _log.info(_CALLED, error.message)
        return call
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    saved = any(node.name.startswith("tangents") for node in inputs)
    moving = {
        at
        for at, node in enumerate(inputs)
        if at not in static or (saved and not node.name.startswith("primals"))
    }
    called = [
        node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr", "output")
    ]
    changed = {each for node in called if _is_mutable(node) for each in node.all_input_nodes}
    is_whole = all(map(_is_recorded_whole, called))
    if not is_whole or any(inputs[at] in changed for at in moving):
        return call
    pinned = {at for at, node in enumerate(inputs) if node in changed}
    return ReplayedCalls(call, moving, pinned, device)


def _is_recorded_whole(node: torch.fx.Node) -> bool:
    """Whether ``node`` calls an operator of ATen's; others may do on the host what would be done once."""
    target = node.target
    if isinstance(target, OpOverload):
        return target.namespace in ("aten", "prims")
    return target is operator.getitem


def _is_mutable(node: torch.fx.Node) -> bool:
    target = node.target
    return isinstance(target, OpOverload) and target._schema.is_mutable


@dataclass(frozen=True)
class _Recording:
    """A graph of the driver's, with the inputs that it reads and the outputs that it writes.

    ``moving`` are the inputs that are copied before each run; ``sources`` says of each output which of the
    ``inputs`` it is a view of, or that it is overwritten by the next run and copied before.
    """

    graph: Any
    inputs: list[Any]
    moving: frozenset[int]
    outputs: Sequence[Any]
    sources: list[int | None]

    def serves(self, inputs: Sequence[Any]) -> set[int]:
        """Those of ``inputs`` that are not copied, and lie elsewhere than recorded."""
        return {
            at
            for at, (each, held) in enumerate(zip(inputs, self.inputs, strict=True))
            if isinstance(each, Tensor)
            and at not in self.moving
            and each.data_ptr() != held.data_ptr()
        }

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        for at in self.moving:
            self.inputs[at].copy_(inputs[at])
        self.graph.replay()
        return [
            self._result(output, source, inputs)
            for output, source in zip(self.outputs, self.sources, strict=True)
        ]

    def _result(self, output: Any, source: int | None, inputs: Sequence[Any]) -> Any:
        if not isinstance(output, Tensor):
            return output
        if source is None:
            return output.clone()
        given = inputs[source]
        begin = (
            given.storage_offset() - self.inputs[source].storage_offset() + output.storage_offset()
        )
        return given.as_strided(output.size(), output.stride(), begin)


class ReplayedCalls:
    """Calls a compiled graph: the first call with given shapes runs it, the second one records it."""

    def __init__(self, call: Call, moving: set[int], pinned: set[int], device: str) -> None:
        self._call = call
        self._moving = moving
        self._pinned = pinned
        self._device = device
        self._recorded: dict[Hashable, _Recording | None] = {}
        self._left = _MOST_RECORDINGS
        self._boxed_call = True

    def __call__(self, inputs: Sequence[Any]) -> Any:
        recording = self._recording(inputs)
        if recording is None:
            return self._call(inputs)
        with torch.no_grad():
            results = recording.run(inputs)
        if isinstance(inputs, list):
            inputs.clear()
        return results

    def _recording(self, inputs: Sequence[Any]) -> _Recording | None:
        """The recording that replays a call with ``inputs``; None where the call is to run as it is."""
        key = self._key(inputs)
        if key is None or torch.ops.opsmith.is_current_stream_capturing():
            return None
        if key not in self._recorded:
            if len(self._recorded) < _MOST_RECORDINGS:
                self._recorded[key] = None
            return None
        recording = self._recorded[key]
        elsewhere = recording.serves(inputs) if recording is not None else set()
        if recording is None or elsewhere:
            self._moving |= elsewhere - self._pinned
            if self._left <= 0:
                return None
            self._left -= 1
            recording = self._recorded[key] = self._record(inputs)
        return recording

    def _key(self, inputs: Sequence[Any]) -> Hashable:
        """The key of the recording for ``inputs``; None for a call that cannot be recorded."""
        devices = {each.device for each in inputs if isinstance(each, Tensor)}
        if len(devices) != 1 or next(iter(devices)).type != self._device:
            return None
        shapes = (
            (each.shape, each.stride(), each.dtype) if isinstance(each, Tensor) else each
            for each in inputs
        )
        return (*devices, *shapes)

    def _record(self, inputs: Sequence[Any]) -> _Recording | None:
        # Here: some releases lack it.
        from opsmith.schema.torch_names import is_non_overlapping_and_dense_or_false

        module = getattr(torch, self._device)
        moving = frozenset(at for at in self._moving if isinstance(inputs[at], Tensor))
        try:
            if not all(is_non_overlapping_and_dense_or_false(inputs[at]) for at in moving):
                raise NotImplementedError("an input's elements share memory, or leave some out")
            graph = getattr(module, f"{self._device.capitalize()}Graph")()
            device = next(each.device for each in inputs if isinstance(each, Tensor))
            with torch.no_grad(), module.device(device):
                held = [
                    torch.empty_like(each).copy_(each) if at in moving else each
                    for at, each in enumerate(inputs)
                ]
                with module.graph(graph):
                    outputs = self._call([*held])
            sources = _sources(outputs, held)
        except (NotImplementedError, RuntimeError) as error:
            self._left = 0
            said = str(error).splitlines()[0]
            _log.info(_CALLED, said)
            return None
        return _Recording(graph, held, moving, outputs, sources)


def _sources(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[int | None]:
    """The input of which each output is a view; None for one with memory of its own.

    Raises NotImplementedError where outputs share memory: copies would not.
    """
    known = {_memory(each): at for at, each in enumerate(inputs) if isinstance(each, Tensor)}
    places = [_memory(each) if isinstance(each, Tensor) else None for each in outputs]
    new = [each for each in places if each is not None and each not in known]
    if len({*new}) < len(new):
        raise NotImplementedError("outputs share memory with each other")
    return [None if each is None else known.get(each) for each in places]


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
