"""Graphs whose operators are called one by one: where the backend fuses nothing, and where Inductor fails."""

from __future__ import annotations

import copy
import logging
import traceback
from collections import Counter
from collections.abc import Sequence
from functools import wraps
from typing import Any

import torch

from opsmith.description import Inductor
from opsmith.errors import NotOffered
from opsmith.runtime.compile.compiled_graphs import CompiledGraph, compiled_graphs
from opsmith.runtime.compile.compiling import called_in_code, compiling
from opsmith.runtime.compile.cpp_graphs import written_by_functions
from opsmith.runtime.compile.eager_kernels import NOTHING_FUSED
from opsmith.runtime.compile.replayed_graphs import Call, replayed
from opsmith.runtime.compile.triton_kernels import tritons_compiler
from opsmith.schema.torch_names import (
    CompiledFxGraph,
    OpOverload,
    OutputCode,
    V,
    _parse_stack_trace,
    get_all_devices,
    replace,
)
from opsmith.schema.torch_names import _compile_fx_inner as compile_graph
from opsmith.schema.torch_names import inductor_metrics as metrics

_log = logging.getLogger(__name__)


def call_what_is_not_compiled(device: str) -> None:
    """Has Inductor give graphs on ``device`` that call the operators, where it cannot compile them."""

    @wraps(compile_graph)
    def compiled_or_called(
        gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *given: Any, **named: Any
    ) -> OutputCode:
        is_here = any(each.type == device for each in get_all_devices(gm))
        if not is_here:
            return compile_graph(gm, example_inputs, *given, **named)
        plan = compiling()
        fuses_nothing = plan.inductor is Inductor.EAGER_KERNELS and plan.fused_kernel is None
        if V.aot_compilation:  # nothing could stand for a package that is not made
            if fuses_nothing:
                raise NotOffered(
                    f"AOTInductor's packages have loops, and {NOTHING_FUSED} that could run them",
                    remedy="give a library a `fused_kernel`, or save the exported program itself",
                )
            with written_by_functions():
                return compile_graph(gm, example_inputs, *given, **named)
        # Inductor's passes change the graph before it can fail.
        kept = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
        cudagraphs = named.get("cudagraphs")
        wants_replay = (
            plan.inductor is Inductor.EAGER_KERNELS and cudagraphs is not None and cudagraphs.value
        )
        static = named.get("static_input_idxs", ())
        if fuses_nothing:
            calls = _called(kept, NOTHING_FUSED)
            if wants_replay:
                calls.run = replayed(calls.run, kept, static, device)
            return calls
        called_in_code.clear()
        kernels = metrics.generated_kernel_count
        try:
            with tritons_compiler(plan, device):
                code = compile_graph(gm, example_inputs, *given, **named)
        except Exception as error:
            reason = _reason(error)
            _log.warning(
                "a graph on %s is not compiled, its operators are called one by one: %s",
                device,
                reason,
            )
            return _called(kept, reason)
        made: dict[str, Any] = {}
        if called_in_code:  # else it was in the cache
            kernels = metrics.generated_kernel_count - kernels
            made = {"kernels": kernels, "called": Counter(called_in_code[-1])}
        if wants_replay and isinstance(code, CompiledFxGraph) and code.current_callable is not None:
            code.current_callable = replayed(code.current_callable, kept, static, device)
        compiled_graphs.append(CompiledGraph(_place(kept), len(_operators(kept)), **made))
        return code

    replace("_compile_fx_inner", compiled_or_called)


def _reason(error: Exception) -> str:
    """The first line of ``error``, with the place in PyTorch where that says nothing: an assertion's."""
    reason = f"{type(error).__name__}: {error}".splitlines()[0].strip()
    if reason.endswith(":"):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason += f" {frame.name}, {frame.filename}:{frame.lineno}: {frame.line}"
    return reason


def _called(gm: torch.fx.GraphModule, reason: str) -> _Calls:
    operators = _operators(gm)
    names = Counter(str(node.target) for node in operators)
    compiled_graphs.append(CompiledGraph(_place(gm), len(operators), 0, names, reason))
    return _Calls(gm)


def _operators(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in gm.graph.nodes if isinstance(node.target, OpOverload)]


def _place(gm: torch.fx.GraphModule) -> str:
    """The line of the program that called the first operator of ``gm``, as ``file:line``."""
    for node in gm.graph.nodes:
        if (where := node.meta.get("stack_trace")) is not None:
            frame = _parse_stack_trace(where)
            if frame is not None:
                return f"{frame.file}:{frame.lineno}"
    return ""


class _Calls(OutputCode):
    """Runs a graph's operators; it is not kept in Inductor's cache."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self._forward = gm.forward
        self._boxed_call = True  # of the object: wrappers take its attributes over
        self.run: Call = self._run

    def __call__(self, inputs: Sequence[Any]) -> Any:
        return self.run(inputs)

    def _run(self, inputs: Sequence[Any]) -> Any:
        given = [*inputs]
        if isinstance(inputs, list):
            inputs.clear()  # the graph gives them back as soon as it can
        return self._forward(*given)

    def post_compile(self, *_: Any) -> None:
        pass

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass
