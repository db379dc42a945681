"""The torch that a backend's library was compiled against, read from its file before it is opened.

Opening it would run its static initialisers against another torch.
"""

from __future__ import annotations

import re

from opsmith.description.built.backend import BuiltBackend
from opsmith.errors import LoadError
from opsmith.schema import torch_release, torch_version

# An ELF note's sizes, type, owner and description: csrc/opsmith/compiled_for.cpp writes it.
_NOTE = re.compile(rb"\x08\0\0\0\x20\0\0\0\x01\0\0\0opsmith\0(\d+)\.(\d+)")
# Linkers put notes before everything else.
_BYTES_OF_NOTES = 1 << 16


def check_torch(built: BuiltBackend) -> None:
    """Raises :class:`~opsmith.errors.LoadError` for a library of another minor release than is installed."""
    try:
        with built.library.open("rb") as file:
            note = _NOTE.search(file.read(_BYTES_OF_NOTES))
    except OSError:
        return  # who opens it says why it cannot
    if note is None or (int(note[1]), int(note[2])) == torch_release():
        return
    raise LoadError(
        f"{built.library} was compiled for torch {int(note[1])}.{int(note[2])}, and this is torch "
        f"{torch_version()}",
        remedy=f"pip install --force-reinstall --no-deps {built.package}"
        if built.package
        else f"remove it, and build again: opsmith build {built.name}",
    )
