"""FlagGems' table of operators as a kernel library, read from the installed package's source.

``flag_gems/__init__.py`` pairs the name of each operator with a function that launches kernels of Triton's.
Nothing is imported: that would look for a GPU.  Functions are found by the imports of the package's folders,
and their parameters compared with the operator's schema.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from opsmith.description.model import (
    Abi,
    Kernel,
    Library,
    TritonForm,
    TritonLaunch,
    Unserved,
)
from opsmith.description.python_kernel import parameters_of
from opsmith.errors import FormatUnknown, Location
from opsmith.schema import Catalogue, Composite, releases_with, torch_release

FLAG_GEMS = "flag_gems"
"""The library's name, which is the package's."""

INSTALL = "pip install triton sqlalchemy && pip install --no-deps 'flag-gems>=5,<6'"
"""The command that installs it: what it requires at exact versions is left out."""

_TABLE = "_FULL_CONFIG"
# FlagGems' own modules for devices that are not NVIDIA's leave these out, too.
_COPIES = frozenset({"_to_copy", "contiguous", "copy_"})


@dataclass(frozen=True)
class _Row:
    """A row of the table: an operator, the function for it, and whether this torch is to have it."""

    operator: str
    function: str
    location: Location
    is_for_this_torch: bool


def find_flag_gems() -> Path | None:
    """The source of the installed package's table; None where it is not installed."""
    spec = importlib.util.find_spec(FLAG_GEMS)
    return Path(spec.origin) if spec and spec.origin else None


def read_flag_gems(path: Path, catalogue: Catalogue | None) -> Library:
    """The library of the package whose ``__init__.py`` is ``path``.

    Without a ``catalogue`` it has no kernels.  What does not fit the operators of the installed torch is
    among the unserved.  Raises :class:`FormatUnknown` for a release without such a table.
    """
    kernels: dict[str, Kernel] = {}
    unserved = []
    if catalogue is not None:
        functions = _functions(path.parent)
        for row in _rows(path):
            reason = _obstacle(row, functions, kernels, catalogue)
            if reason:
                unserved.append(Unserved(row.operator, row.location, reason))
            else:
                kernels[row.operator] = _kernel(row)
    return Library(
        name=FLAG_GEMS,
        location=Location(path),
        abi=Abi.TRITON,
        kernels=tuple(kernels.values()),
        unserved=tuple(unserved),
    )


def _kernel(row: _Row) -> Kernel:
    return Kernel(
        operator=row.operator,
        symbol=f"{FLAG_GEMS}:{row.function}",
        library=FLAG_GEMS,
        location=row.location,
        abi=Abi.TRITON,
        fails_over=True,
        launch=TritonLaunch(FLAG_GEMS, row.function, TritonForm.LAUNCHER),
    )


def _obstacle(
    row: _Row,
    functions: Mapping[str, ast.FunctionDef],
    kernels: Mapping[str, Kernel],
    catalogue: Catalogue,
) -> str:
    """Why the plan cannot have the row; empty where it can."""
    operator = catalogue.operators.get(row.operator)
    if not row.is_for_this_torch:
        return f"FlagGems has it for other releases of torch than {catalogue.torch}"
    if operator is None:
        releases = releases_with(row.operator, torch_release())
        also = f"; {releases} have it" if releases else ""
        return f"torch {catalogue.torch} lacks the operator{also}"
    if earlier := kernels.get(row.operator):
        return f"FlagGems registers it twice: the first is `{earlier.symbol}` ({earlier.location})"
    if row.operator in _COPIES:
        return "it copies between devices too, which opsmith's runtime does by the driver"
    if operator.composite is Composite.IMPLICIT:
        return "PyTorch decomposes it, which is what makes it differentiable"
    function = functions.get(row.function)
    return _obstacle_in_parameters(function, operator.schema) if function else ""


def _obstacle_in_parameters(function: ast.FunctionDef, schema: str) -> str:
    """Why ``function`` cannot be called with the arguments of ``schema``; empty where it can."""
    wanted = parameters_of(schema)
    given = function.args
    positional = [each.arg for each in (*given.posonlyargs, *given.args)]
    if len(wanted.positional) > len(positional) and given.vararg is None:
        return f"its function takes {len(positional)} arguments, and the schema has {len(wanted.positional)}"
    by_name = {*positional[len(wanted.positional) :], *(each.arg for each in given.kwonlyargs)}
    unknown = [name for name in wanted.keywords if name not in by_name and given.kwarg is None]
    if unknown:
        return f"its function has no parameter `{unknown[0]}`, which the schema has"
    required = positional[len(wanted.positional) : len(positional) - len(given.defaults)]
    missing = [name for name in required if name not in wanted.keywords]
    return f"its function needs `{missing[0]}`, which the schema lacks" if missing else ""


def _rows(path: Path) -> Iterator[_Row]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tables = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(each, ast.Name) and each.id == _TABLE for each in node.targets)
    ]
    if len(tables) != 1 or not isinstance(tables[0], ast.Tuple | ast.List):
        raise FormatUnknown(
            f"this release of FlagGems has no table `{_TABLE}` of operators",
            location=Location(path),
            remedy="install one that opsmith knows: pip install --no-deps 'flag-gems>=5,<6'",
        )
    for each in tables[0].elts:
        match each:
            case ast.Tuple(
                elts=[ast.Constant(value=str(name)), ast.Name(id=function), *conditions]
            ):
                holds = all(_holds(condition) for condition in conditions)
                yield _Row(name, function, Location(path, each.lineno), holds)


def _holds(condition: ast.expr) -> bool:
    """Whether the installed torch is of the releases that a row's condition names: ``… >= version``."""
    versions = [
        node.value
        for node in ast.walk(condition)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    numbers = [tuple(int(part) for part in each.split(".")[:2]) for each in versions]
    return all(torch_release() >= each for each in numbers)


def _functions(package: Path) -> dict[str, ast.FunctionDef]:
    """The functions that the package's folders import by name, as far as their source has them."""
    found: dict[str, ast.FunctionDef] = {}
    for folder in ("ops", "fused", "experimental_ops", "modules"):
        index = package / folder / "__init__.py"
        if not index.is_file():
            continue
        for node in ast.parse(index.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                source = package.parent.joinpath(*node.module.split(".")).with_suffix(".py")
                defined = _defined(source) if source.is_file() else {}
                for alias in node.names:
                    if function := defined.get(alias.name):
                        found.setdefault(alias.asname or alias.name, function)
    return found


@functools.cache
def _defined(source: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
