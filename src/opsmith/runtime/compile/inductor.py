"""What Inductor generates for the device: its C++ for the CPU, on the bytes behind the host window.

Kernels that Inductor fuses are C++ functions, which are given the window's addresses once the current stream
is done; whatever else a graph calls, it calls on the device, where the backend's kernels serve it.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch._inductor.codegen import common
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from opsmith.errors import NotOffered

_DATA_POINTER = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"


def register_code_generation(device: str, library: Path, has_host_window: bool) -> None:
    """Registers what generates code for ``device``.

    A part of what names cached code is the digest of ``library``: another build of the backend compiles anew.
    """
    common.register_device_op_overrides(device, _DeviceOverrides(device))
    scheduling: Any = _scheduling(device) if has_host_window else _refused_scheduling(device)
    wrapper: Any = _Wrapper
    cpp_wrapper: Any = _NoCppWrapper
    digest = _Digest(library)
    common.register_backend_for_device(
        device, scheduling, wrapper, cpp_wrapper, device_custom_pass=digest
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


class _Digest(CustomGraphModulePass):
    """Changes nothing; says which build of the backend a graph is compiled for."""

    def __init__(self, library: Path) -> None:
        self._library = library

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        pass

    @cache  # noqa: B019  # it lives as long as the process
    def uuid(self) -> str:
        return hashlib.sha256(self._library.read_bytes()).hexdigest()


def _scheduling(device: str) -> type:
    """A class whose objects are Inductor's own, imported when the first one is made."""

    class HostScheduling:
        def __new__(cls, scheduler: Any) -> Any:
            from torch._inductor.codegen.cpp import CppScheduling

            _take_for_cpp(device)
            return CppScheduling(scheduler)  # type: ignore[no-untyped-call]

    return HostScheduling


def _refused_scheduling(device: str) -> type:
    """A class of which no object can be made."""

    class RefusedScheduling:
        def __new__(cls, scheduler: Any) -> NoReturn:
            raise NotOffered(
                f"Inductor's C++ reads and writes the memory of {device} through a host window, which the "
                "driver does not have, or the description does not let it use (`host_window: off`)",
                remedy='torch.compile(…, backend="aot_eager") compiles without fusing',
            )

    return RefusedScheduling


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
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    class DeviceWrapperCodegen(PythonWrapperCodegen):
        @staticmethod
        def create(is_subgraph: bool, *given: Any) -> Any:
            if is_subgraph:
                return PythonWrapperCodegen.create(is_subgraph, *given)
            return DeviceWrapperCodegen()  # type: ignore[no-untyped-call]

        def write_header(self) -> None:
            super().write_header()
            self.imports.splice(f"from {__name__} import host_kernels")
            self.header.splice("async_compile = host_kernels(async_compile)")

        def _generate_kernel_call_helper(
            self, kernel_name: str, call_args: Any, *, triton: bool = True, **given: Any
        ) -> None:
            if triton:
                super()._generate_kernel_call_helper(kernel_name, call_args, triton=triton, **given)
            else:
                self.writeline(self.wrap_kernel_call(kernel_name, call_args))  # type: ignore[no-untyped-call]

    return DeviceWrapperCodegen


@cache
def _take_for_cpp(device: str) -> None:
    """Has Inductor decide for ``device`` as for the CPU where that is about C++, and guard its devices."""
    from torch._inductor import scheduler, utils

    backend_of_others = utils.get_current_backend
    need_of_others = utils.device_need_guard

    def get_current_backend(device_type: str | None = None) -> str:
        from torch._inductor.virtualized import V

        asked = device_type or V.graph.get_current_device_or_throw().type
        return "cpp" if asked == device else backend_of_others(asked)

    def device_need_guard(asked: str) -> bool:
        return asked == device or need_of_others(asked)

    def is_cpu(node: scheduler.BaseSchedulerNode) -> bool:
        on = node.get_device()
        return on is not None and on.type in ("cpu", device)

    # Modules have these functions under their own names.
    for name, module in [*sys.modules.items()]:
        if name.startswith("torch._inductor."):
            for function in (get_current_backend, device_need_guard):
                if hasattr(module, function.__name__):
                    setattr(module, function.__name__, function)
    scheduler.BaseSchedulerNode.is_cpu = is_cpu  # type: ignore[assignment,method-assign]


def host_kernels(_: object) -> Any:
    """For generated code: compiles kernels whose Tensors may be on the device."""
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    class Kernels(CppPythonBindingsCodeCache):
        @classmethod
        def _load_library_inner(cls, path: str, key: str) -> ModuleType:
            name = f"{key}.{cls.entry_function}"
            if name not in sys.modules:
                # A kernel's module asks once, when it is imported, where the addresses of Tensors come from.
                os.environ[_DATA_POINTER] = str(_data_pointer())
                spec = importlib.util.spec_from_file_location(name, path)
                assert spec is not None and spec.loader is not None
                sys.modules[name] = module = importlib.util.module_from_spec(spec)
                cls._loaded_module_names.add(name)
                spec.loader.exec_module(module)
            return sys.modules[name]

    class HostKernels(AsyncCompile):
        def cpp_pybinding(self, argtypes: list[str], source_code: str) -> Any:
            # The same source for Tensors on the CPU is another module.
            return Kernels.load_pybinding(argtypes, f"// on the device\n{source_code}")

    return HostKernels()


@cache
def _data_pointer() -> int:
    guards: Any = torch._C._dynamo.guards
    of_pytorch = guards._torchinductor_pyobject_tensor_data_ptr
    return int(torch.ops.opsmith.host_data_pointer_after(ctypes.c_ssize_t(of_pytorch).value))
