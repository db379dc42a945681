"""Backends and kernel libraries by name: those that come with opsmith, and backends of installed packages.

None of their files is read: a load of a built device needs no more than the path.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from opsmith.description.installed import installed_backends
from opsmith.errors import BackendUnknown, nearest

PACKAGE = Path(__file__).resolve().parent.parent


def shipped_backends() -> dict[str, Path]:
    """The backends that come with opsmith, by name."""
    return {path.parent.name: path for path in sorted((PACKAGE / "drivers").glob("*/backend.yaml"))}


def shipped_libraries() -> dict[str, Path]:
    """The kernel libraries that come with opsmith, by name."""
    return {path.parent.name: path for path in sorted((PACKAGE / "kernels").glob("*/kernels.yaml"))}


def find_backend(name: str) -> Path:
    """The ``backend.yaml`` that ``name`` means: a shipped backend's, a file, a folder's, a package's.

    Raises :class:`BackendUnknown`.
    """
    shipped = shipped_backends()
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if path.is_dir():
        path = path / "backend.yaml"
    if path.is_file():
        return path.resolve()
    installed = installed_backends()
    if name in installed:
        return installed[name]
    known = [*shipped, *installed]
    raise BackendUnknown(
        f"there is no backend `{name}`{nearest(name, known)}",
        remedy=f"name a shipped backend ({', '.join(shipped)}){_or_installed(installed)} or the path of a "
        "backend.yaml",
    )


def _or_installed(installed: Iterable[str]) -> str:
    names = ", ".join(installed)
    return f", an installed one ({names})" if names else ""
