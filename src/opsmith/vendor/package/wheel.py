"""A wheel, written by hatchling: a project's own files, and beside them those that the libraries need.

hatchling knows the metadata of ``pyproject.toml``, the list of files with their digests, and how to give the
same bytes each time; many projects are built with it anyhow.  It is no requirement of opsmith.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.base.output_files import write_output
from opsmith.errors import MetadataInvalid, OpsmithError, OutputRejected
from opsmith.vendor.package.contents import SOURCES
from opsmith.vendor.package.project import Project

_ENTRY_POINTS = "torch.backends"


def write_wheel(
    project: Project,
    files: Mapping[str, Path],
    output: Path,
    *,
    backend: str,
    tag: str,
    dependencies: Sequence[str],
    with_sources: bool,
) -> Path:
    """Writes the wheel of ``project`` with ``files``, by their places in it, into the folder ``output``.

    Raises :class:`~opsmith.errors.MetadataInvalid`, or :class:`~opsmith.errors.OutputRejected`.
    """
    with tempfile.TemporaryDirectory(prefix="opsmith-wheel-") as folder:
        config = _config(project, backend, with_sources)
        builder = _builder(project.root, config, files, tag, dependencies)
        try:
            return _built(builder, Path(folder), output)
        except OpsmithError:
            raise
        # Hooks and plugins of the project run here, and may raise anything.
        except Exception as error:
            raise MetadataInvalid(
                f"hatchling makes no wheel of it: {error}",
                location=project.location,
                remedy="see what `python -m hatchling build -t wheel` says there",
            ) from error


def _built(builder: Any, folder: Path, output: Path) -> Path:
    """The wheel that ``builder`` makes, by way of ``folder``, in the folder ``output``."""
    (made,) = builder.build(directory=str(folder), versions=["standard"])
    path = output / Path(made).name
    write_output(path, Path(made).read_bytes())
    return path


def make_output_folder(output: Path) -> None:
    """Makes the folder for a wheel.  Raises :class:`~opsmith.errors.OutputRejected`."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(output, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise OutputRejected(
            f"the folder {output} cannot be written: {reason}",
            remedy="name a folder of yours: -o dist",
        )


def write_files_as_wheel(
    metadata: Mapping[str, object], files: Mapping[str, Path], output: Path, *, tag: str
) -> Path:
    """Writes a wheel of ``files`` alone, by their places in it; ``metadata`` as ``[project]`` has them."""
    wheel = {"bypass-selection": True}
    config = {
        "project": metadata,
        "tool": {"hatch": {"build": {"targets": {"wheel": wheel}}}},
    }
    with tempfile.TemporaryDirectory(prefix="opsmith-wheel-") as folder:
        return _built(_builder(Path(folder), config, files, tag, ()), Path(folder), output)


def entry_point_names(project: Project) -> tuple[str, ...]:
    """The names of the project's own entry points that ``import torch`` calls."""
    points = project.config.get("project", {}).get("entry-points", {})
    return tuple(points.get(_ENTRY_POINTS, {}))


def _builder(
    root: Path,
    config: Mapping[str, Any],
    files: Mapping[str, Path],
    tag: str,
    dependencies: Sequence[str],
) -> Any:
    from hatchling.builders.wheel import WheelBuilder
    from hatchling.plugin.manager import PluginManager

    class Builder(WheelBuilder):
        def get_default_build_data(self) -> dict[str, Any]:
            return {
                **super().get_default_build_data(),
                "pure_python": False,
                "tag": tag,
                "dependencies": list(dependencies),
                "force_include": {str(path): place for place, path in files.items()},
            }

    return Builder(str(root), plugin_manager=PluginManager(), config=dict(config))


def _config(project: Project, backend: str, with_sources: bool) -> dict[str, Any]:
    """The configuration for hatchling: the project's own settings, and what has to be added to them."""
    metadata = dict(project.config["project"])
    if not project.is_package:
        # The lines that load it are ours, and so is what calls them.
        points = dict(metadata.get("entry-points", {}))
        points[_ENTRY_POINTS] = {backend: f"{project.module}:autoload"}
        metadata["entry-points"] = points
    tool = dict(project.config.get("tool", {}))
    hatch = dict(tool.get("hatch", {}))
    build = dict(hatch.get("build", {}))
    targets = dict(build.get("targets", {}))
    wheel = dict(targets.get("wheel", {}))
    if not project.is_package:
        wheel["bypass-selection"] = True
    elif not {"packages", "include", "only-include"} & {*wheel, *build}:
        wheel["packages"] = [project.folder.relative_to(project.root).as_posix()]
    if not with_sources:
        excluded: list[str] = wheel.get("exclude") or build.get("exclude") or []
        wheel["exclude"] = [*excluded, *(f"*{suffix}" for suffix in SOURCES)]
    targets["wheel"] = wheel
    tool["hatch"] = {**hatch, "build": {**build, "targets": targets}}
    return {**project.config, "project": metadata, "tool": tool}
