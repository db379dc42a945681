"""Backends that installed packages bring: those with an entry point of ``torch.backends`` for a description.

The entry point is called as the backend is, and its module lies beside ``backend.yaml``, as in what ``opsmith
package`` makes.  Nothing of a package is imported.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

_GROUP = "torch.backends"
_FILE = "backend.yaml"


def installed_backends() -> dict[str, Path]:
    """The descriptions of backends that are installed, by the names of their entry points."""
    found = {}
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        if path := _description(point):
            found[point.name] = path
    return found


def _description(point: EntryPoint) -> Path | None:
    outermost, *inner = point.module.split(".")
    try:
        spec = importlib.util.find_spec(outermost)
    except (ImportError, ValueError):
        return None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place, *inner)
        for each in (folder, folder.parent):
            if inner or each == folder:
                path = each / _FILE
                if path.is_file():
                    return path.resolve()
    return None
