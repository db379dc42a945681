"""The instruction sets that vectorised sources are compiled for, and which of them this processor has."""

from __future__ import annotations

import os

import pytest

from opsmith.build.lean import instruction_sets
from opsmith.processor import processor_features

_FLAGS = {
    "baseline": set(),
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512f", "avx512bw", "avx512_vnni"},
    "neon": {"asimd"},
}
SUPPORTED = [name for name in instruction_sets() if _FLAGS[name] <= processor_features()]
"""Those of this processor, the widest last; it refuses others where ``OPSMITH_ISA`` names them."""


def skip_unsupported() -> None:
    """Skips the file that is being imported where the processor lacks what ``OPSMITH_ISA`` names."""
    name = os.environ["OPSMITH_ISA"]
    if name and name not in SUPPORTED:
        pytest.skip(f"this processor has no {name}", allow_module_level=True)
