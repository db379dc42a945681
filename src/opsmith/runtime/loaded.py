"""The backend that this process has loaded: :mod:`opsmith.runtime.load` sets it, the rest asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.errors import LoadError

if TYPE_CHECKING:
    from opsmith.runtime.load import LoadedBackend

_loaded: LoadedBackend | None = None
# Whether an installed package has loaded it at `import torch`, and no call of a program's.
_by_package = False

# The description that `load` loads now: importing torch calls the packages that load themselves.
_being_loaded: Path | None = None


@contextmanager
def being_loaded(description: Path) -> Iterator[None]:
    """While the block runs, this process loads the backend that ``description`` describes."""
    global _being_loaded
    before, _being_loaded = _being_loaded, description
    try:
        yield
    finally:
        _being_loaded = before


def description_in_hand() -> Path | None:
    """The description of what is loaded, or is about to be; None where neither is so."""
    return _loaded.description if _loaded else _being_loaded


def set_loaded_backend(backend: LoadedBackend, *, by_package: bool = False) -> None:
    """Says that this process has loaded ``backend``, which it does once, and whether a package did so."""
    global _loaded, _by_package
    _loaded, _by_package = backend, by_package


def is_loaded_by_package() -> bool:
    """Whether an installed package has loaded the backend at ``import torch``, unasked."""
    return _by_package


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
