"""Reading the JSON files that commands write for other commands, and for later days: whole, or refused.

Each has a field ``format``, the version of its format.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from opsmith.errors import FileMissing, ResultsInvalid

_File = TypeVar("_File")


class _Versioned(msgspec.Struct):
    format: int


def read_versioned(path: Path, what: type[_File], format: int, name: str, remedy: str) -> _File:
    """The ``what`` in the file ``path``; ``name`` says in words what it is, ``remedy`` how to write one.

    Raises :class:`~opsmith.errors.FileMissing`, or :class:`~opsmith.errors.ResultsInvalid` for a file
    that holds something else, or is of a newer version than ``format``.
    """
    return decode_versioned(read_content(path, name, remedy), path, what, format, name, remedy)


def read_content(path: Path, name: str, remedy: str) -> bytes:
    """What is in the file ``path``.  Raises :class:`~opsmith.errors.FileMissing`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileMissing(
            f"{name} cannot be read from `{path}`: {error.strerror}", remedy=remedy
        ) from None


def decode_versioned(
    content: bytes, path: Path, what: type[_File], format: int, name: str, remedy: str
) -> _File:
    """The ``what`` that is ``content``, as :func:`read_versioned`; ``path`` is where it stood."""
    try:
        version = msgspec.json.decode(content, type=_Versioned).format
        if version > format:
            raise ResultsInvalid(
                f"`{path}` has format {version}, and this opsmith reads {name} up to format {format}",
                remedy="update opsmith: pip install --upgrade opsmith",
            )
        return msgspec.json.decode(content, type=what)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultsInvalid(f"`{path}` does not hold {name}: {error}", remedy=remedy) from None
