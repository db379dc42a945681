"""Tensors that ``torch.load`` restores as wrappers of others, torchao's say: their device has its index.

``map_location="<device>"`` gives the Tensors within the current index, and PyTorch gives the wrapper the
device as it was named, on its own devices too; the two do not compare equal then.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch

from opsmith.schema.torch_names import find, replace


def restore_to_an_index(device: str) -> None:
    """Has wrappers that are loaded to ``device`` be on its current index where none is named."""
    name = "_get_restore_location"
    of_others = find(name)

    @wraps(of_others)
    def _get_restore_location(saved: Any) -> Any:
        place = of_others(saved)
        if isinstance(place, str | torch.device) and str(place) == device:
            return torch.device(device, torch.accelerator.current_device_index())
        return place

    replace(name, _get_restore_location)
