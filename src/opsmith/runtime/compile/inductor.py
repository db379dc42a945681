"""What Inductor is told of the device: who generates code for it, and which operators stay as they are.

All of it is the plan's decision (:mod:`opsmith.plan.compiling`), which is read when a graph is compiled.
Whatever a graph calls that is not fused, it calls on the device, where the backend's kernels serve it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._inductor.codegen import common
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from opsmith.description import Inductor
from opsmith.errors import NotOffered
from opsmith.plan.model import Compiling
from opsmith.runtime.loaded import loaded_backend

called_in_code: list[list[str]] = []
"""The operators that each graph's code calls, of the graphs for which code was generated."""


def register_code_generation(device: str, library: Path) -> None:
    """Registers what generates code for ``device``.

    A part of what names cached code is the digest of ``library`` and of what generates code: another build of
    the backend, and another opsmith, compile anew.
    """
    common.register_device_op_overrides(device, _DeviceOverrides(device))
    scheduling: Any = _scheduling(device)
    wrapper: Any = _Wrapper
    cpp_wrapper: Any = _NoCppWrapper
    called = _CalledOperators(device, library)
    common.register_backend_for_device(
        device, scheduling, wrapper, cpp_wrapper, device_custom_pass=called
    )


def keep_operators(device: str) -> None:
    """Has Inductor's decompositions leave the operators to ``device`` that the plan keeps."""
    from torch._inductor.decomposition import decompositions

    def unless_kept(
        operator: torch._ops.OpOverload, decompose: Callable[..., Any]
    ) -> Callable[..., Any]:
        @wraps(decompose)
        def decomposed(*args: Any, **kwargs: Any) -> Any:
            if _is_on(device, (args, kwargs)) and operator in _kept():
                return NotImplemented
            return decompose(*args, **kwargs)

        return decomposed

    for operator, decompose in decompositions.items():
        if isinstance(operator, torch._ops.OpOverload):
            decompositions[operator] = unless_kept(operator, decompose)


def compiling() -> Compiling:
    """What the loaded backend's plan says of compiled graphs."""
    return loaded_backend().plan.compiling


@cache
def _kept() -> frozenset[torch._ops.OpOverload]:
    return _overloads(compiling().kept)


def _overloads(names: tuple[str, ...]) -> frozenset[torch._ops.OpOverload]:
    """The operators that are called so in the plan."""
    found = set()
    for name in names:
        namespace, _, rest = name.rpartition("::")
        packet, _, overload = rest.partition(".")
        operator = getattr(getattr(torch.ops, namespace or "aten"), packet)
        found.add(getattr(operator, overload or "default"))
    return frozenset(found)


def _is_on(device: str, arguments: Any) -> bool:
    return any(
        isinstance(each, torch.Tensor) and each.device.type == device
        for each in torch.utils._pytree.tree_leaves(arguments)
    )


class _DeviceOverrides(common.DeviceOpOverrides):
    """What a compiled graph says to be on a device, in Python."""

    def __init__(self, device: str) -> None:
        self._device = device

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"def {name}(index):\n    return torch.accelerator.current_stream(index).native_handle\n"

    def set_device(self, device_idx: int) -> str:
        return f"torch.{self._device}.set_device({device_idx})"

    def synchronize(self) -> str:
        return f"torch.{self._device}.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.{self._device}.device({device_idx})"

    def current_stream(self) -> str:
        return "torch.accelerator.current_stream()"


class _CalledOperators(CustomGraphModulePass):
    """Marks what a graph calls on the device; says for which build of the backend it is compiled."""

    def __init__(self, device: str, library: Path) -> None:
        self._device = device
        self._library = library

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        from torch._inductor.lowering import lowerings, make_fallback

        if compiling().inductor is Inductor.EAGER_KERNELS:
            from opsmith.runtime.compile.eager_kernels import mark_called

            mark_called(gm, self._device)
        for operator in {node.target for node in gm.graph.nodes} & _kept():
            if operator not in lowerings:
                make_fallback(operator, override_decomp=True)  # type: ignore[no-untyped-call]

    @cache  # noqa: B019  # it lives as long as the process
    def uuid(self) -> str:
        digest = hashlib.sha256(self._library.read_bytes())
        for source in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(source.read_bytes())
        return digest.hexdigest()


def _scheduling(device: str) -> type:
    """A class whose objects are those that generate code, imported when the first one is made."""

    class Scheduling:
        def __new__(cls, scheduler: Any) -> Any:
            from opsmith.runtime.compile.devices import guard_devices

            guard_devices(device)
            if compiling().inductor is Inductor.EAGER_KERNELS:
                from opsmith.runtime.compile.fused_kernel import FusedScheduling

                return FusedScheduling(scheduler)
            from opsmith.runtime.compile.window_cpp import scheduling

            return scheduling(device, scheduler)

    return Scheduling


class _NoCppWrapper:
    """Stands for the generator of graphs in C++."""

    supports_caching = False

    @staticmethod
    def create(*_: Any) -> NoReturn:
        raise NotOffered(
            "graphs in C++ (`cpp_wrapper`, AOTInductor) are not generated for the device",
            remedy="leave them to Python: torch._inductor.config.cpp_wrapper = False",
        )


class _Wrapper:
    """The generator of a graph's Python, imported when the first one is generated."""

    supports_caching = True

    @staticmethod
    def create(*given: Any) -> Any:
        return _wrapper_codegen().create(*given)


@cache
def _wrapper_codegen() -> Any:
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
    from torch._inductor.virtualized import V

    class CallsHostKernels(PythonWrapperCodegen):
        def _generate_kernel_call_helper(
            self, kernel_name: str, call_args: Any, *, triton: bool = True, **given: Any
        ) -> None:
            if triton:
                super()._generate_kernel_call_helper(kernel_name, call_args, triton=triton, **given)
            else:
                self.writeline(self.wrap_kernel_call(kernel_name, call_args))  # type: ignore[no-untyped-call]

    class SubgraphWrapperCodegen(CallsHostKernels, SubgraphPythonWrapperCodegen):
        pass

    class DeviceWrapperCodegen(CallsHostKernels):
        @staticmethod
        def create(is_subgraph: bool, *given: Any) -> Any:
            if is_subgraph:
                return SubgraphWrapperCodegen(*given)
            return DeviceWrapperCodegen()  # type: ignore[no-untyped-call]

        def write_header(self) -> None:
            super().write_header()
            if compiling().inductor is Inductor.EAGER_KERNELS:
                self.imports.splice(
                    "from opsmith.runtime.compile.eager_kernels import RunningKernel"
                )
            else:
                self.imports.splice("from opsmith.runtime.compile.window_cpp import host_kernels")
                self.header.splice("async_compile = host_kernels(async_compile)")

        def generate(self, is_inference: bool) -> Any:
            from torch._inductor.scheduler import ExternKernelSchedulerNode

            nodes = V.graph.scheduler.nodes
            called = [node.node for node in nodes if isinstance(node, ExternKernelSchedulerNode)]
            called_in_code.append([_called_name(each) for each in called])
            return super().generate(is_inference)  # type: ignore[no-untyped-call]

    return DeviceWrapperCodegen


def _called_name(node: Any) -> str:
    operator = getattr(node, "op_overload", None)
    return str(operator or node.python_kernel_name).replace("extern_kernels.", "aten.")
