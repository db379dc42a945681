"""``backend.yaml`` and library manifests: read, validated, every error with its place."""

from typing import TYPE_CHECKING

from opsmith.base.on_demand import on_demand

if TYPE_CHECKING:
    from opsmith.description.backend import PlanSources, read_backend, read_plan_sources
    from opsmith.description.device_names import check_device_name
    from opsmith.description.document import Document, read_document
    from opsmith.description.dtypes import SCALAR_TYPE_OF
    from opsmith.description.formats.flag_gems import FLAG_GEMS
    from opsmith.description.formats.imported import Imported, import_flag_gems, import_library
    from opsmith.description.found import find_backend, shipped_backends, shipped_libraries
    from opsmith.description.host_window import HOST_WINDOW, hides_host_windows
    from opsmith.description.installed import (
        entry_point,
        installed_backends,
        package_of_description,
        package_of_module,
    )
    from opsmith.description.launch_expressions import function_of
    from opsmith.description.library import read_library
    from opsmith.description.model import (
        SHARED_LIBRARY,
        Abi,
        ArgMeta,
        AttentionFeature,
        AttentionLimits,
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
        FusedKernel,
        GivenMeta,
        Inductor,
        Kernel,
        Library,
        NamedOperator,
        Precision,
        PythonDriver,
        StubKernel,
        Triton,
        TritonForm,
        TritonLaunch,
        TvmFunction,
        Unserved,
    )
    from opsmith.description.old_names import has_old_names, warn_of_old_name, with_new_name
    from opsmith.description.python_driver import python_driver_of
    from opsmith.description.python_kernel import (
        Dtypes,
        Parameters,
        check_callable,
        location_of,
        parameters_of,
        with_python_kernels,
    )
    from opsmith.description.python_modules import has_python_kernels
    from opsmith.description.rng import Rng

__all__ = [
    "FLAG_GEMS",
    "HOST_WINDOW",
    "SCALAR_TYPE_OF",
    "SHARED_LIBRARY",
    "Abi",
    "ArgMeta",
    "AttentionFeature",
    "AttentionLimits",
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
    "FusedKernel",
    "GivenMeta",
    "Imported",
    "Inductor",
    "Kernel",
    "Library",
    "NamedOperator",
    "Parameters",
    "PlanSources",
    "Precision",
    "PythonDriver",
    "Rng",
    "StubKernel",
    "Triton",
    "TritonForm",
    "TritonLaunch",
    "TvmFunction",
    "Unserved",
    "check_callable",
    "check_device_name",
    "entry_point",
    "find_backend",
    "function_of",
    "has_old_names",
    "has_python_kernels",
    "hides_host_windows",
    "import_flag_gems",
    "import_library",
    "installed_backends",
    "location_of",
    "package_of_description",
    "package_of_module",
    "parameters_of",
    "python_driver_of",
    "read_backend",
    "read_document",
    "read_library",
    "read_plan_sources",
    "shipped_backends",
    "shipped_libraries",
    "warn_of_old_name",
    "with_new_name",
    "with_python_kernels",
]

__getattr__ = on_demand(
    __name__,
    {
        "backend": "read_backend read_plan_sources PlanSources",
        "device_names": "check_device_name",
        "document": "read_document Document",
        "dtypes": "SCALAR_TYPE_OF",
        "formats.flag_gems": "FLAG_GEMS",
        "formats.imported": "import_flag_gems import_library Imported",
        "found": "find_backend shipped_backends shipped_libraries",
        "host_window": "hides_host_windows HOST_WINDOW",
        "installed": "entry_point installed_backends package_of_description package_of_module",
        "launch_expressions": "function_of",
        "library": "read_library",
        "model": (
            "Abi ArgMeta AttentionFeature AttentionLimits Autocast Backend BuildOptions "
            "Derive DimOrder Driver Execution ExecutorchOperator ExternalNamespace Fallback "
            "FallbackDefault FusedKernel GivenMeta Inductor Kernel Library NamedOperator "
            "Precision PythonDriver StubKernel SHARED_LIBRARY Triton TritonForm "
            "TritonLaunch TvmFunction Unserved"
        ),
        "old_names": "has_old_names warn_of_old_name with_new_name",
        "python_driver": "python_driver_of",
        "python_kernel": "check_callable location_of parameters_of with_python_kernels Dtypes Parameters",
        "python_modules": "has_python_kernels",
        "rng": "Rng",
    },
)
