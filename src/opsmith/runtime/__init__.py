"""The Python side of a loaded device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.base.on_demand import on_demand

if TYPE_CHECKING:
    from opsmith.runtime.loaded import LoadedBackend

__all__ = ["LoadedBackend"]

# Every `import torch` looks for opsmith.runtime.autoload: that must not bring the rooms below.
__getattr__ = on_demand(__name__, {"loaded": "LoadedBackend"})
