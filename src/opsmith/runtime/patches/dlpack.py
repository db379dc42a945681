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

from opsmith.runtime.module.streams import current_handle, default_stream, stream_of_handle

_NO_WAIT = -1


def exchange_with_dlpack(device_type: str) -> None:
    """Has ``Tensor.__dlpack__``, ``Tensor.__dlpack_device__`` and ``torch.from_dlpack`` know the device."""
    export = torch.Tensor.__dlpack__
    place = torch.Tensor.__dlpack_device__
    take = dlpack.from_dlpack

    @functools.wraps(export)
    def __dlpack__(  # noqa: N807
        tensor: torch.Tensor, *, stream: Any = _NO_WAIT, dl_device: Any = None, **options: Any
    ) -> Any:
        is_ours = not has_torch_function_unary(tensor) and tensor.device.type == device_type
        if is_ours and tensor.is_neg():
            raise BufferError(
                "Can't export tensors with the negative bit set, use tensor.resolve_neg()"
            )
        capsule = export(tensor, stream=stream, dl_device=dl_device, **options)
        # Now: a copy that was asked for is queued as well.
        if is_ours and stream != _NO_WAIT:
            own = (DLDeviceType.kDLExtDev, tensor.device.index)
            if dl_device is None or tuple(dl_device) == own:
                _let_wait(stream, tensor)
            else:
                _finish_copy(tensor.device.index, *dl_device)
        return capsule

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
        stream = current_handle(self._device)
        try:
            return self._producer.__dlpack__(stream=stream, **options)
        except TypeError:  # older than streams, or than one of the options
            return self._producer.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._producer.__dlpack_device__()


def _let_wait(consumer: int | None, tensor: torch.Tensor) -> None:
    """Has the consumer's stream wait for the work that is queued on the device's current one.

    ``consumer`` is a handle of the driver; ``None`` is the default stream.  For a queue that opsmith has not
    made the host waits.
    """
    device = tensor.device.index
    current = torch.accelerator.current_stream(device)
    waiting = default_stream(device) if consumer is None else stream_of_handle(device, consumer)
    if waiting is None:
        current.synchronize()
    elif waiting != current:
        waiting.wait_event(current.record_event())
        tensor.record_stream(waiting)


def _finish_copy(source: int, kind: int, index: int) -> None:
    """Waits on the host for a copy from the device ``source`` to another one: no stream is both's."""
    torch.accelerator.current_stream(source).synchronize()
    if kind == DLDeviceType.kDLExtDev:
        torch.accelerator.current_stream(index).synchronize()
