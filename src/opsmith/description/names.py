"""The names that descriptions hold: C++ names, operators, libraries.

Whether a C++ name exists only the linker knows; operators are looked up in the catalogue.
"""

from __future__ import annotations

import re

from opsmith.errors import Location, OperatorUnknown, SchemaInvalid, SyntaxInvalid, nearest
from opsmith.schema import Catalogue, reserved_in_cpp

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
        raise OperatorUnknown(
            f"torch {catalogue.torch} has no operator `{name}`{nearest(name, catalogue.operators)}",
            location=location,
            remedy="name the overload too; `opsmith plan` lists every operator",
        )
    return name


def check_library_name(name: str, location: Location) -> None:
    """Raises :class:`SyntaxInvalid` for what cannot name a library."""
    if not LIBRARY.fullmatch(name):
        raise SyntaxInvalid(
            f"`{name}` cannot name a library",
            location=location,
            remedy="use letters, digits, _, - and dots, and begin with a letter",
        )
