"""PyTorch's own names, looked up in the installed torch when they are asked for."""

from __future__ import annotations

import importlib
import importlib.metadata
from operator import attrgetter
from types import ModuleType
from typing import Any

from opsmith.errors import TorchNameMissing
from opsmith.schema.torch_names.features import Feature
from opsmith.schema.torch_names.table import TORCH_NAMES, TorchName


def find(name: str) -> Any:
    """The object that opsmith calls ``name``, a member as ``Class.member``.

    Raises :class:`~opsmith.errors.TorchNameMissing`, and KeyError for a name that is not in the table.
    """
    wanted = TORCH_NAMES[name]
    for attribute in filter(None, (wanted.attribute, wanted.before)):
        try:
            return _found(wanted.module, attribute)
        except (AttributeError, ModuleNotFoundError) as error:
            if not _is_missing(wanted.module, attribute, error):
                raise
    raise _missing(wanted)


def require(feature: Feature) -> None:
    """Raises :class:`~opsmith.errors.TorchNameMissing` for the first name of ``feature`` that is missing."""
    for each in TORCH_NAMES.values():
        if each.feature is feature:
            find(each.name)


def has(name: str) -> bool:
    """Whether the installed torch has ``name``; imports its module."""
    try:
        find(name)
    except TorchNameMissing:
        return False
    return True


def replace(name: str, value: Any) -> None:
    """Puts ``value`` in the place of ``name`` in its module or class; raises as :func:`find`."""
    find(name)
    wanted = TORCH_NAMES[name]
    *within, last = wanted.attribute.split(".")
    owner: Any = importlib.import_module(wanted.module)
    setattr(attrgetter(".".join(within))(owner) if within else owner, last, value)


def module_of(name: str) -> str:
    """The module that has ``name``, which need not be imported."""
    return TORCH_NAMES[name].module


def _found(module: str, attribute: str) -> Any:
    owner = importlib.import_module(module)
    try:
        return attrgetter(attribute)(owner)
    except AttributeError:
        # A submodule that nothing has imported yet.
        if isinstance(owner, ModuleType) and hasattr(owner, "__path__"):
            return importlib.import_module(f"{module}.{attribute}")
        raise


def _is_missing(module: str, attribute: str, error: Exception) -> bool:
    """Whether ``error`` says that PyTorch lacks the name, and not that it lacks another package."""
    if isinstance(error, ModuleNotFoundError):
        return f"{module}.{attribute}.".startswith(f"{error.name}.")
    return True


def _missing(wanted: TorchName) -> TorchNameMissing:
    version = importlib.metadata.version("torch")
    since = f"{wanted.since[0]}.{wanted.since[1]}" if wanted.since else ""
    return TorchNameMissing(
        f"torch {version} has no {wanted.qualified}: {wanted.lost}",
        remedy=f"pip install 'torch>={since}'"
        if since
        else "use a release of torch that `opsmith doctor` knows",
    )
