"""C++ sources with kernels that register themselves → two libraries of the same objects.

One makes the kernels operators of PyTorch on the CPU: ``torch.ops.load_library`` loads it.  The other
registers them with ExecuTorch's runtime.  No description is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opsmith.base.cache_folder import cache_root
from opsmith.build.compile import Compilation
from opsmith.build.csrc import CSRC, INCLUDE_DIRS
from opsmith.build.etensor_headers import ETENSOR, own_headers
from opsmith.build.executorch import find_executorch
from opsmith.build.generated import write_generated
from opsmith.build.own_options import own_link_flags
from opsmith.build.progress import OnProgress
from opsmith.build.registered import RegisteredKernel, registered_kernels
from opsmith.build.shared_library import LeanSources, SharedLibrary
from opsmith.build.toolchain import Compiler, find_compiler, find_torch
from opsmith.build.units import CALLS, together
from opsmith.emit.cpu import CpuOperator, emit_cpu_operators
from opsmith.emit.lean import lean_declaration
from opsmith.errors import ExecutorchMissing, FileMissing, Location
from opsmith.schema.catalogue import native_function_of

# The sources of the bridge that need no device.
BRIDGE = tuple(
    CSRC / name
    for name in (
        "cpu/operator.cpp",
        "cpu/random_numbers.cpp",
        "bridge/lean_call.cpp",
        "bridge/lean_tensor.cpp",
        "bridge/parallel.cpp",
    )
)
LEAN_RUNTIME = tuple(sorted((CSRC / "lean").rglob("*.cpp")))
_SUFFIXES = frozenset({".cc", ".cpp", ".cxx"})


@dataclass(frozen=True)
class BuiltOperators:
    """The libraries of :func:`build_cpu_operators`: ``torch`` for PyTorch, ``executorch`` for its runtime.

    The latter is the error where no ExecuTorch is installed, or one of a release that is not known.
    """

    kernels: tuple[RegisteredKernel, ...]
    torch: Path
    executorch: Path | ExecutorchMissing


def is_source(name: str) -> bool:
    """Whether ``name`` is that of a C++ source, and not of a description."""
    return Path(name).suffix in _SUFFIXES


def build_cpu_operators(
    sources: Sequence[Path], *, progress: OnProgress | None = None
) -> BuiltOperators:
    """The libraries of the kernels that ``sources`` register with ``EXECUTORCH_LIBRARY``.

    The first source names them.  Raises :class:`~opsmith.errors.KernelRejected` for a kernel that cannot be
    an operator, and a :class:`~opsmith.errors.BuildError`.
    """
    for path in sources:
        if not path.is_file():
            raise FileMissing(
                "no such file", location=Location(path), remedy="name C++ sources that exist"
            )
    return _Build(
        tuple(path.resolve() for path in sources), progress or (lambda step: None)
    ).built()


class _Build:
    def __init__(self, sources: tuple[Path, ...], report: OnProgress) -> None:
        self.sources = sources
        self.name = sources[0].stem
        self.report = report
        self.cache = cache_root()
        self.compiler: Compiler = find_compiler(self.cache)
        self.installed_torch = find_torch()
        headers = own_headers(self.installed_torch)
        self.kernels = LeanSources(sources, headers)
        self.runtime = LeanSources(LEAN_RUNTIME, headers, (CSRC,))

    def built(self) -> BuiltOperators:
        (listed,) = self._compiled(
            SharedLibrary(
                f"{self.name}_registered",
                (),
                lean=(self.runtime, self.kernels),
                own_link_flags=own_link_flags(),
            )
        )
        found = registered_kernels(listed, self.sources)
        torch = SharedLibrary(
            f"{self.name}_torch",
            (),
            (*INCLUDE_DIRS, ETENSOR),
            self.installed_torch,
            ("-DOPSMITH_FOR_CPU", *self.compiler.openmp_flags),
            (self.runtime, self.kernels),
            units=together("operators", (self._generated(found), *BRIDGE), CALLS),
            own_link_flags=own_link_flags(),
        )
        try:
            installed = find_executorch()
        except ExecutorchMissing as error:
            (path,) = self._compiled(torch)
            return BuiltOperators(found, path, error)
        executorch = SharedLibrary(
            f"{self.name}_executorch",
            (),
            lean=(replace(self.kernels, headers=installed.headers),),
            libraries=installed.libraries,
            own_link_flags=own_link_flags(),
        )
        torch_path, executorch_path = self._compiled(torch, executorch)
        return BuiltOperators(found, torch_path, executorch_path)

    def _compiled(self, *libraries: SharedLibrary) -> list[Path]:
        compilation = Compilation(libraries, self.compiler, self.cache)
        compilation.run(self.cache / "logs" / f"{self.name}.log", self.report)
        return compilation.outputs()

    def _generated(self, kernels: Sequence[RegisteredKernel]) -> Path:
        text = emit_cpu_operators(self.sources[0].name, [_operator(kernel) for kernel in kernels])
        file = f"Register{self.name}.cpp"
        return write_generated("cpu", {file: text}, self.cache) / file


def _operator(kernel: RegisteredKernel) -> CpuOperator:
    namespace = kernel.operator.partition("::")[0]
    function = native_function_of(namespace, kernel.out_schema)
    return CpuOperator(
        operator=kernel.operator,
        functional=kernel.functional,
        out_schema=kernel.out_schema,
        functional_schema=kernel.functional_schema,
        symbol=kernel.symbol,
        declaration=lean_declaration(function, kernel.symbol.rpartition("::")[2]),
    )
