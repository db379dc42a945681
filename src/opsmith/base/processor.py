"""The processor of this machine."""

from __future__ import annotations

from pathlib import Path


def processor_features() -> set[str]:
    """The instruction sets of this machine's processor, as ``/proc/cpuinfo`` names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return set(flags.partition(":")[2].split())
