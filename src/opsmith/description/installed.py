"""Backends that installed packages bring: those with an entry point of ``torch.backends`` for a description.

The entry point is called as the backend is, and its module lies beside ``backend.yaml``, as in what ``opsmith
package`` makes.  Nothing of a package is imported.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

_GROUP = "torch.backends"
_FILE = "backend.yaml"


def installed_backends() -> dict[str, Path]:
    """The descriptions of backends that are installed, by the names of their entry points."""
    return {point.name: path for point, path in _installed()}


def entry_point(description: Path) -> EntryPoint | None:
    """The entry point of the installed package that brings the backend of ``description``, if any."""
    return next((point for point, path in _installed() if path == description), None)


def package_of_description(description: Path) -> str:
    """The installed package that brings the backend of ``description``, as errors name it; empty for none."""
    point = entry_point(description)
    return _shown(point) if point else ""


def package_of_module(module: str) -> str:
    """The installed package with an entry point of ``torch.backends`` where ``module`` is; empty for none."""
    outermost = module.partition(".")[0]
    points = entry_points(group=_GROUP)
    return next((_shown(each) for each in points if each.module.split(".")[0] == outermost), "")


def _installed() -> Iterator[tuple[EntryPoint, Path]]:
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        if path := _description(point):
            yield point, path


def _shown(point: EntryPoint) -> str:
    distribution = f"{point.dist.name} {point.dist.version}" if point.dist else point.module
    return f"the package {distribution} (entry point `{point.name}` of `{_GROUP}`)"


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
