"""What is in an ELF file: its machine, its sections and its symbols, read without running anything.

For files of 64-bit little-endian machines, which is what ExecuTorch's wheels are for.  The structures are
those of ``elf.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_SYMTAB = 2
_NOBITS = 8
_WRITE, _ALLOC = 1, 2
_UNDEFINED = 0
_LOCAL, _WEAK = 0, 2

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


@dataclass(frozen=True)
class Symbol:
    """A symbol with its mangled name; of an undefined one, ``size`` is 0."""

    name: str
    size: int
    is_defined: bool
    is_local: bool
    is_weak: bool


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
                Section(self._text(texts + name), kind, flags, offset, length, link)
                for name, kind, flags, _, offset, length, link, *_ in raw
            )
        except (struct.error, IndexError, ValueError):
            raise NotElf("it is damaged") from None

    @classmethod
    def read(cls, path: Path) -> ElfFile:
        """The file at ``path``."""
        return cls(path.read_bytes())

    def section(self, name: str) -> bytes | None:
        """The bytes of the section ``name``, if there is one."""
        for section in self.sections:
            if section.name == name:
                return self._content[section.offset : section.offset + section.size]
        return None

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
        """All symbols that have a name; empty where the file was stripped."""
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
                name, info, _, index, _, size = _SYMBOL.unpack_from(self._content, place)
                if name:
                    binding = info >> 4
                    yield Symbol(
                        self._text(names + name),
                        size,
                        index != _UNDEFINED,
                        binding == _LOCAL,
                        binding == _WEAK,
                    )

    def _text(self, place: int) -> str:
        return self._content[place : self._content.index(b"\0", place)].decode()
