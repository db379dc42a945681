"""Kernels that are Python functions: the Python side of a manifest.

Turns a callable into the same :class:`Kernel` that a manifest gives for a C++ function, with the same
errors, at the file and line where the function is defined.  Called by ``runtime`` for
``@backend.kernel``; imports no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from opsmith.description.dtypes import SCALAR_TYPE_OF, expand_dtypes
from opsmith.description.model import Abi, Backend, Kernel, Library
from opsmith.description.names import unknown_operator
from opsmith.errors import KernelRejected, Location
from opsmith.schema import Catalogue

LIBRARY = "python"
"""The name of the library of all Python kernels of a process; it stands first."""

Dtypes: TypeAlias = "Iterable[Any] | Mapping[str, Iterable[Any]]"
"""``torch.dtype``s or c10 names: of what the kernel computes in, or by argument."""


@dataclass(frozen=True)
class Parameters:
    """The arguments of a kernel's call: by position, and by name, the last of which are ``outs``."""

    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    outs: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the schema's order."""
        return (*self.positional, *self.keywords)

    def __str__(self) -> str:
        star = ("*",) if self.keywords else ()
        return ", ".join((*self.positional, *star, *self.keywords))


def parameters_of(schema: str) -> Parameters:
    """How a kernel of the operator with ``schema`` is called; ``out`` is a keyword."""
    from opsmith.schema.torch_names import FunctionSchema

    arguments = FunctionSchema.parse(schema).arguments
    outs = tuple(argument.name for argument in arguments.out)
    return Parameters(
        tuple(argument.name for argument in arguments.flat_positional),
        (*(argument.name for argument in arguments.flat_kwarg_only), *outs),
        outs,
    )


def python_kernel(
    name: str,
    function: Callable[..., object],
    catalogue: Catalogue,
    *,
    structured: bool = False,
    casts: bool = False,
    dtypes: Dtypes = (),
    on_error: str = "raise",
) -> Kernel:
    """The kernel that ``function`` is of the operator ``name``.

    A structured kernel may be named by any operator of its group.  Raises :class:`OperatorUnknown`,
    or :class:`KernelRejected` where the function cannot be called with the operator's arguments.
    """
    location = location_of(function)
    name = name.removeprefix("aten::")
    if name not in catalogue.operators:
        raise unknown_operator(name, catalogue, location)
    group = catalogue.group_of.get(name)
    if structured and group is not None and group.out is not None:
        name = group.out
    kernel = Kernel(
        operator=name,
        symbol=symbol_of(function),
        library=LIBRARY,
        location=location,
        abi=Abi.PYTHON,
        structured=structured,
        casts=casts,
        dtypes=_dtypes(dtypes, location),
        fails_over=_fails_over(on_error, location),
    )
    check_callable(function, catalogue.operators[name].schema, name, location)
    return kernel


def with_python_kernels(backend: Backend, kernels: Iterable[Kernel]) -> Backend:
    """``backend`` with a library of ``kernels`` in front of its own."""
    library = Library(LIBRARY, Location(Path("<python>")), Abi.PYTHON, kernels=tuple(kernels))
    return replace(backend, libraries=(library, *backend.libraries))


def symbol_of(function: Callable[..., object]) -> str:
    """The function's module and qualified name, e.g. ``kernels.add_out``."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def location_of(function: Callable[..., object]) -> Location:
    """Where ``function`` is defined, its decorators included; a place without a line if unknown."""
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    if code is None:
        return Location(Path("<python>"))
    return Location(Path(code.co_filename), code.co_firstlineno)


def check_callable(
    function: Callable[..., object], schema: str, name: str, location: Location
) -> None:
    """Raises :class:`KernelRejected` where ``function`` cannot take the arguments of ``schema``."""
    parameters = parameters_of(schema)
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature: the first call will tell
        return
    try:
        signature.bind(*parameters.positional, **dict.fromkeys(parameters.keywords))
    except TypeError as error:
        raise KernelRejected(
            f"`{symbol_of(function)}{signature}` cannot be called with the arguments of `{name}`: {error}",
            location=location,
            remedy=f"its schema is {schema}; write "
            f"`def {getattr(function, '__name__', 'kernel')}({parameters}):`",
        ) from None


def _dtypes(given: Dtypes, location: Location) -> tuple[tuple[str, tuple[str, ...]], ...]:
    by_argument = given if isinstance(given, Mapping) else {"": given}
    return tuple(
        (argument, names)
        for argument, values in by_argument.items()
        if (names := expand_dtypes([_dtype_name(value) for value in values], {}, location))
    )


def _fails_over(on_error: str, location: Location) -> bool:
    if on_error not in ("raise", "fallback"):
        raise KernelRejected(
            f"`on_error={on_error!r}` says nothing about a kernel",
            location=location,
            remedy='write `on_error="fallback"`, to run on the CPU the calls for which it raises '
            'opsmith.Unsupported, or `on_error="raise"`',
        )
    return on_error == "fallback"


def _dtype_name(dtype: object) -> str:
    text = str(dtype)
    name = text.removeprefix("torch.")
    return SCALAR_TYPE_OF.get(name, text) if name != text else text
