"""``DataLoader(pin_memory=True)`` with a driver without pinned memory: batches stay in pageable memory.

PyTorch does the same, with a warning, for MPS, which it knows by name.  Libraries ask for pinned batches on
any accelerator (``TrainingArguments.dataloader_pin_memory`` is True), and a device that is being brought up
would fail in the first of them.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any


def leave_batches_unpinned(device_type: str) -> None:
    """Has loaders ignore ``pin_memory`` while ``device_type`` is the accelerator, with a warning."""
    import torch
    from torch.utils.data import DataLoader

    iterate = DataLoader.__iter__

    @functools.wraps(iterate)
    def unpinned(self: DataLoader[Any]) -> Any:
        accelerator = torch.accelerator.current_accelerator()
        if not self.pin_memory or accelerator is None or accelerator.type != device_type:
            return iterate(self)
        warnings.warn(
            f"'pin_memory' is ignored: the driver of the {device_type} device offers no pinned host memory",
            stacklevel=2,
        )
        self.pin_memory = False
        try:
            return iterate(self)
        finally:
            self.pin_memory = True

    DataLoader.__iter__ = unpinned  # type: ignore[method-assign]
