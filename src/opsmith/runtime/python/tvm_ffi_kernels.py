"""Functions of tvm-ffi's as kernels of the loaded device: found, given Tensors by DLPack, called.

Their Tensors are the host's where the kernel runs there, which the plan decides.  Others lie on the device,
and the function finds the current stream where tvm-ffi's kernels look for it, in the environment.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import DLDeviceType

from opsmith.base.trusted_files import check_trusted
from opsmith.description import (
    SHARED_LIBRARY,
    DimOrder,
    Execution,
    Kernel,
    TvmFunction,
    parameters_of,
)
from opsmith.errors import KernelRejected
from opsmith.plan import Entry
from opsmith.runtime.module.streams import current_handle
from opsmith.runtime.python.kernel_modules import absent, module_of, needed, refusal
from opsmith.runtime.python.memory_operands import copy_back, place_operands
from opsmith.runtime.python.overloads import overload_of


def call_of_kernel(entry: Entry, schema: str) -> Callable[..., None]:
    """A function with the arguments of the operator's ``schema`` that has the kernel of ``entry`` compute it.

    Raises :class:`KernelRejected` where tvm-ffi, the module or the function is missing; the function raises
    :class:`Unsupported` where the kernel does.
    """
    assert entry.call is not None
    return _Call(entry.call.kernel, schema, is_pointwise=entry.call.pointwise)


class _Call:
    """Calls of an out operator by a function that writes its results to memory that it is given."""

    def __init__(self, kernel: Kernel, schema: str, *, is_pointwise: bool) -> None:
        described = kernel.function
        assert described is not None
        self._kernel = kernel
        self._is_pointwise = is_pointwise
        self._function = _function(kernel, described)
        parameters = parameters_of(schema)
        names = parameters.names
        self._keywords = parameters.keywords
        self._outs = range(names.index(parameters.outs[0]), len(names))
        self._strided = range(len(names) if kernel.dim_order is DimOrder.ANY else 0)
        passed = described.arguments or names
        self._passed = [names.index(name) for name in passed]
        self._left_out = [
            (names.index(each.name), each.name, each.default_value)
            for each in overload_of(kernel.operator)._schema.arguments
            if each.name not in passed
        ]

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        values = [*args, *(kwargs[name] for name in self._keywords)]
        for index, name, default in self._left_out:
            if values[index] is not default and values[index] != default:
                raise refusal(
                    self._kernel,
                    f"`{self._kernel.symbol}` is not given `{name}` of `{self._kernel.operator}`, and takes "
                    f"{default} for granted, not {values[index]}",
                )
        written = place_operands(
            values, self._outs, is_pointwise=self._is_pointwise, strided=self._strided
        )
        try:
            self._function(*[values[index] for index in self._passed])
        except Exception as error:
            raise refusal(
                self._kernel,
                f"`{self._kernel.symbol}` failed in this call of `{self._kernel.operator}`: "
                f"{type(error).__name__}: {error}",
            ) from error
        copy_back(written)


# ---- the function


def _function(kernel: Kernel, described: TvmFunction) -> Callable[..., Any]:
    tvm_ffi = needed(kernel, "tvm_ffi", "tvm-ffi", "apache-tvm-ffi")
    found = _found(kernel, described, tvm_ffi)
    if kernel.execution is not Execution.DEVICE:
        return found
    return _for_device(found, described.device_type, tvm_ffi)


def _found(kernel: Kernel, described: TvmFunction, tvm_ffi: ModuleType) -> Callable[..., Any]:
    name, source = described.name, described.module
    if source.endswith(SHARED_LIBRARY):
        return _exported(kernel, source, name, tvm_ffi)
    module = module_of(kernel, source) if source else None
    found = getattr(module, name, None) or tvm_ffi.get_global_func(name, allow_missing=True)
    if found is None and module is not None:
        raise absent(kernel, module, source, name)
    if found is None:
        raise KernelRejected(
            f"tvm-ffi's registry has no `{name}`, the kernel of `{kernel.operator}`",
            location=kernel.location,
            remedy="import what registers it before, or name that with `module`",
        )
    function: Callable[..., Any] = found
    return function


def _exported(kernel: Kernel, library: str, name: str, tvm_ffi: ModuleType) -> Callable[..., Any]:
    check_trusted(Path(library), kernel.location)
    try:
        module = tvm_ffi.load_module(library)
    except Exception as error:
        raise KernelRejected(
            f"`{library}`, which has the kernel of `{kernel.operator}`, cannot be loaded: {error}",
            location=kernel.location,
            remedy="build it for this machine and the installed tvm-ffi",
        ) from error
    if not module.implements_function(name):
        raise KernelRejected(
            f"`{library}` has no `{name}`, the kernel of `{kernel.operator}`",
            location=kernel.location,
            remedy=f"export it, TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, …), or name another",
        )
    function: Callable[..., Any] = module.get_function(name)
    return function


# ---- Tensors of the device


def _for_device(
    function: Callable[..., Any], device_type: str, tvm_ffi: ModuleType
) -> Callable[..., Any]:
    """``function`` for Tensors of the device, which knows it as DLPack's ``device_type``."""
    if device_type == "ext_dev" and _learns_stream(tvm_ffi):
        return function
    kind = {
        "ext_dev": DLDeviceType.kDLExtDev,
        "cuda": DLDeviceType.kDLCUDA,
        "rocm": DLDeviceType.kDLROCM,
    }[device_type]

    def exported(value: Any) -> Any:
        if isinstance(value, list):
            return [exported(each) for each in value]
        return tvm_ffi.from_dlpack(_Exported(value, kind)) if isinstance(value, Tensor) else value

    def call(*args: Any) -> None:
        index = torch.accelerator.current_device_index()
        with tvm_ffi.use_raw_stream(tvm_ffi.device(device_type, index), current_handle(index)):
            function(*map(exported, args))

    return call


def _learns_stream(tvm_ffi: ModuleType) -> bool:
    """Whether PyTorch tells tvm-ffi the current stream with a Tensor of the device; older releases do not."""
    index = torch.accelerator.current_device_index()
    found = tvm_ffi.convert(lambda tensor: tvm_ffi.get_raw_stream(tensor.device))
    device = torch.accelerator.current_accelerator()
    return bool(found(torch.empty(0, device=device)) == current_handle(index))


class _Exported:
    """A Tensor of the device for another library, which knows the device as one of another type."""

    def __init__(self, tensor: Tensor, device_type: int) -> None:
        self._tensor = tensor.detach()
        self._device_type = device_type

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device_type, self._tensor.device.index

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._tensor.__dlpack__()
        address = _address_in(capsule, b"dltensor")
        ctypes.c_int32.from_address(address + _DEVICE_TYPE).value = self._device_type
        return capsule


# In a DLTensor, the type of its device comes after the address of its elements.
_DEVICE_TYPE = ctypes.sizeof(ctypes.c_void_p)
_address_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
