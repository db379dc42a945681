"""The sim driver through its table, with the faults and the statistics of sim.h: no PyTorch in between."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_size_t, c_uint64

from opsmith.driver import DriverFailure, OpenedDriver, Status


class Statistics(ctypes.Structure):
    """``opsmith_sim_device_statistics`` of drivers/sim/sim.h."""

    _fields_ = [
        (name, c_uint64)
        for name in "allocations releases live_bytes peak_bytes kept_bytes streams threads pinned".split()
    ]


class SimDriver(OpenedDriver):
    """The sim driver's entries, and what sim.h adds."""

    def inject(self, fault: str, count: int = 1) -> None:
        if self.library.opsmith_sim_inject(fault.encode(), ctypes.c_long(count)) != 0:
            raise DriverFailure("inject", Status.INVALID_ARGUMENT, self.last_error())

    def calls_of(self, fault: str) -> int:
        """That met ``fault`` since it was injected, up to the last that failed."""
        count = self.library.opsmith_sim_injected_calls
        count.restype = ctypes.c_long
        return int(count(fault.encode()))

    def clear_faults(self) -> None:
        self.library.opsmith_sim_clear_faults()

    def statistics(self, device: int = 0) -> Statistics:
        statistics = Statistics()
        if self.library.opsmith_sim_statistics(device, ctypes.byref(statistics)) != 0:
            raise DriverFailure("statistics", Status.INVALID_ARGUMENT, self.last_error())
        return statistics

    @contextmanager
    def recorded_ranges(self) -> Iterator[list[str]]:
        """The ranges that threads open (``+text``) and close (``-``) within it; filled at its end."""
        lines: list[str] = []
        read = self.library.opsmith_sim_recorded_ranges
        read.argtypes, read.restype = [ctypes.c_char_p, c_size_t], c_size_t
        self.library.opsmith_sim_record_ranges(1)
        try:
            yield lines
        finally:
            self.library.opsmith_sim_record_ranges(0)
            text = ctypes.create_string_buffer(read(None, 0) + 1)
            read(text, len(text))
            lines += text.value.decode().splitlines()
