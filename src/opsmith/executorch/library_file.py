"""A built kernel library's file: what it says of itself, read without loading it, and whether it fits.

Loading a library runs its code, which a processor without the instruction sets that it was compiled for
ends with a signal.  So what it was built for is read from a section of the file, and compared first.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from opsmith.base.processor import processor_features
from opsmith.base.trusted_files import MOST_BYTES_OF_BINARIES, read_regular
from opsmith.build.executorch import find_executorch
from opsmith.emit.executorch import SECTION
from opsmith.errors import FileMissing, LibraryRejected
from opsmith.executorch.elf import ElfFile, NotElf
from opsmith.plan.executorch.library_facts import FORMAT, BuiltFor, LibraryDescription

_REBUILD = "build it anew here: opsmith executorch build backend.yaml -o DIR"


@dataclass(frozen=True)
class LibraryFile:
    """A library's file and its description."""

    path: Path
    description: LibraryDescription


def this_installation() -> BuiltFor:
    """The target of libraries that are built here."""
    installed = find_executorch()
    return BuiltFor(installed.version, installed.python, platform.machine())


def read_library_file(path: Path) -> LibraryFile:
    """The library in the file ``path``.

    Raises :class:`~opsmith.errors.FileMissing`, and :class:`~opsmith.errors.LibraryRejected` for a file that
    ``opsmith executorch build`` did not write.
    """
    return LibraryFile(path, _described(path, _content(path)))


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_BYTES_OF_BINARIES)
    except OSError as error:
        raise FileMissing(
            f"the kernel library `{path}` cannot be read: {error.strerror}",
            remedy="name the file that `opsmith executorch build` wrote into its folder",
        ) from None


def describes_itself(path: Path, *, anywhere: bool = False) -> bool:
    """Whether the file is a library that ``opsmith executorch build`` wrote; ``anywhere``: for any processor.

    One that registers its kernels itself, by ``EXECUTORCH_LIBRARY`` for instance, does not.  Raises as
    :func:`read_library_file`.
    """
    try:
        file = ElfFile(_content(path))
    except NotElf as error:
        raise _foreign(path, str(error)) from None
    is_ours = file.section(SECTION) is not None
    if file.machine != platform.machine() and not (is_ours and anywhere):
        raise LibraryRejected(
            f"`{path}` was built for a processor of the kind {file.machine}, and this is "
            f"{platform.machine()}",
            remedy=_REBUILD,
        )
    return is_ours


def check_fits(library: LibraryFile, *, anywhere: bool = False) -> None:
    """Raises :class:`~opsmith.errors.LibraryRejected` where the library cannot be loaded here.

    Or, ``anywhere``, beside this ExecuTorch's like for no processor.
    """
    built, here = library.description.built_for, this_installation()
    if anywhere and built.machine != here.machine:
        here = replace(here, machine=built.machine, python=built.python)
    for what, there, now in (
        ("a processor of the kind", built.machine, here.machine),
        ("ExecuTorch", built.executorch, here.executorch),
        ("the Python", built.python, here.python),
    ):
        if there != now:
            raise LibraryRejected(
                f"`{library.path}` was built for {what} {there}, and this is {now or 'without one'}",
                remedy=_REBUILD,
            )
    missing = set(library.description.instruction_sets.split()) - processor_features()
    if missing and not anywhere:
        raise LibraryRejected(
            f"`{library.path}` needs {', '.join(sorted(missing))}, which this processor has not",
            remedy=f"{_REBUILD}, without -march in CXX",
        )


def _described(path: Path, content: bytes) -> LibraryDescription:
    try:
        file = ElfFile(content)
    except NotElf as error:
        raise _foreign(path, str(error)) from None
    section = file.section(SECTION)
    if section is None:
        raise _foreign(path, "it does not say what it holds")
    try:
        described = msgspec.json.decode(section.rstrip(b"\0"), type=LibraryDescription)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _foreign(path, str(error)) from None
    if described.format > FORMAT:
        raise _foreign(
            path, f"its format {described.format} is newer than this opsmith's, {FORMAT}"
        )
    return described


def _foreign(path: Path, why: str) -> LibraryRejected:
    return LibraryRejected(
        f"`{path}` is no kernel library of opsmith for ExecuTorch: {why}",
        remedy="name the file that `opsmith executorch build` wrote into its folder",
    )
