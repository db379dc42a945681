"""Names that the version before this one used in YAML: still read, with a warning that names file and line.

The version after this one no longer reads them.  Called by whoever reads a file in which a name has changed.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from opsmith.description.document import Document
from opsmith.errors import Location, SyntaxInvalid

# The warnings that this process has given: a description is read more than once.
_warned: dict[Any, Any] = {}
# The files in which this process has found old names, whatever its filters make of the warnings.
_found_in: set[Path] = set()


def warn_of_old_name(old: str, new: str, location: Location) -> None:
    """Warns, once in a process, that what stands at ``location`` is called ``new`` now."""
    _found_in.add(location.path)
    warnings.warn_explicit(
        f"`{old}` is called `{new}` now, and the next version of opsmith no longer reads `{old}`; "
        f"write `{new}` in its place",
        FutureWarning,
        filename=location.shown_path,
        lineno=location.line,
        registry=_warned,
    )


def has_old_names(path: Path) -> bool:
    """Whether this process has found a name in the file ``path`` of which each process is to warn."""
    return path in _found_in


def with_new_name(document: Document, old: str, new: str, *parents: str) -> Document:
    """``document`` with the key ``old`` of the mapping at ``parents``, if it is there, called ``new``.

    Raises :class:`SyntaxInvalid` where both stand there.
    """
    mapping = document.find(*parents)
    if not isinstance(mapping, dict) or old not in mapping:
        return document
    location = document.locate(*parents, old)
    if new in mapping:
        raise SyntaxInvalid(
            f"`{old}` is called `{new}` now, and both stand here",
            location=location,
            remedy=f"move what `{old}` says into `{new}`, and remove `{old}`",
        )
    warn_of_old_name(old, new, location)
    return document.with_key_renamed(old, new, *parents)
