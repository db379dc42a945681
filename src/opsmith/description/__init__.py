"""``backend.yaml`` and library manifests: read, validated, every error with its place."""

from opsmith.description.imported import Imported, import_library
from opsmith.description.model import (
    Abi,
    ArgMeta,
    Backend,
    Derive,
    Driver,
    Execution,
    ExecutorchOperator,
    Fallback,
    FallbackDefault,
    GivenMeta,
    Kernel,
    Library,
    NamedOperator,
    StubKernel,
    Unserved,
)
from opsmith.description.reader import (
    find_backend,
    read_backend,
    read_library,
    shipped_backends,
)

__all__ = [
    "Abi",
    "ArgMeta",
    "Backend",
    "Derive",
    "Driver",
    "Execution",
    "ExecutorchOperator",
    "Fallback",
    "FallbackDefault",
    "GivenMeta",
    "Imported",
    "Kernel",
    "Library",
    "NamedOperator",
    "StubKernel",
    "Unserved",
    "find_backend",
    "import_library",
    "read_backend",
    "read_library",
    "shipped_backends",
]
