"""The device as Dynamo asks for it: a ``DeviceInterface`` over ``torch.<name>``."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

from opsmith import runtime

_C: Any = torch._C  # whose annotations name arguments otherwise than Dynamo


def register_interface(device: str) -> None:
    """Registers the interface of ``device`` for it and for each of its indices."""
    interface = interface_of(device)
    count = getattr(torch, device).device_count()
    for name in (device, *(f"{device}:{index}" for index in range(count))):
        register_interface_for_device(name, interface)


def trace_calls_only() -> None:
    """Has Dynamo trace the device module where traced code calls it, not where other code does.

    Functions of ``torch.cuda`` are left alone likewise: what calls them between two graphs may have a mode
    of PyTorch's on that no graph can be compiled in.
    """
    from torch._dynamo import trace_rules  # which imports what this module is told of

    trace_rules.add(runtime.__name__)
    trace_rules.BUILTIN_INLINE_WHEN_CALLED.update(runtime.__path__)


def interface_of(device_type: str) -> type[DeviceInterface]:
    """A class whose functions are those of ``torch.<device_type>``."""
    module = getattr(torch, device_type)

    class Worker:
        """What processes that compile ask; they have no device of their own."""

        set_device = staticmethod(module.set_device)
        current_device = staticmethod(module.current_device)
        get_device_properties = staticmethod(module.get_device_properties)

    class Interface(DeviceInterface):
        """All that ``torch.<device_type>`` answers; Triton is not among it."""

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
        exchange_device = staticmethod(_C._accelerator_exchangeDevice)
        maybe_exchange_device = staticmethod(_C._accelerator_maybeExchangeDevice)
        memory_allocated = staticmethod(module.memory_allocated)
        is_bf16_supported = staticmethod(module.is_bf16_supported)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            module.set_stream(torch.Stream(stream_id, device_index, device_type))

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            """The driver's handle of the current stream, as an address."""
            stream: Any = torch.accelerator.current_stream(device_idx)
            return int(stream.native_handle)

    setattr(Interface, "Worker", Worker)  # noqa: B010  # to mypy it is another class
    return Interface
