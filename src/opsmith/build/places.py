"""Paths of the machine that built a file, found in its bytes.

Messages of PyTorch's headers, and debug information, have the name of the source that they stand in: what is
given to others says no more of it than where it is in a package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

# Headers and generated code where no -ffile-prefix-map has shortened the paths, whoever built it.
_UNMAPPED = re.compile(
    rb"(?:/[\w.+@ -]+)+/(?:(?:torch|executorch)/include/|opsmith/csrc/|generated/\w+-[0-9a-f]{32}/)"
)


def places_in(content: bytes, folders: Iterable[Path]) -> tuple[str, ...]:
    """The paths in ``content`` that lead into ``folders`` or into somebody's installation of PyTorch."""
    found = {os.fsdecode(match[0]) for match in _UNMAPPED.finditer(content)}
    for folder in folders:
        if re.search(rb"(?<![\w./-])" + re.escape(os.fsencode(folder)) + rb"(?![\w.-])", content):
            found.add(str(folder))
    return tuple(sorted(found))
