"""opsmith brings a new accelerator's operators into PyTorch and ExecuTorch from one description.

``opsmith.load("sim")`` makes ``torch.ones(3, device="sim")`` work; ``opsmith --help`` lists the
commands.  Importing this package imports neither torch nor a compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from opsmith.errors import OpsmithError, Unsupported

if TYPE_CHECKING:
    from opsmith.runtime import load
    from opsmith.runtime.fallback_policy import fallback
    from opsmith.runtime.fallbacks import count_fallbacks, fallbacks
    from opsmith.runtime.trace import trace

__all__ = [
    "OpsmithError",
    "Unsupported",
    "count_fallbacks",
    "fallback",
    "fallbacks",
    "load",
    "trace",
]

_MODULES = {
    "count_fallbacks": "opsmith.runtime.fallbacks",
    "fallback": "opsmith.runtime.fallback_policy",
    "fallbacks": "opsmith.runtime.fallbacks",
    "load": "opsmith.runtime",
    "trace": "opsmith.runtime.trace",
}


def __getattr__(name: str) -> Any:
    # The lower rooms are imported without the runtime, which stands on all of them.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
