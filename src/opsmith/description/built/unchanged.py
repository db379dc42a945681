"""The libraries that an earlier start found in the cache, for the next one while no file has changed.

A start reads the description, digests every file that the libraries are made from, and compares the
libraries with their seals.  What it found it notes, with the state of all these files and of the folders in
which others might come to lie.  While that is the same, and so is what the environment says, the next start
would find the same: it reads none of them.  Who may write to the libraries is asked each time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root, mark_used, replace_file, sealed, unsealed
from opsmith.base.file_states import are_older, state_of
from opsmith.base.trusted_files import fault_of, read_trusted
from opsmith.description import Rng
from opsmith.description.built.backend import BuiltBackend
from opsmith.description.built.contents import read_contents
from opsmith.errors import Location
from opsmith.schema import torch_version

_PACKAGE = Path(__file__).resolve().parents[2]
VARIABLES = ("CXX", "PATH", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "TRITON_INTERPRET")
"""The variables, beside opsmith's own, by which a start may find other libraries."""

_OF_WHAT_IS_WRITTEN = ("_CALLERS", "_REPORT", "_TRACE")
"""The ends of those of opsmith's own that say what is to be written where: another file each time."""


class _Note(msgspec.Struct, forbid_unknown_fields=True):
    """What was found while ``paths`` had the ``state``.  ``place`` is the driver's in the description."""

    paths: list[str]
    state: str
    trusted: list[str]
    used: list[str]
    name: str
    library: str
    driver: str
    generated: str
    host_window: bool
    rng: str
    place: tuple[str, int, int]


def unchanged_backend(description: Path) -> BuiltBackend | None:
    """The libraries for ``description`` as an earlier start found them; None where any file has changed."""
    if read_contents(description):
        return None
    cache = cache_root()
    path = _note_path(description, cache)
    try:
        note = msgspec.json.decode(unsealed(read_trusted(path)), type=_Note)
    except (OSError, ValueError):
        return None
    if state_of(note.paths) != note.state or any(fault_of(Path(each)) for each in note.trusted):
        return None
    mark_used(path, *map(Path, note.used))
    file, line, column = note.place
    return BuiltBackend(
        name=note.name,
        library=Path(note.library),
        driver=Path(note.driver),
        generated=Path(note.generated),
        host_window=note.host_window,
        rng=Rng(note.rng),
        driver_location=Location(Path(file), line, column),
        cache=cache,
    )


def note_unchanged(
    description: Path,
    built: BuiltBackend,
    watched: Iterable[Path],
    *,
    trusted: Iterable[Path],
    used: Sequence[Path],
    since: float,
) -> None:
    """Notes that ``built`` was found by a start that read the files ``watched`` after ``since``.

    Who may write to the ``trusted`` files is asked anew each time; the cache's entries ``used`` are kept for
    it.  A file that has changed since, or shortly before, leaves nothing noted.  ``built`` has nothing that
    Python is to be imported for.  Best effort: the next start can look again.
    """
    paths = sorted({*map(str, watched), *_searched()})
    state = state_of(paths)
    if built.generated is None or not are_older(paths, since):
        return
    place = built.driver_location
    note = _Note(
        paths=paths,
        state=state,
        trusted=[str(path) for path in trusted],
        used=[str(path) for path in (*used, built.generated)],
        name=built.name,
        library=str(built.library),
        driver=str(built.driver),
        generated=str(built.generated),
        host_window=built.host_window,
        rng=built.rng.value,
        place=(str(place.path), place.line, place.column),
    )
    with suppress(OSError):
        replace_file(_note_path(description, built.cache), sealed(msgspec.json.encode(note)))


def _searched() -> list[str]:
    """The folders in which a compiler is looked for."""
    return os.environ.get("PATH", "").split(os.pathsep)


def _note_path(description: Path, cache: Path) -> Path:
    torch = importlib.util.find_spec("torch")
    said = {
        name: value
        for name, value in os.environ.items()
        if name in VARIABLES
        or (name.startswith("OPSMITH_") and not name.endswith(_OF_WHAT_IS_WRITTEN))
    }
    parts = [
        str(cache),
        str(description),
        str(_PACKAGE),
        torch_version(),
        str(torch.origin if torch else ""),
        *(f"{name}={value}" for name, value in sorted(said.items())),
    ]
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape"))
    return cache / "starts" / f"{digest.hexdigest()}.json"
