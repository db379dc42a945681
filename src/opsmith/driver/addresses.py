"""Addresses for the memory of a device that the host cannot address.

A driver in Python keeps its device's memory where it likes, say in a numpy array, and has to hand out
addresses for it.  These are reserved in the process and belong to nobody else; host code that touches one
ends at once, as with a real device, where a made-up number might be memory of the host.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import threading

from opsmith.driver.failures import InvalidArgument, OutOfMemory

_PROT_NONE = 0


def _reserved(nbytes: int) -> int:
    """The first of ``nbytes`` addresses that nobody may touch; they take no memory, and stay reserved.

    Python's own ``mmap`` does not tell the address of pages that cannot be written.
    """
    reserve = ctypes.CDLL(None).mmap
    reserve.restype = ctypes.c_void_p
    kinds = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    reserve.argtypes = kinds
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    first: int | None = reserve(None, nbytes, _PROT_NONE, flags, -1, 0)
    if first is None or first == ctypes.c_void_p(-1).value:
        raise OutOfMemory(f"{nbytes} addresses cannot be reserved in this process")
    return first


class AddressRange:
    """``nbytes`` addresses, given out in blocks: the first gap that is large enough.

    ``offset`` says how far from the start an address lies: the place in the array that holds the bytes.
    Safe to use from several threads.
    """

    def __init__(self, nbytes: int, alignment: int = 64) -> None:
        if nbytes <= 0 or alignment <= 0 or alignment & (alignment - 1):
            raise InvalidArgument(
                f"{nbytes} bytes at multiples of {alignment} are no range of addresses",
                remedy="give a positive size, and a power of two as alignment",
            )
        self.nbytes = nbytes
        self.alignment = alignment
        first = _reserved(nbytes + alignment)
        self.start = (first + alignment - 1) // alignment * alignment
        self._lock = threading.Lock()
        self._offsets: list[int] = []  # of the live blocks, sorted
        self._sizes: dict[int, int] = {}  # by offset, as they were asked for
        self.live_bytes = 0

    def allocate(self, nbytes: int) -> int:
        """The address of a new block.  Raises :class:`OutOfMemory` where no gap is large enough."""
        with self._lock:
            place = 0
            for offset in self._offsets:
                if offset - place >= nbytes:
                    break
                place = offset + self._rounded(self._sizes[offset])
            if self.nbytes - place < nbytes:
                free = self.nbytes - self.live_bytes
                raise OutOfMemory(f"{nbytes} bytes do not fit: {free} of {self.nbytes} are free")
            bisect.insort(self._offsets, place)
            self._sizes[place] = nbytes
            self.live_bytes += nbytes
        return self.start + place

    def release(self, address: int) -> None:
        """Ends a block.  Raises :class:`InvalidArgument` where none starts at ``address``."""
        with self._lock:
            nbytes = self._sizes.pop(address - self.start, None)
            if nbytes is None:
                raise InvalidArgument(f"{address:#x} is not the start of a live allocation")
            del self._offsets[bisect.bisect_left(self._offsets, address - self.start)]
            self.live_bytes -= nbytes

    def offset(self, address: int, nbytes: int) -> int:
        """How far ``address`` lies from the start of the range.

        Raises :class:`InvalidArgument` unless ``nbytes`` bytes from there lie within one live block.
        """
        offset = address - self.start
        with self._lock:
            index = bisect.bisect_right(self._offsets, offset) - 1
            start = self._offsets[index] if index >= 0 else -1
            if start < 0 or offset + nbytes > start + self._sizes[start]:
                raise InvalidArgument(
                    f"{nbytes} bytes at {address:#x} do not lie in an allocation of the device"
                )
        return offset

    def _rounded(self, nbytes: int) -> int:
        return (nbytes + self.alignment - 1) // self.alignment * self.alignment
