"""FlagGems on the loaded device: imported as if for a vendor that it knows, with this device's name.

FlagGems looks for a vendor when it is imported, by an environment variable or the tools of a driver, and
takes a device's name from the vendor's module.  Here that module is opsmith's, in the place of its
``_nvidia``, whose operators are those without changes for a vendor.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from opsmith.description import Kernel, parameters_of
from opsmith.plan import Entry, Operands
from opsmith.runtime.python.overloads import overload_of
from opsmith.runtime.triton.device import triton_device
from opsmith.runtime.triton.interpreter import with_first_configuration
from opsmith.runtime.triton.libdevice import libdevice

_VENDOR = "nvidia"
# The package in triton.language.extra where the interpreter's libdevice is looked for.
_EXTRA = "opsmith"


@functools.cache
def import_flag_gems(*, is_interpreted: bool) -> ModuleType:
    """The package, imported for the loaded device, whose kernels Triton's interpreter runs or its backend."""
    device = triton_device().name
    with _as_vendor(device, _EXTRA if is_interpreted else _backend()):
        module = importlib.import_module("flag_gems")
    # It counts the vendor's processors.
    heuristics = importlib.import_module(f"_{_VENDOR}.heuristics_config_utils")
    vars(heuristics)["torch"] = SimpleNamespace(**{**vars(torch), "cuda": getattr(torch, device)})
    if is_interpreted:
        # Its helpers ask a constexpr for its value, and the interpreter passes the value itself.
        importlib.import_module("triton.language").dtype.value = property(lambda self: self)
        tuner = importlib.import_module("flag_gems.utils.libentry").LibTuner
        tuner.run = with_first_configuration(tuner.run)
    return module


def called_by_torch_library(
    function: Callable[..., Any], entry: Entry, schema: str
) -> Callable[..., Any]:
    """``function`` with the arguments that ``torch.library`` gives it.

    That leaves out those with the schema's defaults, of which the function has its own: ``stride`` is ``[]``
    in the schema of ``avg_pool2d``, and the function takes None.  And it gives numbers as numbers:
    ``x * 0.5`` calls ``mul.Tensor``, which has a Tensor for them, on the CPU.
    """
    assert entry.call is not None
    others = _other_defaults(function, entry.call.kernel, schema)
    names = parameters_of(schema).positional
    at = [(index, *others[name]) for index, name in enumerate(names) if name in others]
    has_numbers = entry.call.operands is Operands.SCALARS_FROM_CPU
    if not others and not has_numbers:
        return function

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        values = [_number(each) for each in args] if has_numbers else [*args]
        for index, default, its in at:
            if values[index] == default:
                values[index] = its
        for name, value in kwargs.items():
            if name in others and value == others[name][0]:
                kwargs[name] = others[name][1]
        return function(*values, **kwargs)

    return called


def _other_defaults(
    function: Callable[..., Any], kernel: Kernel, schema: str
) -> dict[str, tuple[Any, Any]]:
    """The schema's default and the function's of the arguments for which they are not the same."""
    parameters = inspect.signature(function).parameters
    # By position the names may differ.
    names = parameters_of(schema).positional
    own = {**parameters, **dict(zip(names, parameters.values(), strict=False))}
    return {
        each.name: (each.default_value, own[each.name].default)
        for each in overload_of(kernel.operator)._schema.arguments
        if each.has_default_value()
        and each.name in own
        and own[each.name].default not in (inspect.Parameter.empty, each.default_value)
    }


def _number(value: Any) -> Any:
    is_number = isinstance(value, torch.Tensor) and value.is_cpu and value.dim() == 0
    return value.item() if is_number else value


def _backend() -> str:
    """Triton's backend for the device, whose libdevice has its name."""
    driver = importlib.import_module("triton.runtime.driver").driver
    backend: str = driver.active.get_current_target().backend
    return backend


@contextmanager
def _as_vendor(device: str, extra_name: str) -> Iterator[None]:
    spec = importlib.util.find_spec("flag_gems")
    assert spec is not None and spec.origin is not None
    vendor = ModuleType(f"_{_VENDOR}")
    # What is tuned and chosen by heuristics is in files beside the module.
    vendor.__path__ = [str(Path(spec.origin).parent / "runtime" / "backend" / vendor.__name__)]
    vars(vendor).update(
        vendor_info=SimpleNamespace(
            vendor_name=_VENDOR,
            device_name=device,
            device_query_cmd="",
            dispatch_key="PrivateUse1",
            triton_extra_name=extra_name,
        ),
        CUSTOMIZED_UNUSED_OPS=(),
    )
    sys.modules[vendor.__name__] = vendor
    extra = f"triton.language.extra.{_EXTRA}"
    sys.modules[extra] = ModuleType(extra)
    sys.modules[f"{extra}.libdevice"] = libdevice(f"{extra}.libdevice")
    sys.modules.setdefault(f"torch.backends.{device}", ModuleType(f"torch.backends.{device}"))
    namespace = getattr(torch, device)
    capability, asked = namespace.get_device_capability, os.environ.get("GEMS_VENDOR")
    os.environ["GEMS_VENDOR"] = _VENDOR
    # Of CUDA's kind, which has no other device's features.
    namespace.get_device_capability = lambda _=None: (0, 0)
    try:
        yield
    finally:
        namespace.get_device_capability = capability
        del os.environ["GEMS_VENDOR"]
        if asked is not None:
            os.environ["GEMS_VENDOR"] = asked
