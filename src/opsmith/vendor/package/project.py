"""The project that a wheel is made of: its name and version, and the folder that becomes a package in it.

They come from the ``pyproject.toml`` beside or above the description; without one the backend's name is the
wheel's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsmith.description import Backend
from opsmith.errors import Location, MetadataInvalid, PackagingError

_PYPROJECT = "pyproject.toml"
# The version where nothing says one.
_NO_VERSION = "0.0.0"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Project:
    """The project that a wheel is made of.

    ``folder`` becomes the package ``module``.  ``is_package`` says whether it is one already, which the wheel
    then has as the project's own wheel would; else the wheel has what the description names, and a few
    lines that load it.  ``config`` is what ``pyproject.toml`` says, or what stands for it.
    """

    root: Path
    folder: Path
    module: str
    is_package: bool
    name: str
    version: str
    config: Mapping[str, Any]
    pyproject: Path | None

    @property
    def location(self) -> Location | None:
        """Where the metadata come from."""
        return Location(self.pyproject) if self.pyproject else None

    def place(self, path: Path) -> str:
        """Where ``path``, of the folder, is in the wheel."""
        return f"{self.module}/{path.relative_to(self.folder).as_posix()}"


def project_of(backend: Backend, version: str = "") -> Project:
    """The project that describes ``backend``; ``version`` takes the place of what it says itself.

    Raises :class:`~opsmith.errors.MetadataInvalid`, or :class:`~opsmith.errors.PackagingError` without
    hatchling, which reads and writes it all.
    """
    check_hatchling()
    description = backend.location.path
    pyproject, config = _pyproject(description) or (None, _default_config(backend))
    config = _with_version(config, version)
    root = pyproject.parent if pyproject else description.parent
    found = _read(root, config, pyproject)
    folder = _python_package(description.parent, root) if pyproject else None
    return Project(
        root=root,
        folder=folder or description.parent,
        module=folder.name if folder else re.sub(r"\W", "_", found.name.lower()),
        is_package=folder is not None,
        name=found.name,
        version=found.version,
        config=config,
        pyproject=pyproject,
    )


def check_hatchling() -> None:
    """Raises :class:`~opsmith.errors.PackagingError` where what writes wheels is not installed."""
    try:
        import hatchling.builders.wheel  # noqa: F401
    except ImportError:
        raise PackagingError(
            "wheels are written by hatchling, which is not installed here",
            remedy="pip install hatchling",
        ) from None


def _pyproject(description: Path) -> tuple[Path, dict[str, Any]] | None:
    """The nearest file with metadata, up to the top of a repository, and what it says."""
    for folder in description.parents:
        path = folder / _PYPROJECT
        if path.is_file() and "project" in (config := _toml(path)):
            return path, config
        if (folder / ".git").exists():
            return None
    return None


def _toml(path: Path) -> dict[str, Any]:
    from hatchling.metadata.core import load_toml

    try:
        return load_toml(str(path))
    except (OSError, ValueError) as error:
        raise MetadataInvalid(
            f"it cannot be read as TOML: {error}",
            location=Location(path),
            remedy="mend it, as the Python packaging guide says: packaging.python.org",
        ) from None


def _default_config(backend: Backend) -> dict[str, Any]:
    project = {
        "name": backend.name.replace("_", "-"),
        "version": _NO_VERSION,
        "description": f"The device {backend.name} for PyTorch.",
        "requires-python": ">=3.10",
    }
    return {"project": project}


def _with_version(config: dict[str, Any], version: str) -> dict[str, Any]:
    if not version:
        return config
    project = {**config["project"], "version": version}
    if "dynamic" in project:
        project["dynamic"] = [each for each in project["dynamic"] if each != "version"]
    return {**config, "project": project}


@dataclass(frozen=True)
class _Read:
    name: str
    version: str


def _read(root: Path, config: dict[str, Any], pyproject: Path | None) -> _Read:
    """The name and the version, as the wheel will have them."""
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    metadata: ProjectMetadata[Any] = ProjectMetadata(str(root), PluginManager(), config)
    try:
        name, version = metadata.core.raw_name, metadata.version
    # A hook that finds a version may raise anything.
    except Exception as error:
        raise MetadataInvalid(
            f"no metadata of a wheel: {error}",
            location=Location(pyproject) if pyproject else None,
            remedy='write `name = "mychip"` and `version = "1.0"` below [project], or give --version 1.0',
        ) from None
    return _Read(name, version)


def _python_package(folder: Path, root: Path) -> Path | None:
    """The outermost Python package around ``folder``, within ``root``."""
    inside = [each for each in (folder, *folder.parents) if each != root and root in each.parents]
    first = next((each for each in inside if (each / "__init__.py").is_file()), None)
    while first is not None and first.parent != root and (first.parent / "__init__.py").is_file():
        first = first.parent
    return first
