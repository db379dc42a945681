"""opsmith brings a new accelerator's operators into PyTorch and ExecuTorch from one description.

``opsmith.load("sim")`` makes ``torch.ones(3, device="sim")`` work; ``opsmith --help`` lists the
commands.  Importing this package imports neither torch nor a compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.base.on_demand import on_demand
from opsmith.errors import OpsmithError, Unsupported

if TYPE_CHECKING:
    from opsmith.runtime.load import load
    from opsmith.runtime.records.fallback_policy import fallback
    from opsmith.runtime.records.fallbacks import count_fallbacks, fallbacks
    from opsmith.runtime.records.trace.recording import trace
    from opsmith.runtime.vendor_autoload import autoload

__all__ = [
    "OpsmithError",
    "Unsupported",
    "autoload",
    "count_fallbacks",
    "fallback",
    "fallbacks",
    "load",
    "trace",
]

# The lower rooms are imported without the runtime, which stands on all of them.
__getattr__ = on_demand(
    __name__,
    {
        "runtime.records.fallback_policy": "fallback",
        "runtime.records.fallbacks": "count_fallbacks fallbacks",
        "runtime.load": "load",
        "runtime.records.trace.recording": "trace",
        "runtime.vendor_autoload": "autoload",
    },
)
