"""The graphs of ``torch.<name>`` and ``torch.<name>.graphs``: those of ``torch.cuda`` and ``torch.xpu``.

A graph is PyTorch's generic one, ``torch.accelerator.Graph``, under the customary name.  What records and
replays it is ``csrc/opsmith/device/graph.cpp``, with the driver's entries for graphs.
:mod:`opsmith.runtime.module.device_module` registers the functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from opsmith.runtime.module.memory import AnyDevice
from opsmith.runtime.module.public_module import Submodule
from opsmith.runtime.module.streams import StreamContext
from opsmith.schema.torch_names import (
    Feature,
    TreeSpec,
    arg_tree_leaves,
    set_up,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)

Pool: TypeAlias = tuple[int, int]
"""The handle of a memory pool that graphs share."""

Mode: TypeAlias = Literal["default", "global", "thread_local", "relaxed"]


@functools.cache
def _device_graph() -> Any:
    """The class of which the graphs of devices are, made when one is asked for."""
    from opsmith.schema.torch_names import Graph

    class DeviceGraph(Graph):
        """``torch.accelerator.Graph``, whose ``capture_begin`` takes what ``torch.cuda.CUDAGraph``'s does."""

        def capture_begin(
            self, pool: Pool | None = None, capture_error_mode: Mode = "default"
        ) -> None:
            """Records what is queued on the current stream until ``capture_end()``, in memory of ``pool``."""
            self.graph_pool = pool or self.graph_pool
            self.capture_error_mode = capture_error_mode
            super().capture_begin()

    return DeviceGraph


class graph:  # noqa: N801
    """``with``: calls are recorded in ``device_graph``, on ``stream`` or one that all graphs share."""

    _streams: dict[int, torch.Stream] = {}  # noqa: RUF012

    def __init__(
        self,
        device_graph: Any,
        pool: Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: Mode = "default",
    ) -> None:
        self.capture_stream = stream or self._shared_stream()
        self._graph = device_graph
        self._pool = pool
        self._mode = capture_error_mode
        self._stream = StreamContext(self.capture_stream)

    @classmethod
    def _shared_stream(cls) -> torch.Stream:
        device = torch.accelerator.current_device_index()
        if device not in cls._streams:
            cls._streams[device] = torch.Stream(device)
        return cls._streams[device]

    def __enter__(self) -> None:
        torch.accelerator.synchronize()
        torch.accelerator.empty_cache()
        self._stream.__enter__()
        try:
            self._graph.capture_begin(self._pool, self._mode)
        except BaseException:
            self._stream.__exit__(None, None, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, *about: Any) -> None:
        try:
            # An error raised within says more than that the capture has failed.
            self._graph.capture_end() if kind is None else self._graph.reset()
        finally:
            self._stream.__exit__(None, None, None)


class GraphFunctions:
    """Functions that ``torch.<name>`` and ``torch.<name>.graphs`` share, beside the graph's own class."""

    graph = graph

    def is_current_stream_capturing(self) -> bool:
        """Whether what is queued on the current stream is recorded."""
        capturing: bool = torch.ops.opsmith.is_current_stream_capturing()
        return capturing

    def graph_pool_handle(self) -> Pool:
        """A new pool of memory, for graphs that share it."""
        handle: Pool = torch.ops.opsmith.graph_pool_handle()
        return handle

    def make_graphed_callables(
        self,
        callables: Any,
        sample_args: Any,
        num_warmup_iters: int = 3,
        allow_unused_input: bool = False,
        pool: Pool | None = None,
    ) -> Any:
        """``callables``, a module or function or a tuple of them, with their calls replayed from graphs.

        ``sample_args`` has a tuple of Tensors for each.  The meaning, and what is not allowed, is that of
        ``torch.cuda.make_graphed_callables``: calls in the order of the tuple, the shapes of the samples, no
        second derivatives.  Raises RuntimeError for modules with hooks or with buffers that require a
        gradient, and under autocast with its cache; TypeError for arguments that are no Tensors.
        """
        if torch.is_autocast_enabled() and torch.is_autocast_cache_enabled():
            raise RuntimeError("make_graphed_callables needs torch.autocast(cache_enabled=False)")
        is_one = not isinstance(callables, tuple)
        functions = (callables,) if is_one else callables
        samples = (sample_args,) if is_one else sample_args
        surfaces = [_surface(each, given) for each, given in zip(functions, samples, strict=True)]
        shared = pool or self.graph_pool_handle()
        _warm_up(functions, samples, surfaces, num_warmup_iters, allow_unused_input)
        recorded = [
            _RecordedCall.of_forward(function, given, surface, shared)
            for function, given, surface in zip(functions, samples, surfaces, strict=True)
        ]
        for call in reversed(recorded):
            call.record_backward(shared, allow_unused_input)
        graphed = tuple(map(_graphed, functions, recorded))
        return graphed[0] if is_one else graphed


class GraphsModule(Submodule, GraphFunctions):
    """``torch.<name>.graphs``."""

    def __init__(self, device_type: str, index: Callable[[AnyDevice], int]) -> None:
        super().__init__(device_type, "graphs", f"The graphs of {device_type} devices.", index)
        set_up(Feature.GRAPHS, lambda: vars(self).update(graph_type(device_type)))


def graph_type(device_type: str) -> dict[str, type]:
    """The class of graphs under the device's own name, ``SimGraph``, as ``torch.cuda.CUDAGraph``."""
    name = f"{device_type.capitalize()}Graph"
    return {name: type(name, (_device_graph(),), {"__module__": f"torch.{device_type}"})}


# ---- make_graphed_callables ----


def _surface(function: Any, sample: Any) -> tuple[torch.Tensor, ...]:
    """The Tensors that a call reads: those that it is given, and a module's parameters."""
    given = arg_tree_leaves(*sample)
    if not all(isinstance(each, torch.Tensor) for each in given):
        raise TypeError("make_graphed_callables: sample_args of each callable are Tensors only")
    if not isinstance(function, torch.nn.Module):
        return tuple(given)
    if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
        raise RuntimeError("make_graphed_callables: a module may get its hooks only afterwards")
    if any(buffer.requires_grad for buffer in function.buffers()):
        raise RuntimeError(
            "make_graphed_callables: only a module's parameters may require a gradient"
        )
    return (*given, *function.parameters())


def _needing_gradient(tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(each for each in tensors if each.requires_grad)


def _warm_up(
    functions: Any, samples: Any, surfaces: Any, rounds: int, allow_unused_input: bool
) -> None:
    """Runs forward and backward before the capture, so that one-time work is not recorded."""
    torch.accelerator.synchronize()
    with StreamContext(torch.Stream(torch.accelerator.current_device_index())):
        for function, sample, surface in zip(functions, samples, surfaces, strict=True):
            for _ in range(rounds):
                outputs = _needing_gradient(tree_leaves(function(*sample)))
                if outputs:
                    torch.autograd.grad(
                        outputs,
                        _needing_gradient(surface),
                        tuple(map(torch.empty_like, outputs)),
                        allow_unused=allow_unused_input,
                    )
    torch.accelerator.synchronize()


@dataclass
class _RecordedCall:
    """A callable's two graphs, and the Tensors that these read and write."""

    user_inputs: int
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    structure: TreeSpec
    forward: Any
    backward: Any
    output_gradients: tuple[torch.Tensor | None, ...] = ()
    input_gradients: tuple[torch.Tensor | None, ...] = ()

    @staticmethod
    def of_forward(
        function: Any, sample: Any, surface: tuple[torch.Tensor, ...], pool: Pool
    ) -> _RecordedCall:
        forward = _device_graph()()
        with graph(forward, pool):
            result = function(*sample)
        outputs, structure = tree_flatten(result)
        user_inputs = len(arg_tree_leaves(*sample))
        return _RecordedCall(
            user_inputs, surface, tuple(outputs), structure, forward, _device_graph()()
        )

    def record_backward(self, pool: Pool, allow_unused_input: bool) -> None:
        self.output_gradients = tuple(
            torch.empty_like(each) if each.requires_grad else None for each in self.outputs
        )
        outputs = _needing_gradient(self.outputs)
        gradients: Iterable[torch.Tensor | None] = ()
        if outputs:
            with graph(self.backward, pool):
                gradients = torch.autograd.grad(
                    outputs,
                    _needing_gradient(self.inputs),
                    tuple(each for each in self.output_gradients if each is not None),
                    allow_unused=allow_unused_input,
                )
        found = iter(gradients)
        self.input_gradients = tuple(
            next(found, None) if each.requires_grad else None for each in self.inputs
        )


class _Replay(torch.autograd.Function):
    """A call of a callable: its forward graph, and its backward graph for the gradient."""

    @staticmethod
    def forward(ctx: Any, call: _RecordedCall, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.call = call
        for static, given in zip(call.inputs[: call.user_inputs], inputs, strict=False):
            if static.data_ptr() != given.data_ptr():
                static.copy_(given)
        call.forward.replay()
        return tuple(each.detach() for each in call.outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        call: _RecordedCall = ctx.call
        for static, given in zip(call.output_gradients, gradients, strict=True):
            if static is not None and static.data_ptr() != given.data_ptr():
                static.copy_(given)
        call.backward.replay()
        return (None, *(each if each is None else each.detach() for each in call.input_gradients))


def _graphed(function: Any, call: _RecordedCall) -> Any:
    """``function`` with its calls replayed; a module is changed in place, and as it was in its other mode."""
    parameters = call.inputs[call.user_inputs :]

    def replayed(*arguments: Any) -> Any:
        outputs = _Replay.apply(  # type: ignore[no-untyped-call]
            call, *arg_tree_leaves(*arguments), *parameters
        )
        return tree_unflatten(outputs, call.structure)

    if not isinstance(function, torch.nn.Module):
        return replayed
    training, eager = function.training, function.forward
    function.forward = lambda *arguments, **named: (
        replayed(*arguments, **named)
        if function.training == training
        else eager(*arguments, **named)
    )
    return function
