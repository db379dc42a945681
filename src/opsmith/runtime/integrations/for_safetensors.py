"""safetensors: tensors that are loaded straight to the device, whose name it does not know."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from opsmith.runtime.integrations.parts import replace_function


def _open_on_the_device(module: ModuleType, device: str) -> None:
    """``safe_open``, ``load_file`` and ``load_model``: they take the index, and PyTorch the device for it."""
    import torch

    def make(before: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(before, updated=())
        def safe_open(filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
            return before(filename, framework, index_or(device), **options)

        return safe_open

    def index_or(place: Any) -> Any:
        if str(place).partition(":")[0] != device:
            return place
        index = torch.device(place).index
        return torch.accelerator.current_device_index() if index is None else index

    replace_function(module, "safe_open", make)


CHANGES = {"safetensors": _open_on_the_device}
