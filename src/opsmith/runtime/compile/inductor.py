"""The device's registration with Inductor: its code generators, and the operators that stay as they are.

All of it is the plan's decision (:mod:`opsmith.plan.compiling`), which is read when a graph is compiled.
Whatever a graph calls that is not fused, it calls on the device, where the backend's kernels serve it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, cached_property, wraps
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from opsmith.build.csrc import CSRC
from opsmith.description import Inductor, Triton
from opsmith.errors import NotOffered
from opsmith.runtime.compile.compiling import compiling, note_called, overloads
from opsmith.runtime.loaded import loaded_backend
from opsmith.schema.torch_names import (
    CustomGraphModulePass,
    DeviceOpOverrides,
    OpOverload,
    register_backend_for_device,
    register_device_op_overrides,
    replace,
    tree_leaves,
)


def register_code_generation(device: str) -> None:
    """Registers what generates code for ``device``.

    A part of what names cached code is the digest of the backend's library, of what generates code and of
    what says how results lie: another build of the backend, and another opsmith, compile anew.
    """
    overrides: Any = _ChosenOverrides(device)
    register_device_op_overrides(device, overrides)
    scheduling: Any = _scheduling(device)
    wrapper: Any = _Wrapper
    cpp_wrapper: Any = _cpp_wrapper(device)
    called = _CalledOperators(device)
    register_backend_for_device(device, scheduling, wrapper, cpp_wrapper, device_custom_pass=called)


def keep_operators(device: str) -> None:
    """Has Inductor's decompositions leave the operators to ``device`` that the plan keeps."""
    from opsmith.schema.torch_names import inductor_decompositions as decompositions

    def unless_kept(operator: OpOverload, decompose: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(decompose)
        def decomposed(*args: Any, **kwargs: Any) -> Any:
            if _is_on(device, (args, kwargs)) and operator in _kept():
                return NotImplemented
            return decompose(*args, **kwargs)

        return decomposed

    for operator, decompose in decompositions.items():
        if isinstance(operator, OpOverload):
            decompositions[operator] = unless_kept(operator, decompose)


def keep_layouts(device: str) -> None:
    """Has Inductor leave convolutions on ``device`` the memory formats they have, where the plan says so."""
    from opsmith.schema.torch_names import GraphLowering, inductor_config

    decide = GraphLowering.decide_layout_opt

    def decide_layout_opt(gm: torch.fx.GraphModule, *, is_inference: bool) -> bool:
        if compiling().keeps_layouts and not inductor_config.force_layout_optimization:
            called = gm.graph.find_nodes(
                op="call_function", target=torch.ops.aten.convolution.default
            )
            if any(_is_on(device, each.args[0].meta["val"]) for each in called):
                return False
        return decide(gm, is_inference=is_inference)

    replace("GraphLowering.decide_layout_opt", staticmethod(decide_layout_opt))


@cache
def _kept() -> frozenset[OpOverload]:
    return overloads(compiling().kept)


@cache
def _called() -> frozenset[OpOverload]:
    return overloads(compiling().called)


def _is_on(device: str, arguments: Any) -> bool:
    return any(
        isinstance(each, torch.Tensor) and each.device.type == device
        for each in tree_leaves(arguments)
    )


def _is_contiguous_on(device: str, node: Any) -> bool:
    value = node.meta["val"]
    return _is_on(device, value) and not value.is_contiguous(memory_format=torch.channels_last)


def triton() -> Triton | None:
    """The plan's Triton support of the device, or None."""
    return compiling().triton


@cache
def _named_class(name: str) -> Any:
    """The class `module:Class` of a description."""
    module, _, within = name.partition(":")
    return attrgetter(within)(import_module(module))


class _ChosenOverrides:
    """The overrides of the backend's plan, which is not known yet where this is registered."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chosen, name)

    def aten_device_type(self) -> str:
        """The device type in C++, for which PyTorch looks in the class."""
        return "at::kPrivateUse1"

    @cached_property
    def _chosen(self) -> DeviceOpOverrides:
        served = triton()
        if served is not None and served.device_ops:
            found: DeviceOpOverrides = _named_class(served.device_ops)()
            return found
        return _DeviceOverrides(self._device)


class _DeviceOverrides(DeviceOpOverrides):
    """The device code of compiled graphs: guards, streams and synchronization."""

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

    # ---- in C++: csrc/opsmith/compile/graph_functions_called.h

    def cpp_kernel_type(self) -> str:
        return "void*"

    def cpp_device_guard(self) -> str:
        return "opsmith::GraphDevice"

    def cpp_stream_guard(self) -> str:
        return "opsmith::GraphStream"

    cpp_stream_type = cpp_kernel_type
    cpp_aoti_device_guard = cpp_device_guard
    cpp_aoti_stream_guard = cpp_stream_guard


class _CalledOperators(CustomGraphModulePass):
    """Marks what a graph calls on the device; says for which build of the backend it is compiled."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        from opsmith.schema.torch_names import lowerings, make_fallback

        if compiling().inductor is Inductor.EAGER_KERNELS:
            from opsmith.runtime.compile.eager_kernels import mark_called

            mark_called(gm, self._device)
        for node in gm.graph.nodes:
            if node.target in _called() and _is_contiguous_on(self._device, node.args[0]):
                node.meta["should_fallback"] = True
        for operator in {node.target for node in gm.graph.nodes} & _kept():
            if operator not in lowerings:
                make_fallback(operator, override_decomp=True)  # type: ignore[no-untyped-call]

    @cache  # noqa: B019  # it lives as long as the process
    def uuid(self) -> str:
        digest = hashlib.sha256(loaded_backend().built.library.read_bytes())
        here = Path(__file__).parent
        sources = [*here.glob("*.py"), *(CSRC / "opsmith" / "compile").glob("*.h")]
        # Graphs rely on the layouts that fake results have.
        sources += here.parent.glob("fake_*.py")
        for source in sorted(sources):
            digest.update(source.read_bytes())
        return digest.hexdigest()


def _scheduling(device: str) -> type:
    """A class whose objects are those that generate code, imported when the first one is made."""

    class Scheduling:
        def __new__(cls, scheduler: Any) -> Any:
            from opsmith.runtime.compile.devices import guard_devices

            guard_devices(device)
            if (served := triton()) is not None:
                return _named_class(served.scheduling)(scheduler)
            if compiling().inductor is Inductor.EAGER_KERNELS:
                from opsmith.runtime.compile.fused_kernel import FusedScheduling

                return FusedScheduling(scheduler)
            from opsmith.runtime.compile.window_cpp import scheduling

            return scheduling(device, scheduler)

    return Scheduling


def _cpp_wrapper(device: str) -> type:
    """The same for graphs in C++."""

    class CppWrapper:
        supports_caching = True

        @staticmethod
        def create(*given: Any) -> Any:
            if (served := triton()) is not None:
                if not served.cpp_wrapper:
                    raise NotOffered(
                        "graphs in C++ (`cpp_wrapper`, AOTInductor) are not written for the device",
                        remedy="name the class that writes them: `triton: {cpp_wrapper: …}` in backend.yaml",
                    )
                return _named_class(served.cpp_wrapper).create(*given)
            from opsmith.runtime.compile.cpp_graphs import cpp_wrapper_codegen

            wrapper: Any = cpp_wrapper_codegen(device)
            return wrapper.create(*given)

    return CppWrapper


class _Wrapper:
    """The generator of a graph's Python, imported when the first one is generated."""

    supports_caching = True

    @staticmethod
    def create(*given: Any) -> Any:
        served = triton()
        chosen = _wrapper_codegen() if served is None else _named_class(served.wrapper)
        return chosen.create(*given)


@cache
def _wrapper_codegen() -> Any:
    from opsmith.schema.torch_names import PythonWrapperCodegen, SubgraphPythonWrapperCodegen

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
            note_called()
            return super().generate(is_inference)  # type: ignore[no-untyped-call]

    return DeviceWrapperCodegen
