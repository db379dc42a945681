"""NVIDIA's devices of opsmith's driver ``cuda_driver``, for Triton's own compiler backend ``nvidia``."""

from __future__ import annotations

import functools

from triton.backends.compiler import GPUTarget

from opsmith.errors import Unsupported
from opsmith.runtime.triton.driver import DeviceDriver


class NvidiaDriver(DeviceDriver):
    """The loaded device, whose properties name its architecture: ``sm_90``."""

    # The scratch memory of a kernel and of a profiler, which launches leave out.
    trailing_pointers = 2
    max_threads = 1024

    @functools.cached_property
    def target(self) -> GPUTarget:
        architecture: str = self._namespace.get_device_properties(
            self.get_current_device()
        ).architecture
        number = architecture.rpartition("sm_")[2]
        if not number.isdecimal():
            raise Unsupported(
                f"Triton's backend `nvidia` compiles for NVIDIA's devices, not for {architecture}",
                remedy="name the backend of Triton's that is for this device: `triton: {backend: …}`",
            )
        return GPUTarget("cuda", int(number), 32)
