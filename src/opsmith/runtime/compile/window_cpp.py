"""Inductor's C++ for the CPU, on the bytes behind a device's host window.

Kernels that Inductor fuses are C++ functions, which are given the window's addresses once the current stream
is done.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from opsmith.description import Inductor
from opsmith.runtime.compile.compiling import compiling
from opsmith.runtime.compile.devices import replace_everywhere
from opsmith.schema.torch_names import _torchinductor_pyobject_tensor_data_ptr, has

if TYPE_CHECKING:
    from opsmith.schema.torch_names import BaseSchedulerNode, OpOverload

_DATA_POINTER = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"


def scheduling(device: str, scheduler: Any) -> Any:
    """The scheduling that generates C++ for ``device``: Inductor's own."""
    from opsmith.schema.torch_names import CppScheduling

    _take_for_cpp(device)
    if scheduler is not None:  # else only features are asked for
        _keep_order(scheduler)
    return CppScheduling(scheduler)  # type: ignore[no-untyped-call]


def scatter_as_on_cpu(device: str) -> None:
    """Has Inductor call sums that are scattered where it does on the CPU: its C++ cannot add them all."""
    from opsmith.schema.torch_names import use_scatter_fallback as of_others

    def use_scatter_fallback(
        operator: OpOverload,
        reduction: str | None,
        dtype: torch.dtype,
        src_dtype: torch.dtype,
        src_device: str,
        src_is_tensor: bool,
    ) -> bool:
        is_cpp = src_device == device and compiling().inductor is Inductor.CPP
        asked = "cpu" if is_cpp else src_device
        return of_others(operator, reduction, dtype, src_dtype, asked, src_is_tensor)

    replace_everywhere(use_scatter_fallback)


def _keep_order(scheduler: Any) -> None:
    """Has ``scheduler`` write the loops that it keeps back before what changes or waits for a stream.

    It does so before what is called on their device; waiting for a stream is on none, and Inductor has no
    loops in C++ on several streams.
    """
    begin = scheduler.enter_context
    knows_streams = has("Scheduler._has_multi_stream_nodes")

    def begin_behind_loops(node: Any) -> None:
        on_streams = knows_streams and scheduler._has_multi_stream_nodes()
        if on_streams or (node.is_extern() and node.get_device() is None):
            scheduler.flush()
        begin(node)

    scheduler.enter_context = begin_behind_loops


@cache
def _take_for_cpp(device: str) -> None:
    """Has Inductor decide for ``device`` as for the CPU where that is about C++."""
    from opsmith.schema.torch_names import get_current_backend as of_others
    from opsmith.schema.torch_names import replace

    def get_current_backend(device_type: str | None = None) -> str:
        from opsmith.schema.torch_names import V

        asked = device_type or V.graph.get_current_device_or_throw().type
        return "cpp" if asked == device else of_others(asked)

    def is_cpu(node: BaseSchedulerNode) -> bool:
        on = node.get_device()
        return on is not None and on.type in ("cpu", device)

    replace_everywhere(get_current_backend)
    replace("BaseSchedulerNode.is_cpu", is_cpu)


def host_kernels(_: object) -> Any:
    """For generated code: compiles kernels whose Tensors may be on the device."""
    from opsmith.schema.torch_names import AsyncCompile, CppPythonBindingsCodeCache

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
                # Releases up to 2.11 never unload what they have loaded, and keep no list of it.
                if (loaded := getattr(cls, "_loaded_module_names", None)) is not None:
                    loaded.add(name)
                spec.loader.exec_module(module)
            return sys.modules[name]

    class HostKernels(AsyncCompile):
        def cpp_pybinding(self, argtypes: list[str], source_code: str) -> Any:
            # The same source for Tensors on the CPU is another module.
            return Kernels.load_pybinding(argtypes, f"// on the device\n{source_code}")

    return HostKernels()


@cache
def _data_pointer() -> int:
    return int(
        torch.ops.opsmith.host_data_pointer_after(
            ctypes.c_ssize_t(_torchinductor_pyobject_tensor_data_ptr).value
        )
    )
