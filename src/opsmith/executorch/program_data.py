"""The data of a ``.pte`` file: weights, initial states and what delegates are given, in segments or inline.

Says how many bytes they are, and refuses a file in which a part of them lies outside.  Called by ``program``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from opsmith.executorch.flatbuffer import NotFlatbuffer, Table

# ExecuTorch's own header, after the flatbuffer's root and identifier: its mark and length, the program's
# bytes, and where the segments begin and how many bytes they are (exir/_serialize/_program.py:
# _ExtendedHeader).
_HEADER_AT = 8
_HEADER = struct.Struct("<4sIQQQ")
_HEADER_MARK = b"eh00"

# The fields of program.fbs by their place in their table; a later version of it only appends.
_CONSTANT_BUFFER, _DELEGATE_DATA, _SEGMENTS, _CONSTANT_SEGMENT, _MUTABLE, _NAMED = 2, 3, 4, 5, 6, 7
_SEGMENT_OFFSET, _SEGMENT_SIZE = 0, 1
_SUBSEGMENTS_INDEX, _SUBSEGMENTS_OFFSETS = 0, 1
_NAMED_KEY, _NAMED_SEGMENT = 0, 1
_BYTES = 0  # of a constant, and of a delegate's data


@dataclass(frozen=True)
class ProgramData:
    """The data that a program brings beside its instructions.

    ``constants`` are the places of its weights with how many bytes each has room for; ``inline``: they lie
    among the instructions, as ExecuTorch wrote them once.  ``mutable`` are those of buffers' initial states,
    ``delegates`` the bytes of what is inline for delegates, and ``segments`` those of each segment.
    ``total`` is all of it.
    """

    constants: tuple[int, ...] = ()
    mutable: tuple[tuple[int, ...], ...] = ()
    delegates: tuple[int, ...] = ()
    segments: tuple[int, ...] = ()
    total: int = 0


def check_whole(content: bytes) -> None:
    """Raises :class:`NotFlatbuffer` where the file ends before its segments do, by ExecuTorch's header."""
    if len(content) < _HEADER_AT + _HEADER.size:
        raise NotFlatbuffer(f"it ends after {len(content)} bytes")
    mark, length, program, segments, segments_size = _HEADER.unpack_from(content, _HEADER_AT)
    if mark != _HEADER_MARK:
        return  # an old one: without segments, it is all flatbuffer
    # The segments' size came later than the rest of the header.
    size = max(program, segments + segments_size if length >= _HEADER.size else segments)
    if len(content) < size:
        raise NotFlatbuffer(f"it ends after {len(content):,} of {size:,} bytes")


def read_data(content: bytes, program: Table) -> ProgramData:
    """The data of ``program``, the outermost table of the file.  Raises :class:`NotFlatbuffer`."""
    segments = _segments(content, program)
    inline = tuple(each.length(_BYTES) for each in program.tables(_CONSTANT_BUFFER))
    constants = inline
    if program.has(_CONSTANT_SEGMENT):
        found = _subsegments("the weights", program.table(_CONSTANT_SEGMENT), segments)
        constants = found or inline
    mutable = tuple(
        _subsegments("the initial states", each, segments) for each in program.tables(_MUTABLE)
    )
    for each in program.tables(_NAMED):
        name, place = each.text(_NAMED_KEY), each.unsigned(_NAMED_SEGMENT)
        _check_segment(f"the data named {name!r}", place, segments)
    delegates = tuple(each.length(_BYTES) for each in program.tables(_DELEGATE_DATA))
    total = sum(segments) + sum(inline) + sum(delegates)
    return ProgramData(constants, mutable, delegates, segments, total)


def _segments(content: bytes, program: Table) -> tuple[int, ...]:
    """How many bytes each has."""
    mark, _, _, base, _ = _HEADER.unpack_from(content, _HEADER_AT)
    sizes = []
    for place, each in enumerate(program.tables(_SEGMENTS)):
        begin, size = base + each.unsigned_long(_SEGMENT_OFFSET), each.unsigned_long(_SEGMENT_SIZE)
        if size and mark != _HEADER_MARK:
            raise NotFlatbuffer("it has segments, and no header that says where they begin")
        if size and begin + size > len(content):
            raise NotFlatbuffer(
                f"segment {place} ends at byte {begin + size:,} of {len(content):,}"
            )
        sizes.append(size)
    return tuple(sizes)


def _subsegments(what: str, table: Table, segments: Sequence[int]) -> tuple[int, ...]:
    """How many bytes each part of a segment has room for, up to the segment's end."""
    offsets = table.longs(_SUBSEGMENTS_OFFSETS)
    if not offsets:
        return ()
    index = table.unsigned(_SUBSEGMENTS_INDEX)
    _check_segment(what, index, segments)
    size = segments[index]
    for place, offset in enumerate(offsets):
        if not 0 <= offset <= size:
            raise NotFlatbuffer(
                f"number {place} of {what} begins at byte {offset:,} of segment {index}, which has {size:,}"
            )
    return tuple(size - offset for offset in offsets)


def _check_segment(what: str, place: int, segments: Sequence[int]) -> None:
    if place >= len(segments):
        raise NotFlatbuffer(f"{what} lie in segment {place:,} of {len(segments):,}")
