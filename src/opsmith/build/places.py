"""Paths of the machine that built a file, found in its bytes.

Messages of PyTorch's headers, and debug information, have the name of the source that they stand in: what is
given to others says no more of it than where it is in a package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

# Headers and generated code: a path leads there where no -ffile-prefix-map has shortened it.
_KNOWN = re.compile(rb"/(?:(?:torch|executorch)/include|opsmith/csrc|generated/\w+-[0-9a-f]{32})/")
_LONGEST = 4096
_NO_PATH = re.compile(rb"[^\w.+@ /-]")


def places_in(content: bytes, folders: Iterable[Path]) -> tuple[str, ...]:
    """The paths in ``content`` that lead into ``folders`` or into somebody's installation of PyTorch."""
    found = set()
    for match in _KNOWN.finditer(content):
        path = _before(content, match.start()) + match[0]
        if path.startswith(b"/") and path != match[0]:
            found.add(os.fsdecode(path))
    for folder in folders:
        # Quicker than the search, and mostly all that is needed.
        name = os.fsencode(folder)
        if name in content and re.search(
            rb"(?<![\w./-])" + re.escape(name) + rb"(?![\w.-])", content
        ):
            found.add(str(folder))
    return tuple(sorted(found))


def _before(content: bytes, end: int) -> bytes:
    """The part of a path before ``end``."""
    start = max(0, end - _LONGEST)
    text = content[start:end]
    others = [match.end() for match in _NO_PATH.finditer(text)]
    return text[others[-1] if others else 0 :]
