"""The device as Dynamo asks for it: a ``DeviceInterface`` over ``torch.<name>``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from opsmith import runtime
from opsmith.runtime.loaded import loaded_backend
from opsmith.runtime.module.streams import current_handle
from opsmith.schema.torch_names import (
    DeviceInterface,
    _accelerator_exchangeDevice,
    caching_worker_current_devices,
    caching_worker_device_properties,
    register_interface_for_device,
)


def register_interface(device: str) -> None:
    """Registers the interface of ``device`` for it and for each of its indices."""
    interface = interface_of(device)
    count = getattr(torch, device).device_count()
    for name in (device, *(f"{device}:{index}" for index in range(count))):
        register_interface_for_device(name, interface)


def trace_calls_only(_device: str) -> None:
    """Has Dynamo trace the device module where traced code calls it, not where other code does.

    Functions of ``torch.cuda`` are left alone likewise: what calls them between two graphs may have a mode
    of PyTorch's on that no graph can be compiled in.
    """
    # Here: its module imports what this one is told of.
    from opsmith.schema.torch_names import BUILTIN_INLINE_WHEN_CALLED, add_trace_rule

    add_trace_rule(runtime.__name__)
    BUILTIN_INLINE_WHEN_CALLED.update(runtime.__path__)


def exchanged_device(device: int) -> int:
    """Makes the index ``device`` current, and gives the one that was; -1 for an index below 0."""
    return int(_accelerator_exchangeDevice(device)) if device >= 0 else -1


def trace_device_contexts(_device: str) -> None:
    """Has Dynamo keep ``torch.<name>.device(…)`` and ``device_of(…)`` in graphs."""
    from opsmith.runtime.module.device_module import CurrentDevice
    from opsmith.schema.torch_names import (
        GenericDeviceVariable,
        register_device_context_manager,
    )

    class CurrentDeviceVariable(GenericDeviceVariable):
        """Stands for a ``CurrentDevice``, of an index of which one below 0 changes nothing."""

        _exchange_fn = staticmethod(exchanged_device)
        _maybe_exchange_fn = staticmethod(exchanged_device)
        _get_device_index_fn = staticmethod(lambda index, optional: index)

        def module_name(self) -> str:
            return CurrentDevice.__module__

        def fn_name(self) -> str:
            return CurrentDevice.__name__

        def python_type(self) -> type:
            return CurrentDevice

    register_device_context_manager(CurrentDevice, CurrentDeviceVariable)


def interface_of(device_type: str) -> type[DeviceInterface]:
    """A class whose functions are those of ``torch.<device_type>``."""
    module = getattr(torch, device_type)

    class Worker:
        """Device queries for compile workers, which have no device: answers are cached before the fork."""

        @staticmethod
        def set_device(device: int) -> None:
            caching_worker_current_devices[device_type] = device

        @staticmethod
        def current_device() -> int:
            known = caching_worker_current_devices.get(device_type)
            return int(module.current_device()) if known is None else known

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            asked = torch.device(device) if isinstance(device, str) else device
            if isinstance(asked, torch.device):
                asked = module._index(asked)
            if device_type not in caching_worker_device_properties:
                each = [module.get_device_properties(at) for at in range(module.device_count())]
                caching_worker_device_properties[device_type] = each
            at = Worker.current_device() if asked is None else asked
            return caching_worker_device_properties[device_type][at]

    class Interface(DeviceInterface):
        """All that ``torch.<device_type>`` answers, and Triton where the plan says that it serves."""

        device = module.device
        Event = torch.Event
        Stream = torch.Stream
        current_device = staticmethod(module.current_device)
        set_device = staticmethod(module.set_device)
        device_count = staticmethod(module.device_count)
        is_available = staticmethod(module.is_available)
        stream = staticmethod(module.stream)
        current_stream = staticmethod(module.current_stream)
        set_stream = staticmethod(module.set_stream)
        synchronize = staticmethod(module.synchronize)
        get_device_properties = staticmethod(module.get_device_properties)
        get_compute_capability = staticmethod(
            lambda device=None: module.get_device_properties(device).architecture
        )
        exchange_device = staticmethod(exchanged_device)
        maybe_exchange_device = staticmethod(exchanged_device)
        memory_allocated = staticmethod(module.memory_allocated)
        is_bf16_supported = staticmethod(module.is_bf16_supported)

        @classmethod
        def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
            return dtype in module.get_device_capability()["supported_dtypes"]

        @staticmethod
        def is_triton_capable(device: Any = None) -> bool:
            return loaded_backend().plan.compiling.triton is not None

        @classmethod
        def raise_if_triton_unavailable(cls, device: Any = None) -> None:
            super().raise_if_triton_unavailable(device)
            served = loaded_backend().plan.compiling.triton
            assert served is not None
            backends = import_module("triton.backends").backends
            if served.backend not in backends:
                raise RuntimeError(
                    f"triton has no backend `{served.backend}`, which {device_type} asks for: it has "
                    f"{', '.join(sorted(backends)) or 'none'}"
                )

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            module.set_stream(torch.Stream(stream_id, device_index, device_type))

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            """The driver's handle of the current stream, as an address."""
            return current_handle(device_idx)

    setattr(Interface, "Worker", Worker)  # noqa: B010  # to mypy it is another class
    return Interface
