"""opsmith brings a new accelerator's operators into PyTorch and ExecuTorch from one description.

``opsmith.load("sim")`` makes ``torch.ones(3, device="sim")`` work; ``opsmith --help`` lists the
commands.  Importing this package imports neither torch nor a compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opsmith.errors import OpsmithError

if TYPE_CHECKING:
    from opsmith.runtime import load

__all__ = ["OpsmithError", "load"]


def __getattr__(name: str) -> Any:
    # The lower rooms are imported without the runtime, which stands on all of them.
    if name == "load":
        from opsmith.runtime import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
