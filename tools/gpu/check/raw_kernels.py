"""Kernels launched through a driver's own functions of ``opsmith_compute.h``, without PyTorch.

Two that no operator has: one that takes as long as it is told, and one that writes where no memory is.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_ulong, c_void_p

from opsmith.driver.opened import table_of

SOURCE = b"""
KERNEL void spin(BUFFER(uint, out), ulong rounds) {
  uint x = (uint)GLOBAL_ITEM(0);
  for (ulong i = 0; i < rounds; ++i) x = x * 1664525u + 1013904223u;
  POINTER(uint, out)[0] = x;
}
KERNEL void fault(BUFFER(uint, out)) { *(volatile uint*)8 = 1; }
"""


class _Argument(ctypes.Structure):
    _fields_ = (("value", c_void_p), ("size", c_size_t))


class RawKernels:
    """Both kernels on ``device``; ``out`` is memory of it, of 4 bytes.

    Where the driver fails, raises RuntimeError with what it says.
    """

    def __init__(self, library: ctypes.CDLL, device: int, out: int) -> None:
        self._library, self._out = library, out
        library.opsmith_compute_dialect.restype = c_char_p
        source = library.opsmith_compute_dialect() + SOURCE
        self._kernels = {}
        for name in ("spin", "fault"):
            self._kernels[name] = c_void_p()
            found = ctypes.byref(self._kernels[name])
            self._check(library.opsmith_compute_compile(device, source, name.encode(), found))

    def spin(self, stream: int, rounds: int, groups: int = 1) -> None:
        """Queues ``groups`` groups of 32 items that multiply and add ``rounds`` times."""
        count = c_ulong(rounds)
        self._launch("spin", stream, groups, _Argument(ctypes.addressof(count), 8))

    def fault(self, stream: int) -> None:
        """Queues the kernel after which the device is lost."""
        self._launch("fault", stream, 1)

    def _launch(self, name: str, stream: int, groups: int, *more: _Argument) -> None:
        given = (_Argument(self._out, 0), *more)
        size = c_size_t * 3
        self._check(
            self._library.opsmith_compute_launch(
                self._kernels[name],
                c_void_p(stream),
                size(groups, 1, 1),
                size(32, 1, 1),
                (_Argument * len(given))(*given),
                c_int(len(given)),
            )
        )

    def _check(self, status: int) -> None:
        if status:
            text = table_of(self._library, "the driver").last_error()
            raise RuntimeError(ctypes.string_at(text).decode())
