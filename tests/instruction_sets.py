"""The instruction sets that vectorised sources are compiled for, and which of them this processor has."""

from __future__ import annotations

import os

import pytest

from opsmith.build.lean import supported_instruction_sets

SUPPORTED = list(supported_instruction_sets())
"""Those of this processor, the widest last; it refuses others where ``OPSMITH_ISA`` names them."""


def skip_unsupported() -> None:
    """Skips the file that is being imported where the processor lacks what ``OPSMITH_ISA`` names."""
    name = os.environ["OPSMITH_ISA"]
    if name and name not in SUPPORTED:
        pytest.skip(f"this processor has no {name}", allow_module_level=True)
