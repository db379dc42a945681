"""A torch's operators in a file of the cache, so that they are parsed once on a machine.

The file's name is a digest of all that they are made from: torch's version, its YAML files, and the code and
facts of this room.  One that is damaged or cannot be written is as good as none.  Called by ``catalogue``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root, replace_file
from opsmith.base.trusted_files import read_trusted
from opsmith.schema.operator import Group, Operator


class Stored(msgspec.Struct, array_like=True):
    """The operators, and the groups that they form."""

    operators: tuple[Operator, ...]
    groups: tuple[Group, ...]


def stored(torch: str, sources: Iterable[Path], make: Callable[[], Stored]) -> Stored:
    """The result of ``make`` for the version ``torch`` and the files ``sources``, made now or before."""
    path = _path(torch, sources)
    try:
        return msgspec.msgpack.decode(read_trusted(path), type=Stored)
    except (OSError, msgspec.DecodeError):
        pass
    made = make()
    with suppress(OSError):
        replace_file(path, msgspec.msgpack.encode(made))
    return made


def _path(torch: str, sources: Iterable[Path]) -> Path:
    digest = hashlib.sha256(torch.encode())
    for source in sources:
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return cache_root() / "catalogues" / f"{digest.hexdigest()}.msgpack"
