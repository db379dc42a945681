"""``backend.yaml`` and library manifests: read, validated, every error with its place."""

from opsmith.description.model import (
    Backend,
    Driver,
    Execution,
    Fallback,
    FallbackDefault,
    Kernel,
    Library,
    NamedOperator,
    StubKernel,
)
from opsmith.description.reader import (
    find_backend,
    read_backend,
    read_library,
    shipped_backends,
)

__all__ = [
    "Backend",
    "Driver",
    "Execution",
    "Fallback",
    "FallbackDefault",
    "Kernel",
    "Library",
    "NamedOperator",
    "StubKernel",
    "find_backend",
    "read_backend",
    "read_library",
    "shipped_backends",
]
