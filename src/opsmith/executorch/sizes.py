"""How large kernels are, and which objects hold them: read from the objects' symbols and relocations.

A kernel needs its function and what that refers to in turn.  What several kernels need counts for each of
them, and for none of them alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.executorch.elf import ElfFile, Symbol
from opsmith.plan.executorch.resolver import LibraryKernel


@dataclass(frozen=True)
class KernelSize:
    """A kernel of a built library: for which operator, of which library, and its bytes.

    ``bytes`` are the functions and tables that it needs, ``alone`` those that no other kernel of the
    library needs: what is saved where it is left out.
    """

    operator: str
    library: str
    symbol: str
    bytes: int
    alone: int


def text_size(library: Path) -> int:
    """The bytes of code and constants in the file ``library``: the column ``text`` of ``size``."""
    return ElfFile.read(library).text_size


def kernel_sizes(
    kernels: Sequence[LibraryKernel], objects: Iterable[Path]
) -> tuple[KernelSize, ...]:
    """The size of each of ``kernels``, whose code is in ``objects``, the largest first."""
    references = _References(objects)
    needed = {
        symbol: references.needed_by(symbol) for symbol in {each.kernel.symbol for each in kernels}
    }
    users = Counter(part for parts in needed.values() for part in parts)
    sizes = references.sizes
    found = [
        KernelSize(
            each.operator.name,
            each.kernel.library,
            each.kernel.symbol,
            sum(sizes.get(part, 0) for part in needed[each.kernel.symbol]),
            sum(sizes.get(part, 0) for part in needed[each.kernel.symbol] if users[part] == 1),
        )
        for each in kernels
    ]
    return tuple(sorted(found, key=lambda each: (-each.bytes, each.operator, each.library)))


def needed_objects(symbols: Sequence[str], objects: Sequence[Path]) -> set[Path]:
    """Those of ``objects`` that define the C++ functions ``symbols``, and what these need in turn."""
    definers: dict[str, Path] = {}
    weak: dict[str, Path] = {}  # a template that is instantiated in one object for others
    undefined: dict[Path, list[str]] = {}
    needed: dict[Path, None] = {}
    wanted = tuple(map(_mangled, symbols))
    for path in dict.fromkeys(objects):
        undefined[path] = []
        for symbol in ElfFile.read(path).symbols:
            if not symbol.is_defined:
                undefined[path].append(symbol.name)
            elif not symbol.is_local:
                (weak if symbol.is_weak else definers).setdefault(symbol.name, path)
                if symbol.name.startswith(wanted):
                    needed[path] = None
    waiting = list(needed)
    while waiting:
        for name in undefined[waiting.pop()]:
            definer = definers.get(name, weak.get(name))
            if definer is not None and definer not in needed:
                needed[definer] = None
                waiting.append(definer)
    return set(needed)


class _References:
    """Which function or table of some objects refers to which.

    A part is known by its symbol's name or, where that is local, by its place: the object, the section and
    the offset.  What lies in a section outside of all symbols is the section's.
    """

    def __init__(self, objects: Iterable[Path]) -> None:
        self.sizes: dict[Hashable, int] = {}
        self._edges: dict[Hashable, set[Hashable]] = {}
        for path in dict.fromkeys(objects):
            self._read(path)

    def needed_by(self, symbol: str) -> set[Hashable]:
        """The parts that the C++ function ``symbol`` consists of and refers to, in turn."""
        prefix = _mangled(symbol)
        found: set[Hashable] = {
            part for part in self.sizes if isinstance(part, str) and part.startswith(prefix)
        }
        waiting = list(found)
        while waiting:
            new = self._edges.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    def _read(self, path: Path) -> None:
        file = ElfFile.read(path)
        places: dict[int, list[tuple[int, int, Hashable]]] = {}
        for symbol in file.symbols:
            if symbol.is_defined and symbol.size and not symbol.is_section:
                part = _part(path, symbol)
                self.sizes.setdefault(part, symbol.size)
                places.setdefault(symbol.section, []).append((symbol.value, symbol.size, part))
        for found in places.values():
            found.sort(key=lambda place: place[:2])

        def part_at(section: int, offset: int) -> Hashable:
            inside = places.get(section, [])
            index = bisect_right(inside, offset, key=lambda place: place[0]) - 1
            if index >= 0 and offset < inside[index][0] + inside[index][1]:
                return inside[index][2]
            return path, section

        for each in file.relocations():
            source = part_at(each.section, each.offset)
            target = (
                part_at(each.symbol.section, each.addend)
                if each.symbol.is_section
                else _part(path, each.symbol)
            )
            self._edges.setdefault(source, set()).add(target)


def _part(path: Path, symbol: Symbol) -> Hashable:
    return (path, symbol.section, symbol.value) if symbol.is_local else symbol.name


def _mangled(symbol: str) -> str:
    """How the mangled name of the function ``a::b::f`` begins by the Itanium C++ ABI: ``_ZN1a1b1fE``."""
    return f"_ZN{''.join(f'{len(part)}{part}' for part in symbol.split('::'))}E"
