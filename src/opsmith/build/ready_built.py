"""Objects that come ready built: those of the distribution ``opsmith-runtime``.

They are the runtime's, the shipped libraries' and those of the registrations of these libraries, for releases
of torch; whichever backend needs one links it instead of compiling it.  An object's name is a digest of its
sources and of all that it is made with but the compiler: gcc and clang make objects that link with each
other's.  So an object of another opsmith, another torch or other options has another name, and is not found.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from opsmith.build.cache import is_usable

DISTRIBUTION = "opsmith-runtime"
MODULE = "opsmith_runtime"
FOLDER = "objects"


def ready_built(name: str) -> Path | None:
    """The installed object ``name``; None where there is none with the bytes that were packaged."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / name
    return path if is_usable(path) else None


def has_ready_built() -> bool:
    """Whether any objects come ready built here."""
    return _folder() is not None


@functools.cache
def _folder() -> Path | None:
    spec = importlib.util.find_spec(MODULE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) / FOLDER if places else None
