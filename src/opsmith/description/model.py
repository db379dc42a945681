"""A backend as its author described it, validated and immutable.

Nothing here decides a route: that is the plan's.  Each value remembers the place in the YAML that it
came from, so that the plan can name it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from opsmith.errors import Location


class Abi(Enum):
    """The form that a kernel has."""

    ATEN = "aten"
    """A C++ function on ``at::Tensor``."""
    PYTHON = "python"
    """A Python callable."""


class Execution(Enum):
    """Where a kernel's code runs."""

    DEVICE = "device"
    """It enqueues work on the device's current stream."""
    HOST = "host"
    """It computes on the calling thread, through the driver's host window."""


class FallbackDefault(Enum):
    """What happens to operators that nothing else serves."""

    CPU = "cpu"
    NONE = "none"


@dataclass(frozen=True)
class StubKernel:
    """A function that fills the ``DispatchStub`` ``stub`` of PyTorch for the device.

    ``dtypes`` are those that it computes in, ``ScalarType`` names; empty: all.
    """

    stub: str
    symbol: str
    library: str
    location: Location
    dtypes: tuple[str, ...] = ()
    execution: Execution = Execution.DEVICE


@dataclass(frozen=True)
class Kernel:
    """One implementation of one operator.

    ``dtypes`` maps an argument to the c10 ``ScalarType`` names (``Float``, ``Long``, …) that the
    kernel takes there; the key ``""`` stands for the dtype in which the kernel computes.  Empty: all.
    ``device_guard``: the caller checks that all Tensors share a device and makes it current.
    ``symint``: the C++ signature takes ``c10::SymInt`` where the schema does.

    Of a structured kernel, ``meta_symbol`` names the function that checks and shapes in the place of
    PyTorch's own; a kernel that ``casts`` takes a TensorIterator whose operands do not have the common
    dtype.

    ``autograd`` names a function for the autograd dispatch key (it calls a
    ``torch::autograd::Function``); ``backward`` one that computes the gradients of the inputs, around
    which such a function is generated.  ``symbol`` is empty where only ``autograd`` is given.

    ``through`` is not empty where the kernel is PyTorch's own and these do its work; ``symbol`` is then
    a function of libtorch or, where ``structured``, a class.
    """

    operator: str
    symbol: str
    library: str
    location: Location
    abi: Abi = Abi.ATEN
    structured: bool = False
    meta_symbol: str = ""
    casts: bool = False
    dtypes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    execution: Execution = Execution.DEVICE
    device_guard: bool = True
    symint: bool = False
    autograd: str = ""
    backward: str = ""
    through: tuple[StubKernel, ...] = ()


@dataclass(frozen=True)
class Library:
    """A kernel library: a named set of kernels with the sources that define them."""

    name: str
    location: Location
    abi: Abi = Abi.ATEN
    execution: Execution = Execution.DEVICE
    sources: tuple[Path, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    stubs: tuple[StubKernel, ...] = ()


@dataclass(frozen=True)
class Driver:
    """The device's C library: ready built (``library``), or from ``sources``."""

    location: Location
    library: Path | None = None
    sources: tuple[Path, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    host_window: bool = True


@dataclass(frozen=True)
class NamedOperator:
    """An operator's name where the description mentions it."""

    name: str
    location: Location


@dataclass(frozen=True)
class Fallback:
    """The fallback policy: ``only``, where given, allows nothing else; ``deny`` forbids."""

    location: Location
    default: FallbackDefault = FallbackDefault.CPU
    only: tuple[NamedOperator, ...] | None = None
    deny: tuple[NamedOperator, ...] = ()


@dataclass(frozen=True)
class Backend:
    """A device name, a driver, kernel libraries in order of preference, and a fallback policy.

    ``libraries`` ends with ``runtime``, the operators that every device needs.
    """

    name: str
    location: Location
    driver: Driver
    libraries: tuple[Library, ...]
    fallback: Fallback
    files: tuple[Path, ...] = field(default=())
    """The YAML files that were read, for cache keys."""
