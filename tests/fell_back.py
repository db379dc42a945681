"""The operators that fell back, without those that kernels computed on the host, on copies."""

from __future__ import annotations

from opsmith.runtime.records.fallbacks import Fallbacks


def fell_back(counted: Fallbacks) -> set[str]:
    """The operators of ``counted`` that fell back in some call."""
    return {each.operator for each in counted.counts if each.calls > each.kernel_calls}
