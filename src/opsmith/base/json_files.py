"""Reading the JSON files that commands write for other commands, and for later days: whole, or refused.

Each has a field ``format``, the version of its format.  A file of an earlier format is read with the
names that have changed since, given as they are written in it: ``{'"old":': '"new":'}``.  No text in it can
hold such a name, since its quotes would be escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from opsmith.base.trusted_files import read_regular
from opsmith.errors import FileMissing, ResultsInvalid

_File = TypeVar("_File")
_NONE: Mapping[str, str] = MappingProxyType({})


class _Formatted(msgspec.Struct):
    format: int


def read_checked(
    path: Path,
    what: type[_File],
    format: int,
    name: str,
    remedy: str,
    renamed: Mapping[str, str] = _NONE,
) -> _File:
    """The ``what`` in the file ``path``; ``name`` says in words what it is, ``remedy`` how to write one.

    Raises :class:`~opsmith.errors.FileMissing`, or :class:`~opsmith.errors.ResultsInvalid` for a file
    that holds something else, or is of a newer version than ``format``.
    """
    content = read_content(path, name, remedy)
    return decode_checked(content, path, what, format, name, remedy, renamed)


def read_content(path: Path, name: str, remedy: str) -> bytes:
    """The content of the file ``path``.  Raises :class:`~opsmith.errors.FileMissing`."""
    try:
        return read_regular(path)
    except OSError as error:
        raise FileMissing(
            f"{name} cannot be read from `{path}`: {error.strerror}", remedy=remedy
        ) from None


def decode_checked(
    content: bytes,
    path: Path,
    what: type[_File],
    format: int,
    name: str,
    remedy: str,
    renamed: Mapping[str, str] = _NONE,
) -> _File:
    """The ``what`` that is ``content``, as :func:`read_checked`; ``path`` is where it stood."""
    try:
        version = msgspec.json.decode(content, type=_Formatted).format
        if version > format:
            raise ResultsInvalid(
                f"`{path}` has format {version}, and this opsmith reads {name} up to format {format}",
                remedy="update opsmith: pip install --upgrade opsmith",
            )
        if version < format:
            for old, new in renamed.items():
                content = content.replace(old.encode(), new.encode())
        return msgspec.json.decode(content, type=what)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultsInvalid(f"`{path}` does not hold {name}: {error}", remedy=remedy) from None
