"""The backend that a run is about, by ``OPSMITH_TEST_BACKEND``: one of this folder's descriptions."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import opsmith

MODE = os.environ["OPSMITH_TEST_BACKEND"]  # "zero_copy" or "copying"
DEVICE = "sim"
LOADED = opsmith.load(str(Path(__file__).with_name(f"{MODE}.yaml")))
DRIVER = ctypes.CDLL(str(LOADED.built.driver))


class Statistics(ctypes.Structure):
    """``opsmith_sim_device_statistics`` of drivers/sim/sim.h."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "allocations",
            "releases",
            "live_bytes",
            "peak_bytes",
            "kept_bytes",
            "streams",
            "threads",
        )
    ]


def statistics(device: int = 0) -> Statistics:
    found = Statistics()
    assert DRIVER.opsmith_sim_statistics(device, ctypes.byref(found)) == 0
    return found


@contextmanager
def fault(name: str, count: int = 1) -> Iterator[None]:
    """Within it, the driver fails as docs/describe/driver.md says; nothing is injected afterwards."""
    assert DRIVER.opsmith_sim_inject(name.encode(), ctypes.c_long(count)) == 0
    try:
        yield
    finally:
        DRIVER.opsmith_sim_clear_faults()
