"""Imports of torch that fail, told to people: a wheel for CUDA needs libraries of other packages."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opsmith.errors import LoadError


@contextmanager
def explained_torch_import() -> Iterator[None]:
    """Raises :class:`~opsmith.errors.LoadError` for an import of torch in the block that fails."""
    try:
        yield
    except (ImportError, OSError, ValueError) as error:
        files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
        if not any(Path(file).parts[-2:] == ("torch", "__init__.py") for file in files):
            raise
        # Here: neither commands nor a device in a package need the schemas to start.
        from opsmith.schema import torch_version

        version = torch_version()
        raise LoadError(
            f"torch {version} cannot be imported: {error}", remedy=reinstalled(version)
        ) from error


def reinstalled(version: str) -> str:
    """The remedy for a torch ``version`` that lacks a library of its own or of a package that it requires."""
    return f"pip install --force-reinstall torch=={version}, with the packages that it requires"
