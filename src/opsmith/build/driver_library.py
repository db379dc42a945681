"""A driver's library from its sources, as part of a backend or alone."""

from __future__ import annotations

from pathlib import Path

from opsmith.base.cache_folder import cache_root
from opsmith.build.compile import Compilation
from opsmith.build.csrc import PACKAGE, PUBLIC_HEADERS
from opsmith.build.own_options import own_link_flags
from opsmith.build.progress import OnProgress
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import find_compiler
from opsmith.build.units import KERNELS, own_units, together
from opsmith.description import Driver


def driver_library(backend: str, driver: Driver) -> SharedLibrary:
    """The library to build from the sources of the driver of ``backend``."""
    name = f"opsmith_{backend}_driver"
    include_dirs = (PUBLIC_HEADERS, *driver.include_dirs)
    if all(map(is_package, driver.sources)):
        units = together("driver", driver.sources, KERNELS)
        return SharedLibrary(name, (), include_dirs, units=units, is_driver=True)
    return SharedLibrary(
        name,
        (),
        include_dirs,
        units=own_units(driver.sources, driver.options.compile_flags),
        is_driver=True,
        own_link_flags=(*driver.options.link_flags, *own_link_flags()),
        own_libraries=driver.options.libraries,
    )


def build_driver(backend: str, driver: Driver, *, progress: OnProgress | None = None) -> Path:
    """The library of the driver of ``backend``: ready built, or compiled where that is needed.

    It is the file that a build of the whole backend makes.  Raises a
    :class:`~opsmith.errors.BuildError`.
    """
    if driver.library is not None:
        return driver.library
    cache = cache_root()
    library = driver_library(backend, driver)
    compilation = Compilation([library], find_compiler(cache), cache)
    compilation.run(cache / "logs" / f"{library.name}.log", progress or (lambda step: None))
    return compilation.outputs()[0]


def is_elf(path: Path) -> bool:
    """Whether the linker can read ``path``; what is wrong with a driver is told when it is loaded."""
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def is_package(path: Path) -> bool:
    """Whether ``path`` comes with opsmith."""
    return path.is_relative_to(PACKAGE)
