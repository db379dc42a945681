"""The host's memory at an address, for drivers in Python: what ``copy`` is given as a number."""

from __future__ import annotations

import ctypes


def host_bytes(address: int, nbytes: int) -> memoryview:
    """The ``nbytes`` bytes of host memory at ``address``, to be read and written in place.

    ``numpy.frombuffer(host_bytes(address, nbytes), numpy.uint8)`` is an array of them.  Nothing is copied
    and nothing is kept alive: it is for use within the call that was given the address.
    """
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")
