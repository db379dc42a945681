"""Which machines a wheel's libraries run on, as its platform tag says it: from what they ask of glibc.

A manylinux tag promises a version of glibc, and nothing but the libraries of PEP 600's list beside those of
torch.  A wheel that asks for more is ``linux_…``, which pip installs and an index does not take.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from opsmith.errors import PackagingError
from opsmith.executorch.elf import ElfFile, NotElf

# The newest symbols of libstdc++ that each manylinux's systems have: those of auditwheel's policies.
_LIBSTDCXX = (
    ((3, 4, 19), (2, 17)),
    ((3, 4, 22), (2, 24)),
    ((3, 4, 24), (2, 27)),
    ((3, 4, 28), (2, 31)),
    ((3, 4, 29), (2, 34)),
    ((3, 4, 30), (2, 35)),
    ((3, 4, 32), (2, 38)),
    ((3, 4, 33), (2, 39)),
)
_LEAST, _NEWEST = (2, 17), (2, 40)
# PEP 600's, and what a process with torch has loaded: its wheel brings libgomp.so.1 too.
_ANYWHERE = re.compile(
    r"lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|z)\.so\.\d+|ld-linux.*\.so\.\d+"
    r"|lib(c10|torch|torch_cpu|torch_python)\.so|libgomp\.so\.1|libopsmith_\w+\.so"
)
_VERSION = re.compile(rb"(GLIBC|GLIBCXX)_([0-9.]+)\0")


@dataclass(frozen=True)
class PlatformTag:
    """The tag, and what keeps it from being manylinux's, if anything does."""

    tag: str
    why: str = ""


def platform_tag(libraries: Iterable[Path]) -> PlatformTag:
    """The tag of a wheel with ``libraries``.  Raises :class:`~opsmith.errors.PackagingError` for none."""
    needed: dict[str, str] = {}
    glibc, machines = _LEAST, set()
    libraries = tuple(libraries)
    carried = {path.name for path in libraries}
    for path in libraries:
        try:
            elf = ElfFile.read(path)
        except NotElf as error:
            raise PackagingError(
                f"{path} cannot be packaged: {error}",
                remedy="build it, or name another, in `driver`",
            ) from None
        machines.add(elf.machine)
        others = (name for name in elf.needed if name not in carried)
        needed.update({name: path.name for name in others if not _ANYWHERE.fullmatch(name)})
        glibc = max(glibc, _least_glibc(elf.section(".dynstr") or b""))
    if machines - {platform.machine()}:
        raise PackagingError(
            f"a library is for {', '.join(sorted(machines))}, and this machine is {platform.machine()}",
            remedy="package on a machine of the kind that the driver is for",
        )
    if needed:
        name, library = sorted(needed.items())[0]
        return PlatformTag(
            f"linux_{platform.machine()}", f"{library} needs {name}, which not every system has"
        )
    return PlatformTag(f"manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}")


def _least_glibc(names: bytes) -> tuple[int, int]:
    """The oldest glibc whose systems have the versions of symbols in ``names``, a table of strings."""
    least = _LEAST
    for library, version in _VERSION.findall(names):
        numbers = tuple(map(int, version.decode().split(".")))
        if library == b"GLIBC":
            least = max(least, (numbers[0], numbers[1]))
        else:
            fits = [system for newest, system in _LIBSTDCXX if numbers <= newest]
            least = max(least, fits[0] if fits else _NEWEST)
    return least
