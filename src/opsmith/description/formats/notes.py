"""The entries of another's YAML that come to nothing, each with its place and its reason.

A mistake in an entry raises, or is noted like what opsmith reads and does not do: ``opsmith import`` takes
what can be taken.  Called by the modules that read these formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from opsmith.description.document import Document
from opsmith.description.model import Unserved
from opsmith.errors import DescriptionError, KeyUnknown, Location

Converted = TypeVar("Converted")


@dataclass
class Notes:
    """The items of one file that come to nothing; with ``keep_faults`` mistakes in entries are among them."""

    keep_faults: bool = False
    unserved: list[Unserved] = field(default_factory=list)

    def keep(self, name: str, location: Location, reason: str) -> None:
        """Notes an item."""
        self.unserved.append(Unserved(name, location, reason))

    @contextmanager
    def fault_of(self, name: str, location: Location, noted: bool = False) -> Iterator[None]:
        """While the item ``name`` is read: its mistake is ``noted``, or where mistakes are."""
        try:
            yield
        except DescriptionError as error:
            if not (noted or self.keep_faults):
                raise
            self.keep(name, error.location or location, f"{error.message}; {error.remedy}")

    def sorted(self) -> tuple[Unserved, ...]:
        """The items in the order of the file."""
        return tuple(
            sorted(self.unserved, key=lambda each: (each.location.line, each.location.column))
        )


def without_unknown_keys(document: Document, kind: type[Converted], notes: Notes) -> Converted:
    """The file as a ``kind``, without the keys that are unknown, where ``notes`` keeps them."""
    while True:
        try:
            return document.convert(kind)
        except KeyUnknown as error:
            key = next(each for each in document.data if document.locate(each) == error.location)
            with notes.fault_of(key, document.locate(key)):
                raise
            document = document.without_key(key)


def shown_name(entry: Any) -> str:
    """The name by which an entry that may be wrong is listed."""
    if isinstance(entry, dict):
        entry = entry.get("func") or entry.get("op") or next(iter(entry), "")
    return str(entry).partition("(")[0]
