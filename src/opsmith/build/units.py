"""Which sources are compiled together, as one object.

What takes the time in a file with PyTorch's headers is the headers, and templates that every file
instantiates anew.  So the package's own sources, and those that it generates, are compiled a few dozen at a
time; a user's never are, whose names may clash and whose edits should compile little.
``OPSMITH_UNITY=0`` turns it off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.build.own_options import is_quick_build, own_compile_flags, own_optimization
from opsmith.errors import SettingInvalid

UNITY = "OPSMITH_UNITY"

FASTEST = "-O3"


@dataclass(frozen=True)
class Level:
    """How sources of ours are optimised: as a rule, and where a build is to be quick."""

    usual: str
    quick: str

    def __str__(self) -> str:
        return self.quick if is_quick_build() else self.usual


# The runtime and generated code check arguments and call kernels: more than this takes 1 % from the
# instructions of a call, and twice the time to compile.  At one level they share precompiled headers.
CALLS = Level("-O1", "-O0")
# Half the time of compilers, and loops that are twice as slow.
KERNELS = Level(FASTEST, "-O1")
# What is not inlined here would be common to all instruction sets, and the linker keeps one of them.
VECTORISED = Level(FASTEST, FASTEST)

# The size of a unit for which one compiler takes about half a minute.
_BYTES_PER_GENERATED_UNIT = 700_000
# Stubs that `emit` writes to a file of their own: their header defines what another stub's defines too.
_WITH_CLASHING_HEADER = re.compile(r"Stubs_[A-Za-z]\w*\.cpp$")
# PyTorch's headers then bring the operators that they name, not all three thousand. A user's sources may rely
# on what comes along.
_FEWER_HEADERS = ("-DAT_PER_OPERATOR_HEADERS",)
# Of the runtime: what brings all of PyTorch's operators, and what wants a library in a mode of its own.
_ISOLATED = ("autocast", "collectives", "kineto")
# In a path between quotes; what a backslash means there is the compiler's own affair.
_UNNAMEABLE = re.compile(r'["\\\n]')


@dataclass(frozen=True)
class Unit:
    """Sources that become one object; ``name`` is what is shown while they are compiled.

    ``own_flags`` are a user's, and come last.
    """

    name: str
    sources: tuple[Path, ...]
    optimize: str = FASTEST
    flags: tuple[str, ...] = ()
    own_flags: tuple[str, ...] = ()


def single(source: Path, level: Level) -> Unit:
    """The unit of one source of ours."""
    return Unit(source.name, (source,), str(level))


def together(name: str, sources: Sequence[Path], level: Level, count: int = 1) -> tuple[Unit, ...]:
    """``sources`` in ``count`` units of about the same size, in the order given.

    What no ``#include`` can name is compiled by itself.  Raises :class:`~opsmith.errors.SettingInvalid`.
    """
    is_on = _is_on()
    isolated = [source for source in sources if not is_on or _UNNAMEABLE.search(str(source))]
    if isolated:
        rest = [source for source in sources if source not in isolated]
        units = together(name, rest, level, count) if rest else ()
        return (
            *units,
            *(Unit(source.name, (source,), str(level), _FEWER_HEADERS) for source in isolated),
        )
    sizes = [source.stat().st_size for source in sources]
    runs: list[list[Path]] = [[] for _ in range(count)]
    passed = 0
    for source, size in zip(sources, sizes, strict=True):
        # By where the middle of the file lies in the whole.
        runs[min(count - 1, (2 * passed + size) * count // (2 * sum(sizes) or 1))].append(source)
        passed += size
    return tuple(
        Unit(
            f"{name}_{number}.cpp" if count > 1 else f"{name}.cpp",
            tuple(run),
            str(level),
            _FEWER_HEADERS,
        )
        for number, run in enumerate(runs)
        if run
    )


def runtime_units(sources: Sequence[Path]) -> tuple[Unit, ...]:
    """The units of ``sources``, those of the runtime that every backend has."""
    isolated = [source for source in sources if source.stem in _ISOLATED]
    rest = [source for source in sources if source not in isolated]
    return (
        *(unit for source in isolated for unit in together(source.stem, [source], CALLS)),
        *together("runtime", rest, CALLS, 2),
    )


def generated_units(sources: Sequence[Path]) -> tuple[Unit, ...]:
    """The units of a backend's generated ``sources``."""
    isolated = [source for source in sources if _WITH_CLASHING_HEADER.search(source.name)]
    rest = [source for source in sources if source not in isolated]
    size = sum(source.stat().st_size for source in rest)
    count = max(1, round(size / _BYTES_PER_GENERATED_UNIT))
    return (
        *together("generated", rest, CALLS, count),
        *(unit for source in isolated for unit in together(source.stem, [source], CALLS)),
    )


def generated_unit(source: Path) -> Unit:
    """The unit of a generated source by itself, whose name is that of all backends."""
    return Unit("generated.cpp", (source,), str(CALLS), _FEWER_HEADERS)


def own_units(sources: Iterable[Path], flags: Sequence[str] = ()) -> tuple[Unit, ...]:
    """A user's sources, each by itself, with the options ``flags`` and those of the environment.

    Raises :class:`~opsmith.errors.SettingInvalid`.
    """
    return tuple(
        Unit(
            source.name,
            (source,),
            own_optimization(),
            own_flags=(*flags, *own_compile_flags(source)),
        )
        for source in sources
    )


def _is_on() -> bool:
    chosen = os.environ.get(UNITY) or "1"
    if chosen not in {"0", "1"}:
        raise SettingInvalid(
            f"{UNITY} is `{chosen}`", remedy="set it to 0, for one object a source, or unset it"
        )
    return chosen == "1"
