"""The stream functions of ``torch.<name>`` and ``torch.<name>.streams``: those of ``torch.cuda``.

Streams and events are PyTorch's generic ones, ``torch.Stream`` and ``torch.Event``.
:mod:`opsmith.runtime.module.device_module` says what a device may be.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from opsmith.errors import NotOffered
from opsmith.runtime.module.memory import AnyDevice
from opsmith.runtime.module.public_module import Submodule

# A device's streams have the ids below this one (kStreamsPerDevice in csrc/opsmith/device/stream.cpp).
_STREAM_IDS = 65


class StreamContext:
    """``with``: ``stream`` and its device are current in this thread; ``None`` changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._entered: list[tuple[int, torch.Stream]] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            device = torch.accelerator.current_device_index()
            previous = torch.accelerator.current_stream(self.stream.device)
            torch.accelerator.set_stream(self.stream)
            self._entered.append((device, previous))

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            device, previous = self._entered.pop()
            torch.accelerator.set_stream(previous)
            torch.accelerator.set_device_index(device)


class StreamFunctions:
    """Functions and classes that ``torch.<name>`` and ``torch.<name>.streams`` share."""

    Stream = torch.Stream
    Event = torch.Event
    StreamContext = StreamContext

    def _index(self, device: AnyDevice) -> int:
        raise NotImplementedError

    def current_stream(self, device: AnyDevice = None) -> torch.Stream:
        """This thread's current stream of ``device``."""
        return torch.accelerator.current_stream(self._index(device))

    def default_stream(self, device: AnyDevice = None) -> torch.Stream:
        """The stream of ``device`` that is current in every thread until another one is set."""
        return default_stream(self._index(device))

    def set_stream(self, stream: torch.Stream | None) -> None:
        """Makes ``stream``, and its device, current in this thread."""
        if stream is not None:
            torch.accelerator.set_stream(stream)

    def stream(self, stream: torch.Stream | None) -> AbstractContextManager[object]:
        """``with``: ``stream`` and its device are current; ``None`` changes nothing."""
        if torch.compiler.is_compiling():  # Dynamo knows streams as contexts
            return nullcontext() if stream is None else stream
        return StreamContext(stream)

    def get_stream_from_external(self, data_ptr: int, device: AnyDevice = None) -> torch.Stream:
        """The stream of ``device`` with the driver's handle ``data_ptr``, its ``native_handle``.

        Raises :class:`~opsmith.errors.NotOffered` for a queue that another library made.
        """
        index = self._index(device)
        stream = stream_of_handle(index, data_ptr)
        if stream is None:
            name = default_stream(index).device
            raise NotOffered(
                f"no stream of {name} has the handle {data_ptr:#x}, and the queue of another library cannot "
                "become one",
                remedy=f'make the stream here, torch.Stream("{name}"), and hand its native_handle to the '
                "library",
            )
        return stream


class StreamsModule(Submodule, StreamFunctions):
    """``torch.<name>.streams``."""

    def __init__(self, device_type: str, index: Callable[[AnyDevice], int]) -> None:
        super().__init__(device_type, "streams", f"The streams of {device_type} devices.", index)


def default_stream(device: int) -> torch.Stream:
    """The stream of the device that is current in every thread until another one is set."""
    return _stream(device, 0)


def stream_of_handle(device: int, handle: int) -> torch.Stream | None:
    """The stream of the device with that ``native_handle``; ``None`` where it has none."""
    for stream_id in range(_STREAM_IDS):
        stream = _stream(device, stream_id)
        try:
            if native_handle(stream) == handle:
                return stream
        except RuntimeError:  # nobody has asked for this one yet
            continue
    return None


def native_handle(stream: torch.Stream) -> int:
    """The driver's handle of ``stream``, its address as a number."""
    handle: int = stream.native_handle  # type: ignore[attr-defined]
    return handle


def current_handle(device: int) -> int:
    """The driver's handle of the current stream of ``device``."""
    return native_handle(torch.accelerator.current_stream(device))


def _stream(device: int, stream_id: int) -> torch.Stream:
    device_type = torch.accelerator.current_stream(device).device_type
    return torch.Stream(stream_id=stream_id, device_index=device, device_type=device_type)
