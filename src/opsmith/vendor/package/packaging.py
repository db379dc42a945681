"""``opsmith package``: the libraries of a backend for one torch or several, and a wheel that carries them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root
from opsmith.build.csrc import PACKAGE
from opsmith.build.own_options import own_sanitizers
from opsmith.build.progress import OnProgress, Progress
from opsmith.description import Backend, Driver, has_python_kernels, read_backend
from opsmith.description.built import (
    FORMAT,
    CarriedBuild,
    Contents,
    DriverClass,
    Namespace,
    Place,
    read_contents,
)
from opsmith.description.built.contents import FILE, FOLDER
from opsmith.errors import Location, PackagingError
from opsmith.schema import compiled_for, requirement, torch_version
from opsmith.vendor.package.contents import DescribedFiles, described_files
from opsmith.vendor.package.environments import asked, check_interpreter, same_interpreter
from opsmith.vendor.package.fetched_torch import fetched_torch
from opsmith.vendor.package.libraries import Request, carried_libraries
from opsmith.vendor.package.platform_tag import PlatformTag, platform_tag
from opsmith.vendor.package.project import Project, project_of
from opsmith.vendor.package.wheel import entry_point_names, make_output_folder, write_wheel


@dataclass(frozen=True)
class Wanted:
    """The options for a wheel.

    ``pythons`` are the interpreters of environments whose torch it is for too; ``torch`` releases that it has
    to be for, and no others, where any are given: what no environment has is fetched.  ``python_kernels``:
    None asks the project's modules.
    """

    output: Path
    pythons: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    with_sources: bool = True
    python_kernels: bool | None = None
    version: str = ""


@dataclass(frozen=True)
class Packaged:
    """The wheel that was made, and what people are told of it."""

    wheel: Path
    contents: Contents
    tag: PlatformTag
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    size: int


def package(description: Path, wanted: Wanted, progress: OnProgress | None = None) -> Packaged:
    """Makes a wheel of the backend described by ``description``, with libraries that need no compiler.

    Raises :class:`~opsmith.errors.PackagingError`, :class:`~opsmith.errors.OutputRejected`, a
    :class:`~opsmith.errors.DescriptionError` or a :class:`~opsmith.errors.BuildError`.
    """
    report = progress or (lambda step: None)
    check_packageable(description)
    if own_sanitizers():
        raise PackagingError(
            "OPSMITH_SANITIZE is set, and what is built so needs the sanitizer's own libraries",
            remedy="unset OPSMITH_SANITIZE",
        )
    backend = read_backend(description, None)
    # Everything that could be refused is looked at before minutes go into compiling.
    project = project_of(backend, wanted.version)
    files = described_files(backend, project, with_sources=wanted.with_sources)
    make_output_folder(wanted.output)
    for python in wanted.pythons:
        check_interpreter(python)
    with tempfile.TemporaryDirectory(prefix="opsmith-package-") as made:
        folder = Path(made)
        builds = _built(description, project, folder, wanted, report)
        contents = _contents(backend, project, builds, wanted.with_sources)
        report(Progress("writing the wheel"))
        carried = _written(files, contents, folder, project, description)
        libraries = [path for path in carried.values() if path.suffix == ".so"]
        tag = platform_tag(libraries)
        wheel = write_wheel(
            project,
            carried,
            wanted.output,
            backend=backend.name,
            tag=f"py3-none-{tag.tag}",
            dependencies=_dependencies(builds),
            with_sources=wanted.with_sources,
        )
    notes = tuple(_notes(project, backend, tag))
    return Packaged(wheel, contents, tag, files.sources, notes, wheel.stat().st_size)


def check_packageable(description: Path) -> None:
    """Raises :class:`~opsmith.errors.PackagingError` for a description that is in a package already."""
    if description.is_relative_to(PACKAGE):
        raise PackagingError(
            f"`{description.parent.name}` comes with opsmith, and needs no package",
            remedy="name the backend.yaml of your own device: opsmith package src/mychip/backend.yaml",
        )
    if contents := read_contents(description):
        raise PackagingError(
            f"this description is that of an installed package already, `{contents.distribution}`",
            location=Location(description),
            remedy="package its sources, where they are kept",
        )


def _built(
    description: Path, project: Project, folder: Path, wanted: Wanted, report: OnProgress
) -> tuple[CarriedBuild, ...]:
    """The builds of all environments, each in a folder of ``folder``; those of one torch are one build."""
    adapter = wanted.python_kernels
    if adapter is None:
        registers = project.is_package and has_python_kernels(project.folder)
        adapter = registers or read_backend(description, None).calls_python
    request = Request(str(description), str(folder), adapter)
    others = [each for each in wanted.pythons if not same_interpreter(each, sys.executable or "")]
    releases = [compiled_for(each) for each in wanted.torch]
    # Where only others' are asked for, nothing is compiled for this environment's torch.
    is_wanted = not releases or compiled_for(torch_version()) in releases
    builds = [carried_libraries(request, report)] if is_wanted else []

    def join(name: str, python: str, torch: Path | None = None) -> None:
        own = folder / name
        there = msgspec.structs.replace(request, folder=str(own))
        module = "opsmith.vendor.package.libraries"
        build = asked(python, module, there, version("opsmith"), report, torch).build
        assert build is not None
        builds[:] = _joined(builds, build, own, folder)

    for number, python in enumerate(others):
        join(f"environment-{number}", python)
    for release in releases:
        if release not in (each.torch for each in builds):
            join(f"torch-{release}", sys.executable, fetched_torch(release, cache_root(), report))
    builds.sort(key=lambda build: _numbers(build.torch))
    return tuple(each for each in builds if not releases or each.torch in releases)


def _joined(
    builds: Sequence[CarriedBuild], build: CarriedBuild, own: Path, folder: Path
) -> list[CarriedBuild]:
    """``builds`` with ``build``, whose files in ``own`` move to ``folder``.

    Of a second environment with the same torch only what calls Python kernels is new: it may be for
    another Python.
    """
    for index, earlier in enumerate(builds):
        if earlier.folder != build.folder:
            continue
        new = {key: file for key, file in build.adapters.items() if key not in earlier.adapters}
        for file in new.values():
            os.replace(own / build.folder / file.name, folder / build.folder / file.name)
        joined = msgspec.structs.replace(earlier, adapters={**earlier.adapters, **new})
        return [*builds[:index], joined, *builds[index + 1 :]]
    os.replace(own / build.folder, folder / build.folder)
    return [*builds, build]


def _numbers(torch: str) -> tuple[tuple[int, ...], str]:
    numbers = tuple(int(part) for part in torch.split(".") if part.isdigit())
    return numbers, torch


def _contents(
    backend: Backend, project: Project, builds: tuple[CarriedBuild, ...], with_sources: bool
) -> Contents:
    folder = backend.location.path.parent
    driver = backend.driver

    def place(location: Location) -> Place:
        path = location.path
        inside = path.relative_to(folder) if path.is_relative_to(folder) else Path(path.name)
        return Place(inside.as_posix(), location.line, location.column)

    return Contents(
        format=FORMAT,
        opsmith=version("opsmith"),
        distribution=f"{project.name}=={project.version}",
        backend=backend.name,
        has_sources=with_sources,
        host_window=driver.host_window,
        rng=backend.rng.value,
        driver=Path(os.path.relpath(driver.library, folder)).as_posix() if driver.library else None,
        python_driver=_driver_class(driver, folder),
        driver_place=place(driver.location),
        namespaces=tuple(
            Namespace(each.namespace, each.modules, place(each.location))
            for library in backend.libraries
            for each in library.external_namespaces
        ),
        builds=builds,
        calls_python=backend.calls_python,
    )


def _driver_class(driver: Driver, folder: Path) -> DriverClass | None:
    if driver.python is None:
        return None
    source = driver.python.source
    if isinstance(source, str):
        return DriverClass("", source, driver.python.name)
    return DriverClass(Path(os.path.relpath(source, folder)).as_posix(), "", driver.python.name)


def _written(
    files: DescribedFiles,
    contents: Contents,
    folder: Path,
    project: Project,
    description: Path,
) -> Mapping[str, Path]:
    """All that is added to the project's own files, by its place in the wheel."""
    carried = dict(files.copied)
    for number, (place, text) in enumerate(files.written.items()):
        path = folder / f"written-{number}{Path(place).suffix}"
        path.write_text(text, encoding="utf-8")
        carried[place] = path
    index = folder / FILE
    index.write_bytes(msgspec.json.format(msgspec.json.encode(contents)) + b"\n")
    inside = project.place(description.parent / FOLDER)
    carried[f"{inside}/{FILE}"] = index
    for build in contents.builds:
        each = (build.library, build.driver, build.plan, *build.adapters.values())
        for file in filter(None, each):
            carried[f"{inside}/{build.folder}/{file.name}"] = folder / build.folder / file.name
    return carried


def _dependencies(builds: Sequence[CarriedBuild]) -> tuple[str, str]:
    """The opsmith that can read the package, and the releases of torch that it has libraries for."""
    mine = version("opsmith")
    major, minor, *_ = mine.split(".")
    # Before 1.0 a minor version may change what a package is.
    below = f"0.{int(minor) + 1}" if major == "0" else f"{int(major) + 1}"
    return f"opsmith>={mine},<{below}", _torch_requirement([build.torch for build in builds])


def _torch_requirement(torch: Sequence[str]) -> str:
    """``torch==2.13.*``; for several releases their range, without those that are not among them."""
    if len(torch) == 1:
        return requirement(torch[0])
    releases = [_numbers(each)[0] for each in torch]
    (major, first), (_, last) = releases[0][:2], releases[-1][:2]
    missing = [minor for minor in range(first, last) if (major, minor) not in releases]
    clauses = [f">={major}.{first}", f"<{major}.{last + 1}"]
    return f"torch{','.join([*clauses, *(f'!={major}.{minor}.*' for minor in missing)])}"


def _notes(project: Project, backend: Backend, tag: PlatformTag) -> Iterable[str]:
    if project.pyproject is None:
        yield (
            f"no pyproject.toml describes it: it is called {project.name} {project.version}; --version gives "
            "it another version"
        )
    if project.is_package and not entry_point_names(project):
        yield (
            "pyproject.toml names no entry point of `torch.backends`: `import torch` does not bring the "
            f'device, opsmith.load("{backend.name}") does not find it by its name'
        )
    if tag.why:
        yield f"no manylinux wheel: {tag.why}"
