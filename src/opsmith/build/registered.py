"""The kernels that C++ sources register themselves, with ``EXECUTORCH_LIBRARY``: found without any YAML.

The sources are compiled and loaded by a process of its own, where each registration is written down; the
types of a kernel's arguments are those that the compiler wrote into its symbol.  A schema is made of them,
with arguments named by their place.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.errors import BuildError, KernelRejected, Location, SymbolUndefined


@dataclass(frozen=True)
class RegisteredKernel:
    """A kernel for the out variant ``operator`` (``myop::custom_linear.out``), with what its types tell.

    ``arguments`` are the schema's types of its inputs, ``location`` is where it is registered.
    """

    operator: str
    symbol: str
    arguments: tuple[str, ...]
    location: Location

    @property
    def out_schema(self) -> str:
        """The schema of the out variant, without the namespace."""
        name = self.operator.partition("::")[2]
        return f"{name}({', '.join([*self._inputs, '*, Tensor(a!) out'])}) -> Tensor(a!)"

    @property
    def functional_schema(self) -> str:
        """The schema of the functional variant, without the namespace."""
        return f"{self.functional.partition('::')[2]}({', '.join(self._inputs)}) -> Tensor"

    @property
    def functional(self) -> str:
        """The name of the functional variant: ``myop::custom_linear``."""
        base, _, overload = self.operator.partition(".")
        overload = overload.removesuffix("out").removesuffix("_")
        return f"{base}.{overload}" if overload else base

    @property
    def _inputs(self) -> list[str]:
        return [f"{kind} arg{index}" for index, kind in enumerate(self.arguments)]


_TENSOR = "executorch::runtime::etensor::Tensor"
_SCALAR = "executorch::runtime::etensor::Scalar"
_DTYPE = "executorch::runtime::etensor::ScalarType"
_LIST = "executorch::runtime::ArrayRef"
# A parameter's type as the demangler writes it, and the schema's.
_SCHEMA_TYPES: Mapping[str, str] = {
    f"{_TENSOR} const&": "Tensor",
    f"std::optional<{_TENSOR}> const&": "Tensor?",
    f"{_SCALAR} const&": "Scalar",
    f"std::optional<{_SCALAR}> const&": "Scalar?",
    "long": "int",
    "std::optional<long>": "int?",
    "double": "float",
    "std::optional<double>": "float?",
    "bool": "bool",
    "std::optional<bool>": "bool?",
    "std::basic_string_view<char, std::char_traits<char> >": "str",
    f"{_DTYPE}": "ScalarType",
    f"std::optional<{_DTYPE}>": "ScalarType?",
    f"{_LIST}<long>": "int[]",
    f"std::optional<{_LIST}<long> >": "int[]?",
    f"{_LIST}<double>": "float[]",
    f"std::optional<{_LIST}<double> >": "float[]?",
    f"{_LIST}<{_TENSOR}>": "Tensor[]",
}
_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*\.(\w+_)?out")

# ExecuTorch's function that unpacks a stack for a kernel is a template of the kernel and its type.
_FUNCTION = re.compile(
    r"^(?P<address>[0-9a-f]+) \w .*WrapUnboxedIntoFunctor<.*CompileTimeFunctionPointer<"
    # A function without a namespace is shown with its type once more: `&(scale_out(…))`.
    r"(?P<result>.*?) \((?P<parameters>.*?)\), "
    r"&(?:\((?!anonymous namespace))?(?P<symbol>(?:\(anonymous namespace\)::)?[\w:]+)"
    r".*, &name_of_op_\d+> >::call\(",
    re.MULTILINE,
)
_CONTEXT = "executorch::runtime::KernelRuntimeContext&"

# Loads the library in a process of its own: static initialisers can do anything.
_LISTING = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.opsmith_lean_kernel_count.restype = ctypes.c_size_t
library.opsmith_lean_kernel_name.restype = ctypes.c_char_p
library.opsmith_lean_kernel_function.restype = ctypes.c_void_p
with open("/proc/self/maps") as maps:
    base = min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(sys.argv[1]))
count = library.opsmith_lean_kernel_count()
index = [ctypes.c_size_t(i) for i in range(count)]
print(json.dumps([(library.opsmith_lean_kernel_name(i).decode(),
                   library.opsmith_lean_kernel_function(i) - base) for i in index]))
"""


def registered_kernels(library: Path, sources: Sequence[Path]) -> tuple[RegisteredKernel, ...]:
    """The kernels that ``sources``, linked into ``library``, register; in the order of their names.

    Raises :class:`KernelRejected` where there are none, or one cannot be an operator of PyTorch.
    """
    functions = {
        int(found["address"], 16): found for found in _FUNCTION.finditer(_symbols(library))
    }
    kernels: dict[str, RegisteredKernel] = {}
    for name, address in _listed(library):
        location = _location_of(name, sources)
        if address not in functions:
            raise KernelRejected(
                f"`{name}` is registered with a function that takes a stack of values: its arguments are "
                "not known",
                location=location,
                remedy='register the kernel itself: EXECUTORCH_LIBRARY(myop, "scale.out", scale_out);',
            )
        kernel = _kernel(name, functions[address], location)
        if name in kernels:
            raise KernelRejected(
                f"`{name}` is registered twice",
                location=location,
                remedy="remove one, or give it another overload: `scale.Scalar_out`",
            )
        kernels[name] = kernel
    if not kernels:
        raise KernelRejected(
            "no kernel is registered here",
            location=Location(sources[0]),
            remedy='end the file with EXECUTORCH_LIBRARY(myop, "scale.out", scale_out);, or describe the '
            "kernels in a manifest",
        )
    return tuple(kernels[name] for name in sorted(kernels))


def _kernel(name: str, function: re.Match[str], location: Location) -> RegisteredKernel:
    if not _NAME.fullmatch(name):
        raise KernelRejected(
            f"`{name}` is no out variant's name",
            location=location,
            remedy="write it like myop::scale.out, or myop::scale.Scalar_out for another overload",
        )
    context, *parameters = _split(function["parameters"])
    if context != _CONTEXT or not parameters or parameters[-1] != f"{_TENSOR}&":
        raise KernelRejected(
            f"`{name}`: `{function['symbol']}` is no out variant: it takes ({function['parameters']})",
            location=location,
            remedy="take KernelRuntimeContext& first and the Tensor& that is written to last",
        )
    if function["result"] != f"{_TENSOR}&":
        raise KernelRejected(
            f"`{name}`: `{function['symbol']}` returns {function['result']}, not the Tensor& that it writes",
            location=location,
            remedy="return `out`",
        )
    kinds = []
    for parameter in parameters[:-1]:
        if parameter not in _SCHEMA_TYPES:
            raise KernelRejected(
                f"`{name}`: no schema has an argument of the type {parameter}",
                location=location,
                remedy=f"the types are {', '.join(sorted(set(_SCHEMA_TYPES.values())))}: const Tensor&, "
                "const std::optional<Tensor>&, const Scalar&, int64_t, double, bool, std::string_view, "
                "ArrayRef<int64_t>, …",
            )
        kinds.append(_SCHEMA_TYPES[parameter])
    if "(anonymous namespace)" in function["symbol"]:
        raise KernelRejected(
            f"`{name}`: `{function['symbol']}` is not visible outside its file",
            location=location,
            remedy="move it out of the anonymous namespace",
        )
    return RegisteredKernel(name, function["symbol"], tuple(kinds), location)


def _symbols(library: Path) -> str:
    tool = shutil.which("nm")
    if tool is None:
        raise BuildError(
            "`nm`, which lists a library's symbols, is missing",
            remedy="apt-get install binutils (Debian, Ubuntu) or dnf install binutils (Fedora)",
        )
    return subprocess.run(
        [tool, "-C", library], check=True, capture_output=True, text=True, errors="replace"
    ).stdout


def _listed(library: Path) -> list[tuple[str, int]]:
    """The names that are registered, and where their functions lie in the library."""
    run = subprocess.run(
        [sys.executable, "-c", _LISTING, library], capture_output=True, text=True, errors="replace"
    )
    if run.returncode:
        last = (run.stderr.strip().splitlines() or [f"status {run.returncode}"])[-1]
        raise SymbolUndefined(
            f"the sources compile, and what they make cannot be loaded: {last}",
            symbols=(),
            remedy="define what is missing in one of the sources",
        )
    return [(name, address) for name, address in json.loads(run.stdout)]


def _split(parameters: str) -> list[str]:
    """The parameters' types, at the commas that are in no brackets."""
    found, depth, start = [], 0, 0
    for place, letter in enumerate(parameters):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found.append(parameters[start:place].strip())
            start = place + 1
    return [*found, parameters[start:].strip()]


def _location_of(name: str, sources: Iterable[Path]) -> Location:
    """The line of the registration, where the operator's name is written as it is."""
    base = name.partition("::")[2]
    paths = tuple(sources)
    for path in paths:
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if "EXECUTORCH_LIBRARY" in line and f'"{base}"' in line:
                return Location(path, number, line.index("EXECUTORCH_LIBRARY") + 1)
    return Location(paths[0])
