"""Imports the Python modules that define operators which kernel libraries implement.

Some of them end the process where they find their operators defined by others, so they come before a
library is loaded or a program lowered.  Called by ``load`` and by ``executorch``.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable

from opsmith.description import ExternalNamespace

# The operators that pt2e writes into a graph; PyTorch defines them in Python, when somebody imports this.
WRITTEN_BY_PT2E = "torch.ao.quantization.fx._decomposed"


def import_defining_modules(namespaces: Iterable[ExternalNamespace]) -> None:
    """Imports the modules of ``namespaces``.  Those that are not installed define nothing."""
    for each in namespaces:
        for module in each.modules:
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(module)
