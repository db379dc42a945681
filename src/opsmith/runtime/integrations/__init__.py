"""The device in libraries that choose devices by name: accelerate, safetensors, transformers and Lightning.

They know a list of names, find none of them, and take the CPU without a word.  :func:`opsmith.load` calls
:func:`follow_imports`, so that they find the loaded device once they are imported, now or later.
``OPSMITH_INTEGRATIONS=off`` keeps them as they are; then :func:`accelerate`, :func:`safetensors`,
:func:`transformers` and :func:`lightning` do the same for one library.  What each changes is in the module of
its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.base.on_demand import on_demand

if TYPE_CHECKING:
    from opsmith.runtime.integrations.libraries import (
        IntegrationWarning,
        accelerate,
        are_wanted,
        follow_imports,
        lightning,
        safetensors,
        transformers,
    )

__all__ = [
    "IntegrationWarning",
    "accelerate",
    "are_wanted",
    "follow_imports",
    "lightning",
    "safetensors",
    "transformers",
]

__getattr__ = on_demand(__name__, {"libraries": " ".join(__all__)})
