"""DLPack: tensors of the device handed to other libraries, and taken from them, in the same memory.

The device is DLPack's ``kDLExtDev``.  PyTorch makes and reads such capsules, but knows the device only by the
name ``privateuse1``, and lets streams wait for CUDA alone.  A stream is given by the driver's handle, its
``native_handle``.
:mod:`opsmith.runtime.load` calls :func:`exchange_with_dlpack`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.overrides import has_torch_function_unary
from torch.utils import dlpack
from torch.utils.dlpack import DLDeviceType

from opsmith.runtime.streams import native_handle, stream_of_handle

_NO_WAIT = -1


def exchange_with_dlpack(device_type: str) -> None:
    """Has ``Tensor.__dlpack__``, ``Tensor.__dlpack_device__`` and ``torch.from_dlpack`` know the device."""
    export = torch.Tensor.__dlpack__
    place = torch.Tensor.__dlpack_device__
    take = dlpack.from_dlpack

    @functools.wraps(export)
    def __dlpack__(tensor: torch.Tensor, *, stream: Any = _NO_WAIT, **options: Any) -> Any:  # noqa: N807
        if not has_torch_function_unary(tensor) and tensor.device.type == device_type:
            _let_wait(stream, tensor)
        return export(tensor, stream=stream, **options)

    @functools.wraps(place)
    def __dlpack_device__(tensor: torch.Tensor) -> tuple[Any, int]:  # noqa: N807
        if has_torch_function_unary(tensor) or tensor.device.type != device_type:
            return place(tensor)
        return DLDeviceType.kDLExtDev, tensor.device.index

    @functools.wraps(take)
    def from_dlpack(ext_tensor: Any, **options: Any) -> torch.Tensor:
        if not isinstance(ext_tensor, torch.Tensor) and hasattr(ext_tensor, "__dlpack__"):
            kind, index = ext_tensor.__dlpack_device__()
            if kind == DLDeviceType.kDLExtDev:
                ext_tensor = _ForCurrentStream(ext_tensor, index)
        return take(ext_tensor, **options)

    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign, assignment]
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign, assignment]
    torch.from_dlpack = dlpack.from_dlpack = from_dlpack  # type: ignore[attr-defined]


class _ForCurrentStream:
    """Another library's tensor on the device, asked to be ready for the current stream."""

    def __init__(self, producer: Any, device: int) -> None:
        self._producer = producer
        self._device = device

    def __dlpack__(self, **options: Any) -> Any:
        stream = native_handle(torch.accelerator.current_stream(self._device))
        try:
            return self._producer.__dlpack__(stream=stream, **options)
        except TypeError:  # older than streams, or than one of the options
            return self._producer.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._producer.__dlpack_device__()


def _let_wait(consumer: Any, tensor: torch.Tensor) -> None:
    """Has the consumer's stream wait for the work that is queued on the device's current one.

    ``consumer`` is a handle of the driver; ``None`` is the default stream, and -1 asks for no waiting.  For a
    queue that opsmith has not made the host waits.
    """
    if consumer == _NO_WAIT or not isinstance(consumer, int | None):
        return  # PyTorch's own function refuses what is no number
    device = tensor.device.index
    current = torch.accelerator.current_stream(device)
    if consumer is None:
        waiting: torch.Stream | None = torch.Stream(
            stream_id=0, device_index=device, device_type=current.device_type
        )
    else:
        waiting = stream_of_handle(device, consumer)
    if waiting is None:
        current.synchronize()
    elif waiting != current:
        waiting.wait_event(current.record_event())
        tensor.record_stream(waiting)
