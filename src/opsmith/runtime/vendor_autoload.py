"""``opsmith.autoload``: what a vendor's package calls at the end of ``import torch``.

It loads the device that the package describes, and never makes ``import torch`` fail: what is wrong is one
warning, with its reason and remedy.  In processes of opsmith's own it does nothing, since those choose
their backend themselves.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from opsmith.errors import OpsmithError
from opsmith.runtime.autoload import VARIABLE


class AutoloadWarning(RuntimeWarning):
    """A device that was to come with ``import torch`` has not come, and why."""


_told: set[Path] = set()


def autoload(description: Path | str, *, modules: Sequence[str] = ()) -> None:
    """Loads the backend that the file ``description`` describes; for entry points of ``torch.backends``.

    ``modules`` are imported once it is loaded: those that register kernels in Python.  Who calls
    ``opsmith.load`` before torch is imported imports them too.
    Libraries that lie ready built beside the description are used where they fit this process, and built
    otherwise.  Raises nothing: whatever keeps the device from being loaded is told once by an
    :class:`AutoloadWarning`.
    """
    path = Path(description).absolute()
    if _is_own_process():
        return
    try:
        reason = _obstacle(path) or _load(path, modules)
    except OpsmithError as error:
        reason = str(error)
    except Exception as error:
        reason = (
            f"{type(error).__name__}: {error}\n  remedy: see the whole error: "
            f"TORCH_DEVICE_BACKEND_AUTOLOAD=0 python -c 'import opsmith; opsmith.load(\"{path}\")'"
        )
    if reason:
        _warn(path, reason)


def _obstacle(description: Path) -> str:
    """Why this process does not want the backend, or cannot have it; empty where nothing is in the way."""
    from opsmith.description import find_backend
    from opsmith.runtime.loaded import description_in_hand

    if not description.is_file():
        return (
            "there is no such file\n  remedy: install the package again; where it is your own, see that "
            "its wheel carries the YAML files"
        )
    found = description.resolve()
    if (named := os.environ.get(VARIABLE)) and find_backend(named) != found:
        return f"{VARIABLE} names another backend, `{named}`\n  remedy: unset {VARIABLE} to have this one"
    other = description_in_hand()
    if other is not None and other != found:
        return (
            f"another backend is loaded, {other}, and PyTorch has one slot for such a device\n"
            "  remedy: uninstall one of the packages that bring a device, or name the one to load: "
            f"{VARIABLE}={description}"
        )
    return ""


def _load(description: Path, modules: Sequence[str]) -> str:
    from opsmith.runtime.load import load
    from opsmith.runtime.loaded import description_in_hand, loaded_if_any

    # Called within opsmith.load itself, where that is what imports torch, it leaves the rest to it.
    if description_in_hand() != description.resolve():
        load(str(description))
    if loaded_if_any() is not None:
        for module in modules:
            importlib.import_module(module)
    return ""


def _is_own_process() -> bool:
    """Whether this is a command of opsmith's, or a process that one has started for itself."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "opsmith.cli.main" in sys.modules or (
        started is not None and started.name.partition(".")[0] == "opsmith"
    )


def _warn(description: Path, reason: str) -> None:
    if description in _told:
        return
    _told.add(description)
    text = f"the device of {description} was not loaded: {reason}"
    try:
        # The line that is named is the package's own call.
        warnings.warn(text, AutoloadWarning, stacklevel=3)
    except AutoloadWarning:
        # Warnings are errors in this process, which is no reason to have no torch.
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(f"opsmith: {text}\n")
