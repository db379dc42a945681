"""The form of what ``opsmith package`` puts beside a description: libraries, and a file that lists them.

A folder for each torch has the libraries and the plan; ``package.json`` says which they are and what a
process has to know to load them.  Files are listed with their digests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from opsmith.base.trusted_files import read_regular
from opsmith.errors import PackageInvalid

FORMAT = 3
"""Raised with each change after which an opsmith cannot load what another has packaged: that of
``package.json``, of a plan, of the operators through which Python reaches a library."""

FOLDER = "prebuilt"
FILE = "package.json"


class CarriedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a build: its name in the build's folder, its size in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place in a file of the package, given from the description's folder on."""

    file: str
    line: int
    column: int


class Namespace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who defines the operators of a namespace: see :class:`~opsmith.description.ExternalNamespace`."""

    name: str
    modules: tuple[str, ...]
    place: Place


class DriverClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A driver's class in Python, in a ``file`` of the package or in a ``module``: one of them is empty."""

    file: str
    module: str
    name: str


class CarriedBuild(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A build for one torch on one kind of machine, in ``folder``.

    ``torch`` is the minor release, ``2.13``, or the whole version of a torch that is no release.

    ``driver`` is None where the description names one that is ready built.  ``adapters`` call Python
    kernels, each for the Pythons whose extension modules end in its key.
    """

    torch: str
    machine: str
    folder: str
    library: CarriedFile
    driver: CarriedFile | None
    plan: CarriedFile
    adapters: dict[str, CarriedFile]


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``package.json``: what is carried for the description beside it.

    ``distribution`` is what pip installs, ``has_sources`` says whether it can be built anew from it.
    """

    format: int
    opsmith: str
    distribution: str
    backend: str
    has_sources: bool
    host_window: bool
    rng: Literal["philox", "cpu"]
    driver: str | None
    python_driver: DriverClass | None
    driver_place: Place
    namespaces: tuple[Namespace, ...]
    builds: tuple[CarriedBuild, ...]
    calls_python: bool = False


class _Header(msgspec.Struct, frozen=True):
    """The fields that every format begins with."""

    format: int
    opsmith: str
    distribution: str


def read_contents(description: Path) -> Contents | None:
    """The contents that a package carries for ``description``; None where that is not of a package.

    Raises :class:`~opsmith.errors.PackageInvalid` for a file that is damaged, or of another format.
    """
    path = description.parent / FOLDER / FILE
    try:
        content = read_regular(path)
    except OSError:
        return None
    try:
        header = msgspec.json.decode(content, type=_Header)
        if header.format == FORMAT:
            return msgspec.json.decode(content, type=Contents)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PackageInvalid(
            f"{path} is not as `opsmith package` writes it: {error}",
            remedy="pip install --force-reinstall the package that it is part of",
        ) from None
    age = "a newer" if header.format > FORMAT else "an older"
    remedy = (
        f"pip install --upgrade opsmith, to {header.opsmith} or later"
        if header.format > FORMAT
        else f"install a newer {header.distribution.partition('==')[0]}, or opsmith=={header.opsmith}"
    )
    raise PackageInvalid(
        f"`{header.distribution}` was packaged by {age} opsmith, {header.opsmith}, in format "
        f"{header.format}; this one reads format {FORMAT}",
        remedy=remedy,
    )
