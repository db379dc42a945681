"""Generated files on disk, in a folder of the cache that is named for what is in them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from opsmith.build.cache import is_whole, write_whole


def write_generated(name: str, texts: Mapping[str, str], cache: Path) -> Path:
    """The folder that holds the files ``texts``, by name, written where they are missing.

    Its name begins with ``name``.  Raises :class:`~opsmith.errors.CacheUnusable`.
    """
    digest = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:32]
    folder = cache / "generated" / f"{name}-{digest}"
    for file, text in texts.items():
        if not is_whole(folder / file):
            write_whole(folder / file, text.encode())
    return folder
