"""Which files of a description a wheel has beside the libraries, and what stands for those it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsmith.build.inputs import own_files
from opsmith.description import Backend
from opsmith.errors import Location, SourceOutside
from opsmith.vendor.package.project import Project

SOURCES = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu", ".cl"),
    *(".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl"),
)
_KNOWN_FAILURES = ("expected_failures.yaml", "torchcts_ledger.yaml")

_INIT = '''\
"""The device `{backend}` for PyTorch: where it is built, `import torch` brings it."""

from pathlib import Path


def autoload() -> None:
    """Called at the end of `import torch`."""
    import opsmith

    opsmith.autoload(Path(__file__).with_name("{file}"))
'''
_LEFT_OUT = """\
#error "{distribution} was packaged with --no-sources: it can be loaded on the torch that it carries \
libraries for, and not be built."
"""


@dataclass(frozen=True)
class DescribedFiles:
    """The files of a description, by their places in the wheel: those to copy, and texts to write.

    ``sources`` are the files among them that a compiler reads, left out or not.
    """

    copied: Mapping[str, Path]
    written: Mapping[str, str]
    sources: tuple[str, ...]


def described_files(backend: Backend, project: Project, *, with_sources: bool) -> DescribedFiles:
    """The files of ``backend`` that a wheel of ``project`` has.

    Without sources, a line stands for each that says so to who compiles it.  Raises
    :class:`~opsmith.errors.SourceOutside`.
    """
    copied, written = {}, {}
    sources = []
    description = backend.location.path
    known_failures = [description.with_name(name) for name in _KNOWN_FAILURES]
    files = [*own_files(backend), *(path for path in known_failures if path.is_file())]
    for path in sorted(files):
        if not path.is_relative_to(project.folder):
            raise _outside(path, backend, project)
        if any(part.startswith(".") for part in path.relative_to(project.folder).parts):
            continue  # headers of an environment, say, that lies beside the sources
        place = project.place(path)
        if path.suffix in SOURCES:
            sources.append(place)
        if path.suffix in SOURCES and not with_sources:
            written[place] = _LEFT_OUT.format(distribution=f"{project.name} {project.version}")
        else:
            copied[place] = path
    if not project.is_package:
        written[f"{project.module}/__init__.py"] = _INIT.format(
            backend=backend.name, file=description.name
        )
    return DescribedFiles(copied, written, tuple(sources))


def _outside(path: Path, backend: Backend, project: Project) -> SourceOutside:
    named: list[tuple[Location, tuple[Path, ...]]] = [
        (
            library.location,
            (*library.sources, *library.vectorised, *library.meta_sources, *library.modules),
        )
        for library in backend.libraries
    ]
    named.append((backend.driver.location, backend.driver.sources))
    location = next((place for place, files in named if path in files), backend.location)
    return SourceOutside(
        f"{path} lies outside {project.folder}, which becomes the package `{project.module}`",
        location=location,
        remedy="move it, and what lies beside it, into that folder: what is installed has nothing else",
    )
