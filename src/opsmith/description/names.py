"""The names that descriptions hold: C++ names, operators, libraries.

Whether a C++ name exists only the linker knows; operators are looked up in the catalogue, and what
that lacks in the recorded facts of other releases of torch.
"""

from __future__ import annotations

import re

from opsmith.errors import Location, OperatorUnknown, SchemaInvalid, SyntaxInvalid, nearest
from opsmith.schema import Catalogue, releases_with, reserved_in_cpp, torch_release

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""A C++ identifier."""

SYMBOL = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", re.ASCII)
"""A C++ name with its namespaces."""

LIBRARY = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
"""A kernel library's name, which generated code quotes in comments."""

OPERATOR = re.compile(r"[A-Za-z_]\w*(\.\w+)?", re.ASCII)
"""An operator's name with its overload, without a namespace."""

_QUALIFIED_OPERATOR = re.compile(rf"([A-Za-z_]\w*::)?{OPERATOR.pattern}", re.ASCII)


def obstacle_in_cpp(name: str, form: re.Pattern[str] = SYMBOL) -> str | None:
    """Why ``name``, which should have this ``form``, cannot be one in C++; None where it can.

    Empty for another form, else the word of C++ in it, to be set behind a message.
    """
    if not form.fullmatch(name):
        return ""
    word = reserved_in_cpp(name)
    return f": `{word}` is a word of C++" if word else None


def obstacle_in_function(symbol: str) -> str | None:
    """Why ``symbol`` cannot be a function's qualified name in C++; None where it can.

    A function in a namespace or a class may be called ``std``, as torch_xla's is: what stands before ``::``
    is not looked up among functions.
    """
    scope, colons, name = symbol.rpartition("::")
    return obstacle_in_cpp(scope if colons and name == "std" else symbol)


def operator_name(text: str, location: Location, catalogue: Catalogue | None) -> str:
    """The name of an operator, ``text`` without ``aten::``.

    Raises :class:`SchemaInvalid`, or :class:`OperatorUnknown` for one that ``catalogue``, if given, lacks.
    """
    name = text.removeprefix("aten::")
    if "(" in name:
        raise SchemaInvalid(
            f"`{text}` is a schema where an operator's name belongs",
            location=location,
            remedy=f"write `op: {name.partition('(')[0]}`, or `func:` with the schema to declare an "
            "operator of your own",
        )
    if not _QUALIFIED_OPERATOR.fullmatch(name):
        raise SchemaInvalid(
            f"`{text}` is not an operator's name",
            location=location,
            remedy="write name.overload as native_functions.yaml does, e.g. add.out",
        )
    if catalogue is not None and name not in catalogue.operators:
        if "::" in name:
            custom = [other for other in catalogue.operators if "::" in other]
            raise OperatorUnknown(
                f"no operator `{name}` is declared up to here{nearest(name, custom)}",
                location=location,
                remedy=f"give its schema where its kernel is: `func: {name}(…) -> …`",
            )
        raise unknown_operator(name, catalogue, location)
    return name


def unknown_operator(
    name: str,
    catalogue: Catalogue,
    location: Location,
    remedy: str = "name the overload too; `opsmith plan` lists every operator",
    also: str = "",
) -> OperatorUnknown:
    """The error for an operator that ATen lacks, with the releases that have it; else with ``remedy``."""
    missing = f"torch {catalogue.torch} has no operator `{name}`"
    if releases := releases_with(name, torch_release()):
        message = f"{missing}; {releases} have it{also}"
        remedy = "remove it here, or install a torch that has it"
    else:
        message = f"{missing}{nearest(name, catalogue.operators)}{also}"
    return OperatorUnknown(message, location=location, remedy=remedy)


def check_library_name(name: str, location: Location) -> None:
    """Raises :class:`SyntaxInvalid` for what cannot name a library."""
    if not LIBRARY.fullmatch(name):
        raise SyntaxInvalid(
            f"`{name}` cannot name a library",
            location=location,
            remedy="use letters, digits, _, - and dots, and begin with a letter",
        )
