"""The ``torch.backends`` entry point: ``import torch`` alone brings the device, or starts a trace.

PyTorch calls :func:`autoload` at the end of its own import.  It does nothing unless the environment
variable ``OPSMITH_AUTOLOAD`` names a backend, or ``opsmith trace`` runs the program.
"""

from __future__ import annotations

import os

VARIABLE = "OPSMITH_AUTOLOAD"
TRACE_VARIABLE = "OPSMITH_TRACE"
"""A folder: the process records there what it does, as ``request.json`` in it says."""


def autoload() -> None:
    """Loads the backend that ``OPSMITH_AUTOLOAD`` names; raises as :func:`opsmith.load` does."""
    name = os.environ.get(VARIABLE)
    if name:
        from opsmith.runtime.load import load

        load(name)
    if os.environ.get(TRACE_VARIABLE):
        from opsmith.runtime import trace

        trace.start()
