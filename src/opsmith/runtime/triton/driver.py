"""The driver by which Triton knows the loaded device: its streams, its place, no times.

Libraries of kernels ask ``triton.runtime.driver.active`` when they are imported, and Triton finds a driver
for GPUs alone.  This one is for the interpreter: it names a target, and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from opsmith import torch_names


class DeviceDriver:
    """A driver of Triton's, where nothing is compiled."""

    def __init__(self) -> None:
        self._device = torch_names._get_privateuse1_backend_name()
        self._namespace = getattr(torch, self._device)

    def get_current_device(self) -> int:
        index: int = self._namespace.current_device()
        return index

    def set_current_device(self, index: int) -> None:
        self._namespace.set_device(index)

    def get_current_stream(self, index: int) -> int:
        stream: int = self._namespace.current_stream(index).stream_id
        return stream

    def get_active_torch_device(self) -> torch.device:
        return torch.device(self._device, self.get_current_device())

    def get_device_interface(self) -> Any:
        return self._namespace

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("interpreter", 0, 1)

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """Times of an interpreter say nothing of a device: all are equal, and nothing is run for them."""
        return lambda call, *, quantiles=(0.5,), **_: [0.0] * len(quantiles)


def activate_driver() -> None:
    """Has Triton ask the loaded device, where no driver for a GPU of its own is there."""
    from triton.runtime.driver import driver

    try:
        driver.active  # noqa: B018
    except RuntimeError:
        driver.set_active(DeviceDriver())
