"""Traces: what goes through PyTorch's dispatcher, recorded, read and shown.

Every ``import torch`` imports this through :mod:`opsmith.runtime.autoload`: it brings nothing else.
"""

VARIABLE = "OPSMITH_TRACE"
"""Names a folder: the process records there what it does, as ``request.json`` in it says."""
