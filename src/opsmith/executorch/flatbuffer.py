"""Reads tables of a flatbuffer: enough for programs of ExecuTorch, without importing its exporter.

That takes ten seconds, for torch and all of its compiler come with it.  Every offset is checked, so that a
damaged file ends in :class:`NotFlatbuffer`.  Called by ``program``.
"""

from __future__ import annotations

import struct

# The layout: https://flatbuffers.dev/internals/


class NotFlatbuffer(ValueError):
    """The bytes are not what the format says."""


class Table:
    """The table at ``position`` of ``content``.  A field is named by its place in the schema's table."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content = content
        self._position = position
        self._fields = position - self._read("<i", position)
        self._fields_size = self._read("<H", self._fields)

    @classmethod
    def root(cls, content: bytes) -> Table:
        """The outermost table."""
        return cls(content, _at(content, "<I", 0))

    def byte(self, field: int, default: int = 0) -> int:
        """A ``byte``, an enum of such, or the type of a union."""
        return self._scalar("<b", field, default)

    def integer(self, field: int, default: int = 0) -> int:
        """An ``int``, of 32 bits."""
        return self._scalar("<i", field, default)

    def unsigned(self, field: int, default: int = 0) -> int:
        """A ``uint``, of 32 bits."""
        return self._scalar("<I", field, default)

    def unsigned_long(self, field: int, default: int = 0) -> int:
        """A ``uint64``."""
        return self._scalar("<Q", field, default)

    def has(self, field: int) -> bool:
        """Whether the field is there."""
        return self._offset(field) != 0

    def table(self, field: int) -> Table:
        """A table, or the member of a union."""
        return Table(self._content, self._target(field))

    def text(self, field: int) -> str:
        """A string; empty where there is none."""
        return bytes(self.octets(field)).decode()

    def octets(self, field: int) -> tuple[int, ...]:
        """A vector of unsigned bytes; empty where there is none."""
        return self._vector(field, "B")

    def integers(self, field: int) -> tuple[int, ...]:
        """A vector of ``int``; empty where there is none."""
        return self._vector(field, "i")

    def longs(self, field: int) -> tuple[int, ...]:
        """A vector of ``long``, of 64 bits; empty where there is none."""
        return self._vector(field, "q")

    def length(self, field: int, item: str = "B") -> int:
        """How many items a vector has, all of which are in the file; of bytes unless ``item`` says else."""
        if not self._offset(field):
            return 0
        start = self._target(field)
        length = self._read("<I", start)
        end = start + 4 + length * struct.calcsize(f"<{item}")
        if end > len(self._content):
            raise NotFlatbuffer(
                f"a vector of {length:,} items ends at byte {end:,} of {len(self._content):,}"
            )
        return length

    def tables(self, field: int) -> tuple[Table, ...]:
        """A vector of tables; empty where there is none."""
        offsets = self._vector(field, "I")
        if not offsets:
            return ()
        first = self._target(field) + 4
        return tuple(
            Table(self._content, first + 4 * index + offset) for index, offset in enumerate(offsets)
        )

    def _vector(self, field: int, item: str) -> tuple[int, ...]:
        if not self._offset(field):
            return ()
        start = self._target(field)
        length = self._read("<I", start)
        if length * struct.calcsize(item) > len(self._content):
            raise NotFlatbuffer(f"a vector has {length:,} items, and the file is smaller")
        return _all_at(self._content, f"<{length}{item}", start + 4)

    def _scalar(self, kind: str, field: int, default: int) -> int:
        offset = self._offset(field)
        return self._read(kind, self._position + offset) if offset else default

    def _target(self, field: int) -> int:
        offset = self._offset(field)
        if not offset:
            raise NotFlatbuffer(f"a table lacks its field {field}")
        place = self._position + offset
        return place + self._read("<I", place)

    def _offset(self, field: int) -> int:
        """Where the field is, from the table's beginning; 0 where it is absent."""
        entry = 4 + 2 * field
        return self._read("<H", self._fields + entry) if entry < self._fields_size else 0

    def _read(self, kind: str, position: int) -> int:
        return _at(self._content, kind, position)


def _at(content: bytes, kind: str, position: int) -> int:
    return _all_at(content, kind, position)[0]


def _all_at(content: bytes, kind: str, position: int) -> tuple[int, ...]:
    # struct takes a negative position for one from the end.
    if position < 0 or position + struct.calcsize(kind) > len(content):
        raise NotFlatbuffer(f"it has no byte {position:,}: it ends after {len(content):,}")
    return struct.unpack_from(kind, content, position)
