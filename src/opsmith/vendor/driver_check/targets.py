"""The driver that a person means: a library, a class in Python, or what a backend names."""

from __future__ import annotations

import re
from pathlib import Path

from opsmith.build.driver_library import build_driver, is_elf
from opsmith.build.progress import OnProgress
from opsmith.description import find_backend, python_driver_of, read_backend
from opsmith.description.python_driver import python_driver
from opsmith.errors import BackendUnknown, FileMissing, Location
from opsmith.vendor.driver_check.running import Target

_IS_LIBRARY = re.compile(r"\.(so(\.\d+)*|dylib)$")


def find_target(what: str, progress: OnProgress) -> Target:
    """The driver that ``what`` names, built where that is needed; of a backend, only its driver is.

    Raises :class:`~opsmith.errors.FileMissing` for a library that is not there, and what reading a
    description or building raises.
    """
    path = Path(what)
    if path.is_file() and is_elf(path):
        return Target(path.resolve())
    if _IS_LIBRARY.search(path.name):
        if path.is_file():
            return Target(path.resolve())
        raise FileMissing(
            f"there is no library {path}",
            remedy="name a driver's library, a class (driver.py:Driver), or a backend.yaml",
        )
    if path.suffix == ".py" or (":" in what and not path.exists()):
        folder = Path.cwd()
        named = python_driver(what, folder)
        driver = python_driver_of(named, Location(folder), host_window=True)
        library = build_driver("python", driver, progress=progress)
        return Target(library, python=named, folder=folder)
    return _of_backend(what, progress)


def _of_backend(name: str, progress: OnProgress) -> Target:
    try:
        description = find_backend(name)
    except BackendUnknown as error:
        raise BackendUnknown(
            f"`{name}` is neither a backend nor a driver",
            remedy="name a driver's library (libmychip.so), a class (driver.py:Driver), or "
            + error.remedy.removeprefix("name "),
        ) from None
    backend = read_backend(description, None)
    library = build_driver(backend.name, backend.driver, progress=progress)
    return Target(library, backend.driver.host_window, backend.driver.python)
