"""The custom operators of a manifest: entries that give a schema (``func:``) in the place of a name.

Reads ``func``, ``tags`` and ``meta`` of one entry, with the place of a mistake inside the schema.
Called by ``manifest``; which variants come of it and which meta serves them is the plan's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from opsmith.description.document import Document, Step
from opsmith.description.model import GivenMeta
from opsmith.description.names import obstacle_in_function
from opsmith.errors import Location, SyntaxInvalid
from opsmith.schema import Declaration, parse_operator


class DescribedMeta(msgspec.Struct, forbid_unknown_fields=True):
    """The manifest's ``meta:``: one of its keys."""

    same_as: str | list[str] = []
    kernel_name: str = ""
    out: str = ""


def schema_name(text: str) -> str:
    """The operator's name in a schema, taken on trust: ``myop::scale.out``."""
    return text.partition("(")[0].strip()


def read_declaration(
    document: Document, steps: Sequence[Step], text: str, tags: Sequence[str]
) -> Declaration:
    """The operator declared by the entry at ``steps``, whose ``func`` is ``text``.

    Raises :class:`~opsmith.errors.SchemaInvalid` where the mistake stands.
    """
    location = document.locate(*steps, "func")
    tag_locations = {tag: document.locate(*steps, "tags", i) for i, tag in enumerate(tags)}

    def locate(offending: str) -> Location:
        return tag_locations.get(offending) or _inside(document, location, text, offending)

    return Declaration(parse_operator(text, locate, tags), location)


def read_meta(
    document: Document,
    steps: Sequence[Step],
    operator: str,
    meta: str | DescribedMeta,
) -> GivenMeta:
    """The shapes of the results by the entry at ``steps``.  Raises :class:`SyntaxInvalid`."""
    location = document.locate(*steps, "meta")
    given = DescribedMeta(kernel_name=meta) if isinstance(meta, str) else meta
    same_as = (given.same_as,) if isinstance(given.same_as, str) else tuple(given.same_as)
    if bool(given.kernel_name) == bool(same_as):
        raise SyntaxInvalid(
            "`meta` says how the results are shaped, in exactly one way",
            location=location,
            remedy="write `meta: {same_as: self}`, or `meta: my_namespace::my_meta`, a C++ function that "
            "makes them",
        )
    if given.out and not given.kernel_name:
        raise SyntaxInvalid(
            "`out` shapes what is written to an `out`, beside `kernel_name`, which shapes all other results",
            location=location,
            remedy="write `meta: {kernel_name: my_namespace::my_meta, out: my_namespace::my_out_meta}`",
        )
    symbols = tuple(symbol for symbol in (given.kernel_name, given.out) if symbol)
    for symbol in symbols:
        if (obstacle := obstacle_in_function(symbol)) is not None:
            raise SyntaxInvalid(
                f"`{symbol}` is not a C++ function's qualified name{obstacle}",
                location=location,
                remedy="write it like my_namespace::my_meta, or `{same_as: self}`",
            )
    return GivenMeta(operator, location, same_as, symbols)


def _inside(document: Document, location: Location, text: str, offending: str) -> Location:
    """The place of ``offending`` in the schema ``text`` as the file has it, else that of its key."""
    lines = document.text.splitlines()
    # Spaces are normalised and a folded scalar spans lines: the longest part found on one line counts.
    words = offending.split(" ")
    span = range(location.line, min(location.line + 1 + text.count("\n") + 8, len(lines) + 1))
    for length in range(len(words), 0, -1):
        wanted = re.compile(r"\s*".join(re.escape(word) for word in words[:length]))
        for number in span:
            start = location.column + len("func") if number == location.line else 0
            if found := wanted.search(lines[number - 1], start):
                return Location(location.path, number, found.start() + 1)
    return location
