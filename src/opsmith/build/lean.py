"""How the sources of a kernel library on lean tensors are compiled, whichever runtime they are for.

Vectorised sources are compiled once for each instruction set, with ``OPSMITH_ISA`` as its name; the
library chooses among them once, at the first call of a kernel that has vectorised code.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from opsmith.base.processor import processor_features
from opsmith.build.csrc import PUBLIC_HEADERS
from opsmith.build.etensor_headers import ETensorHeaders
from opsmith.build.own_options import is_quick_build
from opsmith.build.shared_library import LeanSources
from opsmith.description import Library

OWN_SECTIONS = ("-ffunction-sections", "-fdata-sections")
"""For objects of which the linker leaves out what nothing calls."""

# The levels of the x86-64 psABI, which gcc 11 and clang 12 and later know; VNNI came with Cascade Lake.
_OF_X86: Mapping[str, tuple[str, ...]] = {
    "baseline": (),
    "avx2": ("-march=x86-64-v3",),
    "avx512": ("-march=x86-64-v4", "-mavx512vnni"),
}
# Every such processor has NEON, so that there is no other to choose.
_OF_ARM: Mapping[str, tuple[str, ...]] = {"neon": ("-DOPSMITH_ISA_NEON",)}
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {"baseline": ()}
# By which Linux's /proc/cpuinfo tells of them.
_FEATURES = {"avx2": {"avx2", "fma"}, "avx512": {"avx512f", "avx512bw", "avx512_vnni"}}
_OF_MACHINES = {"x86_64": _OF_X86, "AMD64": _OF_X86, "aarch64": _OF_ARM, "arm64": _OF_ARM}


def instruction_sets(machine: str = "") -> Mapping[str, tuple[str, ...]]:
    """The instruction sets that vectorised sources are compiled for, and the compiler's options.

    Of ``machine``, by ``uname``'s name; empty for this one.
    """
    return _OF_MACHINES.get(machine or platform.machine(), _ELSEWHERE)


def supported_instruction_sets() -> Mapping[str, tuple[str, ...]]:
    """Those of :func:`instruction_sets` that this processor has; all where it does not tell."""
    features, names = processor_features(), instruction_sets()
    return {
        name: options
        for name, options in names.items()
        if not features or _FEATURES.get(name, set()) <= features
    }


def compiled_instruction_sets(machine: str = "") -> Mapping[str, tuple[str, ...]]:
    """Those of :func:`instruction_sets` that a build compiles for.

    All of them, but for a quick build, which leaves out what this processor lacks.
    """
    if is_quick_build() and machine in ("", platform.machine()):
        return supported_instruction_sets()
    return instruction_sets(machine)


def lean_sources(
    library: Library,
    headers: ETensorHeaders,
    flags: Sequence[str] = (),
    machine: str = "",
) -> tuple[LeanSources, ...]:
    """The sources of ``library``, whose kernels have the ``executorch`` ABI.

    ``headers`` are for all, ``flags`` for those that are not vectorised: the objects of these are the same in
    every build, and what nothing calls of them the linker leaves out.
    They are compiled for ``machine``, by ``uname``'s name; empty for this one.
    """
    # Kernels are told where to launch work, and which random numbers are theirs.
    include_dirs = (*library.include_dirs, PUBLIC_HEADERS)
    own = library.options.compile_flags
    plain = LeanSources(library.sources, headers, include_dirs, (*flags, *own))
    if not library.vectorised:
        return (plain,)
    names = compiled_instruction_sets(machine)
    every = [f"-DOPSMITH_ISA_{name.upper()}" for name in names]
    return (
        LeanSources(plain.sources, headers, plain.include_dirs, (*plain.flags, *every)),
        *(
            LeanSources(
                library.vectorised,
                headers,
                include_dirs,
                (*OWN_SECTIONS, *own, *options, f"-DOPSMITH_ISA={name}"),
                is_vectorised=True,
            )
            for name, options in names.items()
        ),
    )


def distinct_sources(groups: Iterable[LeanSources]) -> Iterator[LeanSources]:
    """The ``groups``, without what an earlier one compiles in the same way: libraries may share sources."""
    seen: set[tuple[Path, tuple[str, ...]]] = set()
    for group in groups:
        named = [(source.resolve(), tuple(group.flags)) for source in group.sources]
        kept = tuple(
            source for source, key in zip(group.sources, named, strict=True) if key not in seen
        )
        seen.update(named)
        yield replace(group, sources=kept)
