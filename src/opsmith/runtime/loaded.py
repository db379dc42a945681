"""The backend that this process has loaded: :mod:`opsmith.runtime.load` sets it, the rest asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.errors import LoadError

if TYPE_CHECKING:
    from opsmith.runtime.load import LoadedBackend

_loaded: LoadedBackend | None = None


def set_loaded_backend(backend: LoadedBackend) -> None:
    """Says that this process has loaded ``backend``, which it does once."""
    global _loaded
    _loaded = backend


def loaded_backend() -> LoadedBackend:
    """The backend that this process has loaded.  Raises :class:`LoadError` where there is none."""
    if _loaded is None:
        raise LoadError(
            "no backend is loaded, so nothing can have fallen back",
            remedy='call opsmith.load("sim"), or another backend, first',
        )
    return _loaded


def loaded_if_any() -> LoadedBackend | None:
    """The backend that this process has loaded; None where there is none."""
    return _loaded
