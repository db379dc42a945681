"""The driver by which Triton knows the loaded device: its streams and its place, over opsmith's driver table.

A vendor's package in ``triton.backends`` has a compiler backend, and a class derived from
:class:`DeviceDriver` that names the target; the device's driver launches what was compiled
(``opsmith_triton.h``).
"""

from __future__ import annotations

import functools
import importlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from opsmith.errors import KernelRejected
from opsmith.runtime.module.streams import current_handle
from opsmith.runtime.triton.binaries import Launcher, load_binary
from opsmith.runtime.triton.device import backend_of_the_device, triton_device

_UNLIMITED = 2**31 - 1


class DeviceDriver(DriverBase):  # type: ignore[misc]
    """The loaded device as Triton asks for it; a class derived from it has a ``target``."""

    @property
    @abstractmethod
    def target(self) -> GPUTarget:
        """The compiler backend's name, the architecture, and the threads of a warp: a class attribute."""

    max_shared_memory = _UNLIMITED
    """The bytes that a program can share."""
    max_threads = _UNLIMITED
    """The threads of a program, num_warps times the warp's."""
    trailing_pointers = 0
    """How many pointers, given NULL, a binary has behind the arguments of its kernel."""

    def __init__(self) -> None:
        self.launcher_cls = functools.partial(Launcher, self)
        self.device = triton_device().name
        self._namespace = getattr(torch, self.device)
        self.get_current_device: Callable[[], int] = self._namespace.current_device
        self.set_current_device: Callable[[int], None] = self._namespace.set_device
        self.get_current_stream = current_handle
        self.utils = SimpleNamespace(
            load_binary=functools.partial(load_binary, self),
            get_device_properties=lambda index: {
                "max_shared_mem": self.max_shared_memory,
                "multiprocessor_count": self._namespace.get_device_properties(
                    index
                ).multi_processor_count,
                "warpSize": self.target.warp_size,
            },
        )

    @classmethod
    def is_active(cls) -> bool:
        """Whether it is the driver of the loaded device's backend."""
        from triton.backends import backends  # asks this while it is imported

        found = backends.get(backend_of_the_device())
        return found is not None and found.driver is cls

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("a launch is written by no C++ of Triton's here")

    def get_active_torch_device(self) -> torch.device:
        return torch.device(self.device, self.get_current_device())

    def get_device_interface(self) -> Any:
        return self._namespace

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1 << 20, dtype=torch.int32, device=self.device)

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        benchmark: Callable[..., Sequence[float]] = importlib.import_module(
            "triton.testing"
        ).do_bench
        return benchmark


class InterpretedDriver(DeviceDriver):
    """The driver where Triton's interpreter runs all kernels, and nothing is compiled."""

    target = GPUTarget("interpreter", 0, 1)

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """Times of an interpreter say nothing of a device: all are equal, and nothing is run for them."""
        return lambda call, *, quantiles=(0.5,), **_: [0.0] * len(quantiles)


def activate(backend: str | None) -> None:
    """Has Triton ask the loaded device, for which the package ``backend`` of Triton's compiles kernels.

    ``None``: nothing is compiled, and a driver that Triton has found for a GPU of its own stays.  So does a
    vendor's that is no :class:`DeviceDriver`.
    Raises :class:`KernelRejected` where Triton has no such backend.
    """
    from triton.backends import backends
    from triton.runtime.driver import driver

    if backend is None:
        try:
            driver.active  # noqa: B018
        except RuntimeError:
            driver.set_active(InterpretedDriver())
        return
    if backend == "host" and backend not in backends:
        # Here: it brings what finds a compiler of C++.
        backends[backend] = importlib.import_module("opsmith.runtime.triton.host").backend()
    if backend not in backends:
        raise KernelRejected(
            f"Triton has no backend `{backend}`, which `triton` in backend.yaml names: it has "
            f"{', '.join(sorted(backends)) or 'none'}",
            remedy="install the package that has it (an entry point of `triton.backends`), or name another",
        )
    found = backends[backend].driver
    if backend == "nvidia":
        # Here: other devices have no use for it.  Triton's own launches on the streams of torch.cuda.
        found = importlib.import_module("opsmith.runtime.triton.nvidia").NvidiaDriver
    if issubclass(found, DeviceDriver) and not isinstance(driver._active, found):
        driver.set_active(found())
