"""Reading the JSON files that commands write for other commands, and for later days: whole, or refused.

Each has a field ``format``, the version of its format.  A file of an earlier format is read with the
names that have changed since, given as they are written in it: ``{'"old":': '"new":'}``.  No text in it can
hold such a name, since its quotes would be escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from opsmith.base.trusted_files import read_regular
from opsmith.errors import FileMissing, ResultsInvalid

_Content = TypeVar("_Content")


class _Formatted(msgspec.Struct):
    format: int


@dataclass(frozen=True)
class JsonFile(Generic[_Content]):
    """A kind of file: the type of its ``content`` and the newest ``format`` of it that is read.

    ``name`` says in words what it is, ``remedy`` how to write one.
    """

    content: type[_Content]
    format: int
    name: str
    remedy: str
    renamed: Mapping[str, str] = field(default_factory=dict)

    def read(self, path: Path) -> _Content:
        """The content of the file ``path``.

        Raises :class:`~opsmith.errors.FileMissing`, or :class:`~opsmith.errors.ResultsInvalid` for a file
        that holds something else, or is of a newer version than ``format``.
        """
        return self.decode(self.read_bytes(path), path)

    def read_bytes(self, path: Path) -> bytes:
        """The bytes of the file ``path``.  Raises :class:`~opsmith.errors.FileMissing`."""
        try:
            return read_regular(path)
        except OSError as error:
            raise FileMissing(
                f"{self.name} cannot be read from `{path}`: {error.strerror}", remedy=self.remedy
            ) from None

    def decode(self, written: bytes, path: Path) -> _Content:
        """The content that is ``written``, as :meth:`read`; ``path`` is where it stood."""
        try:
            version = msgspec.json.decode(written, type=_Formatted).format
            if version > self.format:
                raise ResultsInvalid(
                    f"`{path}` has format {version}, and this opsmith reads {self.name} up to format "
                    f"{self.format}",
                    remedy="update opsmith: pip install --upgrade opsmith",
                )
            if version < self.format:
                for old, new in self.renamed.items():
                    written = written.replace(old.encode(), new.encode())
            return msgspec.json.decode(written, type=self.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ResultsInvalid(
                f"`{path}` does not hold {self.name}: {error}", remedy=self.remedy
            ) from None
