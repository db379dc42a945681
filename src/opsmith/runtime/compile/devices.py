"""Functions of Inductor that know the devices of PyTorch, and have to know one more."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def guard_devices(device: str) -> None:
    """Has graphs make each index of ``device`` the current one where they run on it."""
    from opsmith.schema.torch_names import device_need_guard as of_others

    def device_need_guard(asked: str) -> bool:
        return asked == device or of_others(asked)

    replace_everywhere(device_need_guard)


def replace_everywhere(function: Callable[..., Any]) -> None:
    """Puts ``function`` in the place of that of its name, in each of Inductor's modules that has one."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("torch._inductor.") and hasattr(module, function.__name__):
            setattr(module, function.__name__, function)
