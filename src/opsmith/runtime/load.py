"""Loads a built backend into this process and gives PyTorch its device.

Builds it first where that is needed.  PyTorch has one slot for an out-of-tree device (PrivateUse1), so
a process loads one backend, once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opsmith.build.backend import BuiltBackend, build_backend
from opsmith.build.progress import Progress
from opsmith.description import find_backend
from opsmith.errors import DriverInvalid, LoadError, SlotTaken
from opsmith.plan import Plan, plan_backend

# What PyTorch calls the slot while nobody has named it.
_UNNAMED = "privateuseone"


@dataclass(frozen=True)
class LoadedBackend:
    """The backend that this process has loaded: its name, description file and libraries."""

    name: str
    description: Path
    built: BuiltBackend

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan that the loaded code was generated from."""
        return plan_backend(str(self.description), self.built.cache)


_loaded: LoadedBackend | None = None


def load(name: str = "sim", *, progress: Callable[[Progress], None] | None = None) -> LoadedBackend:
    """Makes the device of the backend ``name`` available to PyTorch, e.g. ``torch.ones(3, device="sim")``.

    ``name`` is a shipped backend, or the path of a ``backend.yaml``.  The first call on a machine
    builds it, which takes a minute or two; ``progress`` is told of each step.  A second call with the
    same name returns at once.

    Raises :class:`~opsmith.errors.OpsmithError`: a mistake in the description, a failed build, a driver
    that does not fit, or a slot that another backend has taken.
    """
    global _loaded
    description = find_backend(name)
    if _loaded is not None:
        if _loaded.description == description:
            return _loaded
        raise SlotTaken(
            f"the backend `{_loaded.name}` is loaded, and PyTorch has one slot for such a device",
            remedy=f"load `{name}` in a process of its own",
        )
    built = build_backend(description, progress=progress)
    _register(built)
    _loaded = LoadedBackend(built.name, description, built)
    return _loaded


def _register(built: BuiltBackend) -> None:
    import torch

    taken = torch._C._get_privateuse1_backend_name()
    if taken != _UNNAMED:
        raise SlotTaken(
            f"PyTorch's one slot for an out-of-tree device is taken by `{taken}`",
            remedy=f"load `{built.name}` in a process that does not import the package behind "
            f"`{taken}` (TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps such packages from loading themselves)",
        )
    try:
        torch.ops.load_library(str(built.library))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise LoadError(
            f"the built library of `{built.name}` cannot be loaded: {error}",
            remedy=f"remove {built.library} and build again: opsmith build {built.name}",
        ) from None
    try:
        torch.ops.opsmith.load_driver(str(built.driver), built.host_window)
    except RuntimeError as error:
        message, _, remedy = str(error).partition("\n  remedy: ")
        raise DriverInvalid(
            message,
            remedy=remedy.splitlines()[0] if remedy else "see docs/driver.md",
            location=built.driver_location,
        ) from None
    # Naming the slot comes last of what can fail: it cannot be undone.
    from torch.utils.backend_registration import (
        generate_methods_for_privateuse1_backend,
        rename_privateuse1_backend,
    )

    from opsmith.runtime.device_module import make_device_module

    rename_privateuse1_backend(built.name)
    torch._register_device_module(  # type: ignore[no-untyped-call]
        built.name, make_device_module(built.name)
    )
    generate_methods_for_privateuse1_backend()
