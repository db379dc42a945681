"""The ``torch.backends`` entry point: ``import torch`` alone brings the device.

PyTorch calls :func:`autoload` at the end of its own import.  It does nothing unless the environment
variable ``OPSMITH_AUTOLOAD`` names a backend.
"""

from __future__ import annotations

import os

VARIABLE = "OPSMITH_AUTOLOAD"


def autoload() -> None:
    """Loads the backend that ``OPSMITH_AUTOLOAD`` names; raises as :func:`opsmith.load` does."""
    name = os.environ.get(VARIABLE)
    if name:
        from opsmith.runtime.load import load

        load(name)
