"""PyTorch's one slot for an out-of-tree device, PrivateUse1: who has taken it, as errors say it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.description import find_backend, package_of_description, package_of_module
from opsmith.errors import BackendUnknown, SlotTaken
from opsmith.runtime.autoload import VARIABLE
from opsmith.runtime.loaded import is_loaded_by_package

if TYPE_CHECKING:
    from opsmith.runtime.loaded import LoadedBackend

# PyTorch's name of the slot while nobody has named it.
_UNNAMED = "privateuseone"


def check_slot(wanted: str) -> None:
    """Raises :class:`SlotTaken` where a device that is not opsmith's has PyTorch's slot; imports torch."""
    import torch

    from opsmith.schema.torch_names import _get_privateuse1_backend_name

    taken = _get_privateuse1_backend_name()
    if taken == _UNNAMED:
        return
    module = getattr(getattr(torch, taken, None), "__name__", "")
    package = package_of_module(module)
    raise SlotTaken(
        f"PyTorch's one slot for an out-of-tree device is taken by `{taken}`"
        + (f", which {package} brings" if package else ""),
        remedy=f"load `{wanted}` in a process that does not import "
        f"{module.partition('.')[0] if package else f'the package behind `{taken}`'} "
        "(TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps such packages from loading themselves)",
    )


def taken_by(earlier: LoadedBackend, wanted: str) -> SlotTaken:
    """The error of who wants ``wanted`` where ``earlier`` is loaded: how that came, and how to prevent it."""
    message = f"the backend `{earlier.name}` is loaded, and PyTorch has one slot for such a device"
    remedy = f"load `{wanted}` in a process of its own"
    if _is_named_by_environment(earlier.description):
        message += f": {VARIABLE} names it"
        remedy = f"unset {VARIABLE}, or set it to {wanted}"
    elif is_loaded_by_package():
        package = package_of_description(earlier.description) or str(earlier.description)
        message += f": {package} loaded it when torch was imported"
        remedy = (
            f'call opsmith.load("{wanted}") before torch is imported, or set '
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0, with which no package loads itself"
        )
    return SlotTaken(message, remedy=remedy)


def _is_named_by_environment(description: Path) -> bool:
    named = os.environ.get(VARIABLE)
    try:
        return bool(named) and find_backend(str(named)) == description
    except BackendUnknown:
        return False
