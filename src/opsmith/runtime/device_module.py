"""The module that PyTorch shows as ``torch.<name>`` for a loaded device.

PyTorch, and programs written for ``torch.cuda``, look there for devices, streams, memory
(:mod:`opsmith.runtime.memory`) and random numbers.  Everything is ``torch.accelerator`` under
the customary names; only what that does not offer asks the driver through ``torch.ops.opsmith``.
:mod:`opsmith.runtime.load` registers it.
"""

from __future__ import annotations

import atexit
import contextlib
import types
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from opsmith.runtime.memory import AnyDevice, MemoryFunctions, MemoryModule


@dataclass(frozen=True)
class DeviceProperties:
    """What the driver tells about a device; ``total_memory`` and ``alignment`` in bytes."""

    name: str
    architecture: str
    total_memory: int
    alignment: int
    multi_processor_count: int


class DeviceModule(MemoryFunctions, types.ModuleType):
    """``torch.<name>``.

    Functions that take ``device`` accept what ``torch.cuda``'s do; ``None`` is the current device.
    An index that does not exist raises IndexError, another type of device ValueError.
    """

    Stream = torch.Stream
    Event = torch.Event

    def __init__(self, device_type: str) -> None:
        super().__init__(f"torch.{device_type}", f"The {device_type} device, brought by opsmith.")
        self._device_type = device_type
        self.memory = MemoryModule(device_type, self._index)

    # ---- devices ----

    def is_available(self) -> bool:
        """Whether the driver found at least one device."""
        return self.device_count() > 0

    def is_initialized(self) -> bool:
        """Whether the device can be used in this process: no fork has lost it."""
        return not self._is_in_bad_fork()

    def init(self) -> None:
        """Does nothing but raise where the device cannot be used; loading has initialised it."""
        self._lazy_init()

    def device_count(self) -> int:
        return torch._C._accelerator_hooks_device_count()

    def current_device(self) -> int:
        """The index of this thread's current device."""
        return torch.accelerator.current_device_index()

    def set_device(self, device: AnyDevice) -> None:
        """Makes ``device`` this thread's current one; nothing happens for an index below 0."""
        torch.accelerator.set_device_index(self._index(device))

    def device(self, device: AnyDevice) -> AbstractContextManager[None]:
        """``with torch.<name>.device(1):`` makes it current; ``None`` or -1 changes nothing."""
        return _current_device(-1 if device is None else self._index(device))

    def synchronize(self, device: AnyDevice = None) -> None:
        """Waits until all streams of ``device`` are done."""
        torch.accelerator.synchronize(self._index(device))

    def get_device_properties(self, device: AnyDevice = None) -> DeviceProperties:
        return DeviceProperties(*torch.ops.opsmith.device_properties(self._index(device)))

    def get_device_name(self, device: AnyDevice = None) -> str:
        return self.get_device_properties(device).name

    # ---- streams ----

    def current_stream(self, device: AnyDevice = None) -> torch.Stream:
        """This thread's current stream of ``device``."""
        return torch.accelerator.current_stream(self._index(device))

    def default_stream(self, device: AnyDevice = None) -> torch.Stream:
        """The stream of ``device`` that is current in every thread until another one is set."""
        index = self._index(device)
        device_type = self.current_stream(index).device_type
        return torch.Stream(stream_id=0, device_index=index, device_type=device_type)

    def set_stream(self, stream: torch.Stream | None) -> None:
        """Makes ``stream``, and its device, current in this thread."""
        if stream is not None:
            torch.accelerator.set_stream(stream)

    def stream(self, stream: torch.Stream | None) -> AbstractContextManager[object]:
        """``with``: ``stream`` and its device are current; ``None`` changes nothing."""
        return contextlib.nullcontext() if stream is None else stream

    # ---- random numbers ----

    def manual_seed(self, seed: int) -> None:
        """Seeds the current device's default generator."""
        self._default_generator(None).manual_seed(int(seed))

    def manual_seed_all(self, seed: int) -> None:
        """Seeds the default generator of every device; ``torch.manual_seed`` calls this."""
        for index in range(self.device_count()):
            self._default_generator(index).manual_seed(int(seed))

    def seed(self) -> None:
        """Seeds the current device's default generator with a number that differs each time."""
        self._default_generator(None).seed()

    def seed_all(self) -> None:
        """Seeds the default generator of every device with the same number, another each time."""
        self.manual_seed_all(torch.Generator().seed())

    def initial_seed(self) -> int:
        """The seed of the current device's default generator."""
        return self._default_generator(None).initial_seed()

    def get_rng_state(self, device: AnyDevice = None) -> torch.Tensor:
        """The state of the default generator of ``device``, as bytes on the CPU."""
        return self._default_generator(device).get_state()

    def set_rng_state(self, new_state: torch.Tensor, device: AnyDevice = None) -> None:
        self._default_generator(device).set_state(new_state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [self.get_rng_state(index) for index in range(self.device_count())]

    def set_rng_state_all(self, new_states: Iterable[torch.Tensor]) -> None:
        for index, state in enumerate(new_states):
            self.set_rng_state(state, index)

    # ---- what PyTorch looks for ----

    @property
    def _initialized(self) -> bool:
        """Whether there are random states to keep; ``torch.utils.checkpoint`` keeps none otherwise."""
        return self.is_initialized()

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        """The generator of each device, by its index."""
        return tuple(self._default_generator(index) for index in range(self.device_count()))

    def _get_generator(self, device: torch.device) -> torch.Generator:
        return self._default_generator(device)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """The dtypes that ``torch.autocast`` may use here."""
        return [torch.float16, torch.bfloat16]

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        forked: bool = torch.ops.opsmith.is_in_bad_fork()
        return forked

    def _lazy_init(self) -> None:
        torch.ops.opsmith.driver_name()  # raises after a fork

    def _default_generator(self, device: AnyDevice) -> torch.Generator:
        generator: torch.Generator = torch.ops.opsmith.default_generator(self._index(device))
        return generator

    def _index(self, device: AnyDevice) -> int:
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            if device.type != self._device_type:
                raise ValueError(f"expected a {self._device_type} device, but got {device}")
            device = device.index
        return self.current_device() if device is None else device


@contextlib.contextmanager
def _current_device(index: int) -> Iterator[None]:
    if index < 0:
        yield
        return
    previous = torch._C._accelerator_exchangeDevice(index)
    try:
        yield
    finally:
        torch._C._accelerator_exchangeDevice(previous)


def make_device_module(name: str) -> types.ModuleType:
    """The module for the device type ``name``, for ``torch._register_device_module``.

    The backend's library must be loaded.
    """
    atexit.register(torch.ops.opsmith.stop_autograd_threads)
    return DeviceModule(name)
