"""The sim driver through its table, with the faults and the statistics of sim.h: no PyTorch in between."""

from __future__ import annotations

import ctypes
from ctypes import c_uint64

from opsmith.driver import DriverFailure, OpenedDriver, Status


class Statistics(ctypes.Structure):
    """``opsmith_sim_device_statistics`` of drivers/sim/sim.h."""

    _fields_ = [
        (name, c_uint64)
        for name in "allocations releases live_bytes peak_bytes kept_bytes streams threads".split()
    ]


class SimDriver(OpenedDriver):
    """The sim driver's entries, and what sim.h adds."""

    def inject(self, fault: str, count: int = 1) -> None:
        if self.library.opsmith_sim_inject(fault.encode(), ctypes.c_long(count)) != 0:
            raise DriverFailure("inject", Status.INVALID_ARGUMENT, self.last_error())

    def clear_faults(self) -> None:
        self.library.opsmith_sim_clear_faults()

    def statistics(self, device: int = 0) -> Statistics:
        statistics = Statistics()
        if self.library.opsmith_sim_statistics(device, ctypes.byref(statistics)) != 0:
            raise DriverFailure("statistics", Status.INVALID_ARGUMENT, self.last_error())
        return statistics
