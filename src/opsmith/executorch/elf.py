"""Contents of an ELF file: its machine, its sections and its symbols, read without running anything.

For files of 64-bit little-endian machines, which is what ExecuTorch's wheels are for.  The structures are
those of ``elf.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opsmith.base.trusted_files import MOST_BYTES_OF_BINARIES, read_regular

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_ENTRY = struct.Struct("<QQ")

_SYMTAB, _RELA, _DYNAMIC, _NOBITS = 2, 4, 6, 8
_DT_NEEDED = 1
_WRITE, _ALLOC = 1, 2
_LOCAL, _WEAK = 0, 2
_SECTION_SYMBOL = 3

# R_X86_64_PC32 and R_X86_64_PLT32 count from the end of their four bytes.
_BIAS = {("x86_64", 2): 4, ("x86_64", 4): 4}

# e_machine, by the names that uname has for them.
_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}


class NotElf(ValueError):
    """The file is none, or one of another kind, or its tables lead outside it."""


@dataclass(frozen=True)
class Section:
    """A section's header: where its bytes are in the file, and what kind it is."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    """A symbol with its mangled name, which is empty for that of a section.

    ``section`` is the place of the section that it is in, 0 where it is undefined; ``value`` its offset
    there, in an object file.
    """

    name: str
    value: int
    size: int
    section: int
    is_local: bool
    is_weak: bool
    is_section: bool

    @property
    def is_defined(self) -> bool:
        """Whether the file has it."""
        return self.section != 0


@dataclass(frozen=True)
class Relocation:
    """A place in the section ``section`` of an object file that gets the address of ``symbol``.

    ``addend`` is the offset from it; of a processor that counts from the end of the field, without that.
    """

    section: int
    offset: int
    symbol: Symbol
    addend: int


class ElfFile:
    """An ELF file's content.  Raises :class:`NotElf` where it is none."""

    def __init__(self, content: bytes) -> None:
        if content[:4] != b"\x7fELF":
            raise NotElf("it is no shared library")
        if content[4:6] != b"\x02\x01":
            raise NotElf("it is not for a little-endian processor of 64 bits")
        self._content = content
        try:
            header = _HEADER.unpack_from(content)
            self.machine = _MACHINES.get(header[2], f"number {header[2]}")
            table, size, count, names = header[6], header[11], header[12], header[13]
            raw = [_SECTION.unpack_from(content, table + index * size) for index in range(count)]
            texts = raw[names][4] if raw else 0
            self.sections = tuple(
                Section(self._text(texts + name), kind, flags, offset, length, link, info)
                for name, kind, flags, _, offset, length, link, info, *_ in raw
            )
        except (struct.error, IndexError, ValueError):
            raise NotElf("it is damaged") from None

    @classmethod
    def read(cls, path: Path) -> ElfFile:
        """The file at ``path``."""
        return cls(read_regular(path, MOST_BYTES_OF_BINARIES))

    def section(self, name: str) -> bytes | None:
        """The bytes of the section ``name``, if there is one."""
        for section in self.sections:
            if section.name == name:
                return self._content[section.offset : section.offset + section.size]
        return None

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The libraries that are loaded with it: the names of ``DT_NEEDED``."""
        found = []
        try:
            for section in self.sections:
                if section.kind != _DYNAMIC:
                    continue
                names = self.sections[section.link].offset
                for place in range(section.offset, section.offset + section.size, _ENTRY.size):
                    tag, value = _ENTRY.unpack_from(self._content, place)
                    if tag == _DT_NEEDED:
                        found.append(self._text(names + value))
        except (struct.error, IndexError, ValueError):
            raise NotElf("it is damaged") from None
        return tuple(found)

    @property
    def text_size(self) -> int:
        """The bytes that are loaded and not written to, code and constants: what ``size`` calls text."""
        return sum(
            section.size
            for section in self.sections
            if section.flags & _ALLOC and not section.flags & _WRITE and section.kind != _NOBITS
        )

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols, by their places; empty where the file was stripped."""
        try:
            return tuple(self._symbols())
        except (struct.error, IndexError, ValueError):
            raise NotElf("it is damaged") from None

    def _symbols(self) -> Iterator[Symbol]:
        for section in self.sections:
            if section.kind != _SYMTAB:
                continue
            names = self.sections[section.link].offset
            for place in range(section.offset, section.offset + section.size, _SYMBOL.size):
                name, info, _, index, value, size = _SYMBOL.unpack_from(self._content, place)
                binding, kind = info >> 4, info & 15
                yield Symbol(
                    self._text(names + name),
                    value,
                    size,
                    index,
                    binding == _LOCAL,
                    binding == _WEAK,
                    kind == _SECTION_SYMBOL,
                )

    def relocations(self) -> Iterator[Relocation]:
        """Those of an object file."""
        for section in self.sections:
            if section.kind != _RELA:
                continue
            for place in range(section.offset, section.offset + section.size, _RELOCATION.size):
                offset, info, addend = _RELOCATION.unpack_from(self._content, place)
                bias = _BIAS.get((self.machine, info & 0xFFFFFFFF), 0)
                yield Relocation(section.info, offset, self.symbols[info >> 32], addend + bias)

    def _text(self, place: int) -> str:
        return self._content[place : self._content.index(b"\0", place)].decode()
