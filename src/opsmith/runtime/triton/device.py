"""The loaded device as what serves Triton has to know it: its driver, and Triton's backend for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opsmith.errors import LoadError


@dataclass(frozen=True)
class TritonDevice:
    """``driver`` is the driver's library; ``backend`` gives the name that the description has, or none."""

    name: str
    driver: Path
    backend: Callable[[], str]


_device: TritonDevice | None = None


def set_triton_device(device: TritonDevice) -> None:
    """Called once, when a backend is loaded."""
    global _device
    _device = device


def triton_device() -> TritonDevice:
    """Raises :class:`LoadError` where no backend is loaded."""
    if _device is None:
        raise LoadError(
            "no backend is loaded, so Triton has no device",
            remedy='call opsmith.load("sim"), or another backend, first',
        )
    return _device


def backend_of_the_device() -> str:
    """The name of Triton's backend for the loaded device; empty where there is none."""
    return _device.backend() if _device is not None else ""
