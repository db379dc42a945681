"""The ``torch.backends`` entry point: ``import torch`` alone brings the device, or starts a trace.

PyTorch calls :func:`autoload` at the end of its own import.  It does nothing unless the environment
variable ``OPSMITH_AUTOLOAD`` names a backend, or ``opsmith trace`` runs the program.  Who sets the variable
asks for the device as a call of ``opsmith.load`` does: what is not built is built, which stderr tells, and
where the device cannot be had, ``import torch`` raises.
"""

from __future__ import annotations

import os

from opsmith.runtime.records import trace

VARIABLE = "OPSMITH_AUTOLOAD"
TORCH_VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""PyTorch's: with 0 in it no entry point is called."""


def autoload() -> None:
    """Loads the backend that ``OPSMITH_AUTOLOAD`` names; builds and raises as :func:`opsmith.load` does."""
    name = os.environ.get(VARIABLE)
    if name:
        import opsmith
        from opsmith.description import find_backend
        from opsmith.runtime.loaded import description_in_hand

        if description_in_hand() != find_backend(name):  # the program's own call goes on otherwise
            opsmith.load(name)
    if os.environ.get(trace.VARIABLE):
        from opsmith.runtime.records.trace import recording

        recording.start()
