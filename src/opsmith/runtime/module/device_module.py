"""The module that PyTorch shows as ``torch.<name>`` for a loaded device.

PyTorch, and programs written for ``torch.cuda`` or ``torch.xpu``, look there for devices, streams
(:mod:`~opsmith.runtime.module.streams`), memory (:mod:`~opsmith.runtime.module.memory`), random numbers and
types of tensors.  Everything is ``torch.accelerator`` under the customary names; only what that does not
offer asks the driver through ``torch.ops.opsmith``.  What is missing,
:mod:`~opsmith.runtime.module.names_left_out` explains.  :mod:`opsmith.runtime.load` registers it.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

from opsmith.errors import NotOffered
from opsmith.runtime.module.graphs import GraphFunctions, GraphsModule, graph_type
from opsmith.runtime.module.host_array import HostWindow
from opsmith.runtime.module.memory import AnyDevice, MemoryFunctions, MemoryModule
from opsmith.runtime.module.mixed_precision import AmpModule
from opsmith.runtime.module.public_module import PublicModule
from opsmith.runtime.module.random_numbers import RandomFunctions, RandomModule
from opsmith.runtime.module.ranges import RangesModule
from opsmith.runtime.module.streams import StreamFunctions, StreamsModule
from opsmith.runtime.module.tensor_types import tensor_types
from opsmith.runtime.patches.storages import storage_types
from opsmith.schema import torch_names
from opsmith.schema.torch_names import Feature, set_up

if TYPE_CHECKING:
    import numpy

_TYPES: Mapping[Feature, Callable[[str], Mapping[str, Any]]] = {
    Feature.TENSOR_TYPES: tensor_types,
    Feature.TYPED_STORAGES: storage_types,
    Feature.GRAPHS: graph_type,
}

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of a device, from its driver; ``total_memory`` and ``alignment`` in bytes."""

    name: str
    architecture: str
    total_memory: int
    alignment: int
    multi_processor_count: int


def constant_when_compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Has Dynamo call ``function`` once, where it traces a call of it: what it returns does not change.

    As ``torch.compiler.assume_constant_result``, which would import the compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class DeviceModule(MemoryFunctions, StreamFunctions, GraphFunctions, RandomFunctions, PublicModule):
    """``torch.<name>``.

    Functions that take ``device`` accept what ``torch.cuda``'s do; ``None`` is the current device.
    An index that does not exist raises RuntimeError, another type of device ValueError.
    """

    has_half = True
    OutOfMemoryError = torch.OutOfMemoryError

    def __init__(self, device_type: str, window: HostWindow) -> None:
        super().__init__(f"torch.{device_type}", f"The {device_type} device, brought by opsmith.")
        self._device_type = device_type
        self._window = window
        self.memory = MemoryModule(device_type, self._index)
        self.streams = StreamsModule(device_type, self._index)
        self.graphs = GraphsModule(device_type, self._index)
        self.random = RandomModule(device_type, self._index)
        self.amp = AmpModule(device_type)
        self.nvtx = RangesModule(device_type, self._index)
        for feature, types in _TYPES.items():
            set_up(feature, self._add, types)

    def _add(self, types: Callable[[str], Mapping[str, Any]]) -> None:
        vars(self).update(types(self._device_type))

    # ---- devices ----

    @constant_when_compiled
    def is_available(self) -> bool:
        """Whether the driver found at least one device."""
        return self.device_count() > 0

    def is_initialized(self) -> bool:
        """Whether the device can be used in this process: no fork has lost it."""
        return not self._is_in_bad_fork()

    def init(self) -> None:
        """Does nothing but raise where the device cannot be used; loading has initialised it."""
        self._lazy_init()

    @constant_when_compiled
    def device_count(self) -> int:
        """The number of devices that the driver found."""
        return torch_names._accelerator_hooks_device_count()

    def current_device(self) -> int:
        """The index of this thread's current device."""
        return torch.accelerator.current_device_index()

    def set_device(self, device: AnyDevice) -> None:
        """Makes ``device`` this thread's current one; nothing happens for an index below 0."""
        torch.accelerator.set_device_index(self._index(device))

    def device(self, device: AnyDevice) -> CurrentDevice:
        """``with torch.<name>.device(1):`` makes it current; ``None`` or -1 changes nothing."""
        return CurrentDevice(-1 if device is None else self._index(device))

    def synchronize(self, device: AnyDevice = None) -> None:
        """Waits until all streams of ``device`` are done."""
        torch.accelerator.synchronize(self._index(device))

    def device_of(self, obj: torch.Tensor | Any) -> CurrentDevice:
        """``with``: the device of a tensor or storage is current; one of elsewhere changes nothing."""
        is_here = obj.device.type == self._device_type
        return CurrentDevice(obj.device.index if is_here else -1)

    def ipc_collect(self) -> None:
        """Frees now what other processes have given up of tensors that were sent to them.

        It is freed by itself in a moment; this waits until all that was given up before is.
        """
        self._lazy_init()
        torch.ops.opsmith.collect_shared_memory()

    @constant_when_compiled
    def get_device_properties(self, device: AnyDevice = None) -> DeviceProperties:
        """The properties of ``device``, from its driver."""
        return DeviceProperties(*torch.ops.opsmith.device_properties(self._index(device)))

    @constant_when_compiled
    def get_device_name(self, device: AnyDevice = None) -> str:
        """The name of ``device``, for people."""
        return self.get_device_properties(device).name

    @constant_when_compiled
    def get_device_capability(self, device: AnyDevice = None) -> dict[str, Any]:
        """The properties of ``device`` by their names, and ``supported_dtypes``, as ``torch.xpu``'s."""
        index = self._index(device)
        if torch_names.has("get_device_capability"):
            of_pytorch = torch_names.get_device_capability(index)
        else:  # what it says where nothing is said of a device
            every = {each for each in vars(torch).values() if isinstance(each, torch.dtype)}
            of_pytorch = {"supported_dtypes": every}
        return {**asdict(self.get_device_properties(index)), **of_pytorch}

    def get_arch_list(self) -> list[str]:
        """The architectures of the devices, each once."""
        devices = range(self.device_count())
        return sorted({self.get_device_properties(index).architecture for index in devices})

    def get_gencode_flags(self) -> str:
        """Empty: PyTorch holds no code that was compiled for the device ahead of time."""
        return ""

    def can_device_access_peer(self, device: AnyDevice, peer_device: AnyDevice) -> bool:
        """False: kernels of one device are never given memory of another.  Copies between them work."""
        for each in (device, peer_device):
            self.get_device_properties(each)  # raises for one that does not exist
        return False

    # ---- what no driver tells ----

    def utilization(self, device: AnyDevice = None) -> int:
        """Raises :class:`~opsmith.errors.NotOffered`."""
        raise self._untold("how busy it is", device)

    def memory_usage(self, device: AnyDevice = None) -> int:
        """Raises :class:`~opsmith.errors.NotOffered`; :meth:`device_memory_used` counts bytes."""
        raise self._untold("how busy its memory is", device)

    def temperature(self, device: AnyDevice = None) -> int:
        """Raises :class:`~opsmith.errors.NotOffered`."""
        raise self._untold("its temperature", device)

    def power_draw(self, device: AnyDevice = None) -> int:
        """Raises :class:`~opsmith.errors.NotOffered`."""
        raise self._untold("the power that it draws", device)

    def clock_rate(self, device: AnyDevice = None) -> int:
        """Raises :class:`~opsmith.errors.NotOffered`."""
        raise self._untold("its clock rate", device)

    def _untold(self, what: str, device: AnyDevice) -> NotOffered:
        index = self._index(device)
        return NotOffered(
            f"{self._device_type}:{index} does not tell {what}: a driver has no function for that",
            remedy="ask the tools of the device's vendor",
        )

    # ---- NumPy ----

    def host_array(self, tensor: torch.Tensor) -> numpy.ndarray[Any, Any]:
        """The elements of ``tensor`` as a NumPy array in the same memory, through the host window.

        Waits until all streams of the device are done.  Work that is queued later and the host may use the
        memory at the same time: synchronise before.  The array keeps the tensor's memory, unless
        the storage is resized.

        Raises :class:`~opsmith.errors.NoHostWindow` where the host cannot address the device's memory,
        ValueError for a tensor of elsewhere, and TypeError or RuntimeError as ``Tensor.numpy()``.
        """
        self._lazy_init()
        return self._window.array(tensor, self._device_type)

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
        return [getattr(torch, name.lower()) for name in torch.ops.opsmith.autocast_dtypes()]

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """True: what has no kernel for bfloat16 runs on the CPU."""
        return True

    def is_tf32_supported(self) -> bool:
        """False: float32 is computed in float32."""
        return False

    def _is_in_bad_fork(self) -> bool:
        forked: bool = torch.ops.opsmith.is_in_bad_fork()
        return forked

    def _lazy_init(self) -> None:
        torch.ops.opsmith.driver_name()  # raises after a fork

    def _index(self, device: AnyDevice) -> int:
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            if device.type != self._device_type:
                raise ValueError(f"expected a {self._device_type} device, but got {device}")
            device = device.index
        return self.current_device() if device is None else device


class CurrentDevice:
    """``with``: the device ``idx`` is current in this thread; one below 0 changes nothing."""

    def __init__(self, idx: int) -> None:
        self.idx = idx
        self._previous: list[int] = []

    def __enter__(self) -> None:
        if self.idx >= 0:
            self._previous.append(torch_names._accelerator_exchangeDevice(self.idx))

    def __exit__(self, *error: object) -> None:
        if self.idx >= 0:
            torch_names._accelerator_exchangeDevice(self._previous.pop())


def register_device_module(name: str, driver: Path, use_host_window: bool) -> None:
    """Makes the module ``torch.<name>``, and its submodules, known to PyTorch and to ``import``.

    The backend's library must be loaded, and ``driver`` is the library of its driver, whose host window is
    used or not.
    """
    module = DeviceModule(name, HostWindow(driver, use_host_window))
    torch_names._register_device_module(name, module)  # type: ignore[no-untyped-call]
    for submodule in (
        module.memory,
        module.streams,
        module.graphs,
        module.random,
        module.amp,
        module.nvtx,
    ):
        sys.modules[submodule.__name__] = submodule
    torch.ops.opsmith.register_graphs()
    atexit.register(torch.ops.opsmith.finish_queued_work)
    atexit.register(torch.ops.opsmith.stop_autograd_threads)
    atexit.register(torch.ops.opsmith.keep_threads_from_aborting)
