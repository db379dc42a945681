"""The build of a package that fits this process: its torch, its machine, every file as it was packaged.

Called at each load, before anything that could build is imported.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.base.cache_folder import cache_root
from opsmith.base.trusted_files import MOST_BYTES_OF_BINARIES, read_regular
from opsmith.description import HOST_WINDOW, Rng, hides_host_windows
from opsmith.description.built.backend import BuiltBackend
from opsmith.description.built.contents import (
    FOLDER,
    CarriedBuild,
    CarriedFile,
    Contents,
    Place,
    read_contents,
)
from opsmith.errors import Location, PackageInvalid, PackageUnfit
from opsmith.schema import compiled_for, requirement, torch_version

if TYPE_CHECKING:
    from opsmith.description import ExternalNamespace, PythonDriver


def carried_backend(description: Path) -> BuiltBackend | None:
    """The libraries that lie ready built beside ``description``; None where that is not of a package.

    Raises :class:`~opsmith.errors.PackageUnfit` where none of them is for this torch and this machine, and
    :class:`~opsmith.errors.PackageInvalid` where a file is not as it was packaged.
    """
    contents = read_contents(description)
    if contents is None:
        return None
    build = _fitting(contents)
    if build is None:
        raise _unfit(contents)
    return _backend(description, contents, build)


def fitting_backend(description: Path) -> BuiltBackend | None:
    """As :func:`carried_backend`, and None too where what is carried does not fit."""
    try:
        return carried_backend(description)
    except PackageUnfit:
        return None


def carried_plan(description: Path) -> Path | None:
    """The plan that lies ready made beside ``description`` for this torch, if there is one.

    Raises as :func:`carried_backend`, but where nothing fits.
    """
    contents = read_contents(description)
    build = _fitting(contents) if contents else None
    if contents is None or build is None:
        return None
    return _checked(description, contents, build, build.plan)


def _fitting(contents: Contents) -> CarriedBuild | None:
    if contents.host_window and hides_host_windows():
        return None
    wanted = (compiled_for(torch_version()), platform.machine())
    return next((each for each in contents.builds if (each.torch, each.machine) == wanted), None)


def _unfit(contents: Contents) -> PackageUnfit:
    if contents.host_window and hides_host_windows():
        return PackageUnfit(
            f"`{contents.distribution}` carries libraries that use the host window, and {HOST_WINDOW} "
            "is off",
            has_sources=contents.has_sources,
            remedy=f"unset {HOST_WINDOW}",
        )
    versions = list(dict.fromkeys(each.torch for each in contents.builds))
    machines = sorted({each.machine for each in contents.builds})
    machine = platform.machine()
    if machine not in machines:
        return PackageUnfit(
            f"`{contents.distribution}` carries libraries for {_listed(machines)}, and this machine is "
            f"{machine}",
            has_sources=contents.has_sources,
            remedy=f"on a machine like this one: opsmith package, in the sources of {contents.backend}",
        )
    return PackageUnfit(
        f"`{contents.distribution}` carries libraries for torch {_listed(versions)}, and this is torch "
        f"{torch_version()}",
        has_sources=contents.has_sources,
        remedy=f'pip install "{requirement(versions[-1])}"; or make a wheel for this torch: opsmith package, '
        f"in the sources of {contents.backend}",
    )


def _listed(names: list[str]) -> str:
    *most, last = names or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last


def _backend(description: Path, contents: Contents, build: CarriedBuild) -> BuiltBackend:
    driver = (
        description.parent / (contents.driver or "")
        if build.driver is None
        else _checked(description, contents, build, build.driver)
    )
    folder = description.parent
    return BuiltBackend(
        name=contents.backend,
        library=_checked(description, contents, build, build.library),
        driver=driver,
        generated=None,
        host_window=contents.host_window,
        rng=Rng(contents.rng),
        driver_location=_location(contents.driver_place, folder),
        cache=cache_root(),
        external_namespaces=_namespaces(contents, folder),
        python_driver=_driver_class(contents, folder),
        calls_python=contents.calls_python,
        package=contents.distribution,
        adapters={
            suffix: folder / FOLDER / build.folder / file.name
            for suffix, file in build.adapters.items()
        },
    )


def _namespaces(contents: Contents, folder: Path) -> tuple[ExternalNamespace, ...]:
    if not contents.namespaces:
        return ()
    from opsmith.description import ExternalNamespace  # few packages have one

    return tuple(
        ExternalNamespace(each.name, each.modules, _location(each.place, folder))
        for each in contents.namespaces
    )


def _driver_class(contents: Contents, folder: Path) -> PythonDriver | None:
    if (named := contents.python_driver) is None:
        return None
    from opsmith.description import PythonDriver  # few packages have one

    return PythonDriver(folder / named.file if named.file else named.module, named.name)


def _location(place: Place, folder: Path) -> Location:
    return Location(folder / place.file, place.line, place.column)


def _checked(description: Path, contents: Contents, build: CarriedBuild, file: CarriedFile) -> Path:
    """Where ``file`` is.  A library that was cut short would end the process when it is used."""
    path = description.parent / FOLDER / build.folder / file.name
    try:
        content = read_regular(path, MOST_BYTES_OF_BINARIES)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    else:
        if len(content) != file.size:
            reason = f"has {len(content):,} bytes of {file.size:,}"
        elif hashlib.sha256(content).hexdigest() != file.sha256:
            reason = "has other bytes than were packaged"
        else:
            return path
    raise PackageInvalid(
        f"{path} {reason}",
        remedy=f"pip install --force-reinstall --no-deps {contents.distribution}",
    )
