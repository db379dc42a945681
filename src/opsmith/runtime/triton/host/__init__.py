"""Triton for this processor: a compiler backend ``host`` and its driver, which chips' own begin with."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def backend() -> Any:
    """The two as Triton lists them, in ``triton.backends.backends``."""
    # Here: they need Triton.
    from triton.backends import Backend

    from opsmith.runtime.triton.host import libdevice
    from opsmith.runtime.triton.host.compiler import HostCompiler
    from opsmith.runtime.triton.host.driver import HostDriver

    # Where libraries of kernels look for a backend's.
    extra = "triton.language.extra.host"
    sys.modules[extra] = ModuleType(extra)
    sys.modules[f"{extra}.libdevice"] = libdevice

    return Backend(HostCompiler, HostDriver)
