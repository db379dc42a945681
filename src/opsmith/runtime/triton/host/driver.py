"""The driver that Triton finds beside the compiler backend ``host``."""

from __future__ import annotations

from triton.backends.compiler import GPUTarget

from opsmith.runtime.triton.driver import DeviceDriver


class HostDriver(DeviceDriver):
    """The loaded device as one whose programs have one thread."""

    target = GPUTarget("host", "", 1)
