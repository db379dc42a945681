"""How large built kernels are, and which objects hold them: read from the files' symbols.

A kernel's size is that of its function and of what carries its name: lambdas, clones and templates that
were instantiated for it.  What several kernels share is nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.executorch.elf import ElfFile
from opsmith.plan.executorch import LibraryKernel


@dataclass(frozen=True)
class KernelSize:
    """A kernel of a built library: for which operator, of which library, and its bytes of code."""

    operator: str
    library: str
    symbol: str
    bytes: int


def text_size(library: Path) -> int:
    """The bytes of code and constants in the file ``library``: the column ``text`` of ``size``."""
    return ElfFile.read(library).text_size


def kernel_sizes(library: Path, kernels: Sequence[LibraryKernel]) -> tuple[KernelSize, ...]:
    """The size of each of ``kernels`` in the file ``library``, the largest first."""
    sizes = {each.kernel.symbol: 0 for each in kernels}
    mangled = {symbol: _mangled(symbol) for symbol in sizes}
    for symbol in ElfFile.read(library).symbols:
        for name, text in mangled.items():
            if symbol.size and text in symbol.name:
                sizes[name] += symbol.size
    found = [
        KernelSize(
            each.operator.name, each.kernel.library, each.kernel.symbol, sizes[each.kernel.symbol]
        )
        for each in kernels
    ]
    return tuple(sorted(found, key=lambda each: (-each.bytes, each.operator, each.library)))


def needed_objects(symbols: Sequence[str], objects: Sequence[Path]) -> set[Path]:
    """Those of ``objects`` that define the C++ functions ``symbols``, and what these need in turn."""
    definers: dict[str, Path] = {}
    undefined: dict[Path, list[str]] = {}
    needed: dict[Path, None] = {}
    wanted = tuple(f"_Z{_mangled(symbol)}" for symbol in symbols)
    for path in dict.fromkeys(objects):
        undefined[path] = []
        for symbol in ElfFile.read(path).symbols:
            if not symbol.is_defined:
                undefined[path].append(symbol.name)
            elif not symbol.is_local:
                # What is weak is in every object that needs it.
                if not symbol.is_weak:
                    definers[symbol.name] = path
                if symbol.name.startswith(wanted):
                    needed[path] = None
    waiting = list(needed)
    while waiting:
        for name in undefined[waiting.pop()]:
            definer = definers.get(name)
            if definer is not None and definer not in needed:
                needed[definer] = None
                waiting.append(definer)
    return set(needed)


def _mangled(symbol: str) -> str:
    """``a::b::f`` as the Itanium C++ ABI has it inside of mangled names: ``N1a1b1fE``."""
    return f"N{''.join(f'{len(part)}{part}' for part in symbol.split('::'))}E"
