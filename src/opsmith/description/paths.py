"""The files and folders that a description names, relative to itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsmith.description.document import Document, Step
from opsmith.errors import FileMissing, Location


def files_of(
    document: Document, patterns: Sequence[str], *steps: Step, start: int = 0
) -> tuple[Path, ...]:
    """The files that ``patterns`` match, relative to the document, each pattern's in sorted order.

    Raises :class:`FileMissing` for a pattern that matches none; the first of them is number ``start`` at
    ``steps``.
    """
    found: dict[Path, None] = {}
    for index, pattern in enumerate(patterns, start):
        root = document.path.parent
        matches = _matches(root, pattern)
        if not matches:
            raise FileMissing(
                f"no file matches `{pattern}` in {root}",
                location=document.locate(*steps, index),
                remedy="paths are relative to the YAML file that names them",
            )
        found.update(dict.fromkeys(path.resolve() for path in matches))
    return tuple(found)


def _matches(root: Path, pattern: str) -> list[Path]:
    """The files that ``pattern`` means, none if it cannot be a path's."""
    try:
        if not Path(pattern).is_absolute() and any(c in pattern for c in "*?["):
            # Python 3.13 takes `**name` for `*name`, and those before it for an error.
            if any("**" in part and part != "**" for part in Path(pattern).parts):
                return []
            found = sorted(root.glob(pattern))
        else:
            found = [root / pattern]
    # A NUL in the pattern, or a name that is too long.
    except (ValueError, OSError):
        return []
    return [path for path in found if is_file(path)]


def named_file(name: str, folder: Path, location: Location | None) -> Path:
    """The file ``name``, relative to ``folder``.  Raises :class:`FileMissing`, at ``location``."""
    path = folder / name
    if not is_file(path):
        raise FileMissing(
            f"there is no file {path}",
            location=location,
            remedy="paths are relative to the YAML file that names them" if location else "",
        )
    return path.resolve()


def is_file(path: Path) -> bool:
    """Whether it is one; not, if it cannot be a path at all."""
    try:
        return path.is_file()
    except (ValueError, OSError):
        return False


def is_directory(path: Path) -> bool:
    """Whether it is one; not, if it cannot be a path at all."""
    try:
        return path.is_dir()
    except (ValueError, OSError):
        return False


def directories_of(document: Document, names: Sequence[str], *steps: Step) -> tuple[Path, ...]:
    """The directories ``names``, relative to the document.  Raises :class:`FileMissing`."""
    directories = []
    for index, name in enumerate(names):
        directory = document.path.parent / name
        if not is_directory(directory):
            raise FileMissing(
                f"there is no directory {directory}",
                location=document.locate(*steps, index),
                remedy="paths are relative to the YAML file that names them",
            )
        directories.append(directory.resolve())
    return tuple(directories)
