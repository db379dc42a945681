"""``torch.nn.DataParallel`` and ``torch.nn.parallel.scatter``, ``gather`` and ``replicate`` on the devices.

They stand on the functions of ``torch.nn.parallel.comm``, which PyTorch compiles for CUDA only.  Tensors of
the device get functions that copy from device to device; those of others keep PyTorch's.
:mod:`opsmith.runtime.load` calls :func:`serve_data_parallel`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.nn.parallel import comm

from opsmith.schema.torch_names import _get_available_device_type, _handle_complex

_AnyDevice = Any  # torch.device, str or int
_Tensors = Sequence[torch.Tensor]


def serve_data_parallel(device_type: str) -> None:
    """Has ``torch.nn.parallel.comm`` serve tensors of ``device_type``, and those of the CPU that go there."""
    functions = DeviceComm(device_type)
    served: tuple[Callable[..., Any], ...] = (
        functions.broadcast,
        functions.broadcast_coalesced,
        functions.reduce_add,
        functions.scatter,
        functions.gather,
    )
    for function in served:
        name = function.__name__
        setattr(comm, name, _chosen(function, getattr(comm, name), device_type))
    # By the module's full name, which the function of the same name hides.
    applied: Any = importlib.import_module("torch.nn.parallel.parallel_apply")
    applied._get_device_index = _index_of(device_type, applied._get_device_index)
    keep_autocast = _keeping_autocast(device_type, applied.parallel_apply)
    for name in (
        "torch.nn.parallel.parallel_apply",
        "torch.nn.parallel.data_parallel",
        "torch.nn.parallel",
    ):
        importer: Any = importlib.import_module(name)
        importer.parallel_apply = keep_autocast


def _index_of(device_type: str, original: Callable[..., int]) -> Callable[..., int]:
    """``original``, which knows the devices of CUDA, for those of ``device_type`` too."""

    @functools.wraps(original)
    def index(device: _AnyDevice, *arguments: Any, **options: Any) -> int:
        if isinstance(device, str | torch.device) and torch.device(device).type == device_type:
            found = torch.device(device).index
            return torch.accelerator.current_device_index() if found is None else found
        return original(device, *arguments, **options)

    return index


def _keeping_autocast(device_type: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, which hands CUDA's autocast alone to its threads, with that of ``device_type`` too."""

    @functools.wraps(original)
    def parallel_apply(modules: Sequence[Any], *arguments: Any, **options: Any) -> Any:
        if torch.is_autocast_enabled(device_type):
            dtype = torch.get_autocast_dtype(device_type)
            modules = [_under_autocast(module, device_type, dtype) for module in modules]
        return original(modules, *arguments, **options)

    return parallel_apply


def _under_autocast(module: Any, device_type: str, dtype: torch.dtype) -> Callable[..., Any]:
    def applied(*arguments: Any, **options: Any) -> Any:
        with torch.autocast(device_type, dtype):
            return module(*arguments, **options)

    return applied


def _chosen(
    ours: Callable[..., Any], original: Callable[..., Any], device_type: str
) -> Callable[..., Any]:
    """``ours`` for tensors of the device, and of the CPU where this is the device that PyTorch takes."""

    name_of_first = next(iter(inspect.signature(original).parameters))

    @functools.wraps(original)
    def chosen(*arguments: Any, **options: Any) -> Any:
        first, *others = arguments or (options.pop(name_of_first),)
        given = [first] if isinstance(first, torch.Tensor) else list(first)
        kinds = {tensor.device.type for tensor in given}
        to_us = device_type in kinds or _device_pytorch_takes() == device_type
        serve = ours if to_us and kinds <= {device_type, "cpu"} else original
        return serve(first if isinstance(first, torch.Tensor) else given, *others, **options)

    return chosen


class DeviceComm:
    """The functions of ``torch.nn.parallel.comm`` for the devices of one type.

    Arguments and results are those of the functions of the same name there.  Complex tensors come out as
    real ones, as there.
    """

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type

    def broadcast(
        self,
        tensor: torch.Tensor,
        devices: Iterable[_AnyDevice] | None = None,
        *,
        out: _Tensors | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """A copy of ``tensor`` on each of ``devices``, or in each of ``out``; its own device's is itself."""
        _check_one_of(devices, out)
        tensor = _as_real(tensor)
        if out is not None:
            return tuple(each.copy_(tensor, non_blocking=True) for each in out)
        return tuple(tensor.to(place, non_blocking=True) for place in self._places(devices))

    def broadcast_coalesced(
        self, tensors: _Tensors, devices: Iterable[_AnyDevice], buffer_size: int = 10485760
    ) -> list[list[torch.Tensor]]:
        """For each of ``devices`` a list of copies, without gradients; its own device's are ``tensors``.

        They are not gathered in buffers of ``buffer_size``.
        """
        real = [_as_real(tensor) for tensor in tensors]
        with torch.no_grad():
            return [
                [tensor.to(place, non_blocking=True) for tensor in real]
                for place in self._places(devices)
            ]

    def reduce_add(self, inputs: _Tensors, destination: _AnyDevice = None) -> torch.Tensor:
        """The sum of ``inputs`` on ``destination``; ``None`` is the current device.

        Raises ValueError where shapes differ.
        """
        place = self._place(destination)
        first, *others = inputs
        for index, other in enumerate(others, 1):
            if other.shape != first.shape:
                raise ValueError(
                    f"input {index} has invalid size: got {'x'.join(map(str, other.shape))}, but "
                    f"expected {'x'.join(map(str, first.shape))}"
                )
        total = first.to(place, non_blocking=True)
        for other in others:
            total = total + other.to(place, non_blocking=True)
        return total

    def scatter(
        self,
        tensor: torch.Tensor,
        devices: Iterable[_AnyDevice] | None = None,
        chunk_sizes: Sequence[int] | None = None,
        dim: int = 0,
        streams: Sequence[torch.Stream | None] | None = None,
        *,
        out: _Tensors | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Chunks of ``tensor`` on ``devices``, or in ``out``, each copied on its stream of ``streams``."""
        _check_one_of(devices, out)
        tensor = _as_real(tensor)
        chunks: Sequence[torch.Tensor]
        if out is not None:
            if chunk_sizes is not None:
                raise RuntimeError("'chunk_sizes' must not be specified when 'out' is specified")
            chunks = torch.split_with_sizes(tensor, [each.size(dim) for each in out], dim)
            for target, chunk in zip(out, chunks, strict=True):
                target.copy_(chunk, non_blocking=True)
            return tuple(out)
        places = self._places(devices)
        if chunk_sizes is None:
            chunks = tensor.chunk(len(places), dim)
        else:
            chunks = torch.split_with_sizes(tensor, list(chunk_sizes), dim)
        if len(chunks) > len(places):
            raise RuntimeError(f"{len(chunks)} chunks cannot be placed on {len(places)} devices")
        scattered = []
        for index, (chunk, place) in enumerate(zip(chunks, places, strict=False)):
            with (streams[index] if streams else None) or contextlib.nullcontext():
                scattered.append(chunk.contiguous().to(place, non_blocking=True))
        return tuple(scattered)

    def gather(
        self,
        tensors: _Tensors,
        dim: int = 0,
        destination: _AnyDevice = None,
        *,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """``tensors`` one after the other along ``dim`` on ``destination``, or in ``out``.

        ``destination`` may be the CPU, ``"cpu"`` or -1; ``None`` is the current device.
        """
        if out is not None and destination is not None:
            raise RuntimeError("'destination' must not be specified when 'out' is specified")
        place = self._place(destination) if out is None else out.device
        non_blocking = place.type != "cpu"  # the host reads at once
        moved = [_as_real(tensor).to(place, non_blocking=non_blocking) for tensor in tensors]
        return torch.cat(moved, dim) if out is None else torch.cat(moved, dim, out=out)

    def _places(self, devices: Iterable[_AnyDevice] | None) -> list[torch.device]:
        return [self._place(device) for device in devices or ()]

    def _place(self, device: _AnyDevice) -> torch.device:
        if device is None:
            return torch.device(self._device_type, torch.accelerator.current_device_index())
        if isinstance(device, int):
            return torch.device(self._device_type, device) if device >= 0 else torch.device("cpu")
        place = torch.device(device)
        if place.type not in (self._device_type, "cpu"):
            raise ValueError(f"expected a {self._device_type} device, but got {place}")
        return place


def _device_pytorch_takes() -> str | None:
    """The type of device that indices mean where no tensor tells."""
    found: str | None = _get_available_device_type()  # type: ignore[no-untyped-call]
    return found


def _check_one_of(devices: object, out: object) -> None:
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    real: torch.Tensor = _handle_complex(tensor)  # type: ignore[no-untyped-call]
    return real
