"""The random numbers of a device, which a load has to know too."""

from __future__ import annotations

from enum import Enum


class Rng(Enum):
    """Which random numbers a device's generators give."""

    PHILOX = "philox"
    """Those of a counter-based generator with a seed and an offset, as other accelerators have."""
    CPU = "cpu"
    """Those that the CPU's generator gives for the same seed."""
