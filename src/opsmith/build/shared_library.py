"""A shared library to build: its sources, and what they are compiled and linked with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opsmith.build.etensor_headers import ETensorHeaders
from opsmith.build.toolchain import PythonInstallation, TorchInstallation
from opsmith.build.units import Unit


@dataclass(frozen=True)
class LeanSources:
    """Sources on ExecuTorch's lean tensors, compiled with ``headers``, without PyTorch's operators, in C++17.

    Their objects do not depend on the library that they are part of.  Those of ``is_vectorised`` sources,
    functions of pointers alone, are the same whatever the ``headers``.
    """

    sources: tuple[Path, ...]
    headers: ETensorHeaders
    include_dirs: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    is_vectorised: bool = False


@dataclass(frozen=True)
class Relocatable:
    """A library that finds what it needs from its own folder on, and torch in the process.

    Nothing in it says where it was built, of which the description's folder, ``description``, would be a
    part.  ``folder`` is where it will be, in that one.
    """

    description: Path
    folder: Path


@dataclass(frozen=True)
class SharedLibrary:
    """A library to build: its name without ``lib``, sources, and where their headers lie.

    ``units`` are sources that are compiled together, ``sources`` those that are compiled each by itself.
    ``generated`` are compiled together too, but for those whose objects come ready built.
    ``torch`` is None for a library that needs nothing of it; ``flags`` go to compiler and linker.
    ``lean`` are the sources that know lean tensors only.  ``python`` makes it an extension module of that
    Python; ``libraries`` are built ones that it calls.  ``driver`` is one that it may call: a library with
    ``is_driver`` that is built in the same run, or ``driver_is_users``, ready built.

    ``own_link_flags`` are a user's options for the linker, ``own_libraries`` names or files that it links.
    ``relocatable`` is given for what is to work anywhere.
    """

    name: str
    sources: tuple[Path, ...]
    include_dirs: tuple[Path, ...] = ()
    torch: TorchInstallation | None = None
    flags: tuple[str, ...] = ()
    lean: tuple[LeanSources, ...] = ()
    python: PythonInstallation | None = None
    libraries: tuple[Path, ...] = ()
    units: tuple[Unit, ...] = ()
    generated: tuple[Path, ...] = ()
    is_driver: bool = False
    driver: Path | None = None
    driver_is_users: bool = False
    own_link_flags: tuple[str, ...] = ()
    own_libraries: tuple[str | Path, ...] = ()
    relocatable: Relocatable | None = None
