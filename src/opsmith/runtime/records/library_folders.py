"""The folders whose lines of Python are not the program's."""

from __future__ import annotations

import os

from opsmith.description.found import PACKAGE


def library_folders() -> tuple[str, ...]:
    """PyTorch's and opsmith's, each with a separator at its end."""
    import torch

    return tuple(f"{folder}{os.sep}" for folder in (*torch.__path__, PACKAGE))
