"""How long ago this process was started, Python's own start and all imports included."""

from __future__ import annotations

import os
import time
from pathlib import Path

# The 22nd field of proc(5)'s stat, counted from the one after the program's name.
_START_TICKS = 19


def process_age() -> float:
    """Seconds since this process was started, to 10 ms."""
    # The name stands in brackets, and may hold some itself.
    _, _, fields = Path("/proc/self/stat").read_text().rpartition(")")
    started = int(fields.split()[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
