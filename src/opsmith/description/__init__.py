"""``backend.yaml`` and library manifests: read, validated, every error with its place."""

from opsmith.description.backend import find_backend, read_backend, shipped_backends
from opsmith.description.device_names import check_device_name
from opsmith.description.document import Document, read_document
from opsmith.description.dtypes import SCALAR_TYPE_OF
from opsmith.description.formats.imported import Imported, import_library
from opsmith.description.host_window import HOST_WINDOW, hides_host_windows
from opsmith.description.library import read_library
from opsmith.description.model import (
    Abi,
    ArgMeta,
    Autocast,
    Backend,
    BuildOptions,
    Derive,
    DimOrder,
    Driver,
    Execution,
    ExecutorchOperator,
    ExternalNamespace,
    Fallback,
    FallbackDefault,
    GivenMeta,
    Kernel,
    Library,
    NamedOperator,
    Precision,
    PythonDriver,
    Rng,
    StubKernel,
    Unserved,
)
from opsmith.description.old_names import warn_of_old_name, with_new_name
from opsmith.description.python_driver import python_driver, python_driver_of
from opsmith.description.python_kernel import (
    Dtypes,
    Parameters,
    check_callable,
    location_of,
    parameters_of,
    python_kernel,
    with_python_kernels,
)

__all__ = [
    "HOST_WINDOW",
    "SCALAR_TYPE_OF",
    "Abi",
    "ArgMeta",
    "Autocast",
    "Backend",
    "BuildOptions",
    "Derive",
    "DimOrder",
    "Document",
    "Driver",
    "Dtypes",
    "Execution",
    "ExecutorchOperator",
    "ExternalNamespace",
    "Fallback",
    "FallbackDefault",
    "GivenMeta",
    "Imported",
    "Kernel",
    "Library",
    "NamedOperator",
    "Parameters",
    "Precision",
    "PythonDriver",
    "Rng",
    "StubKernel",
    "Unserved",
    "check_callable",
    "check_device_name",
    "find_backend",
    "hides_host_windows",
    "import_library",
    "location_of",
    "parameters_of",
    "python_driver",
    "python_driver_of",
    "python_kernel",
    "read_backend",
    "read_document",
    "read_library",
    "shipped_backends",
    "warn_of_old_name",
    "with_new_name",
    "with_python_kernels",
]
