"""The installed torch's version, its minor release, and the releases whose compiled code fits it.

Reads the distribution's metadata; never imports torch.
"""

from __future__ import annotations

import importlib.metadata
import re

from opsmith.errors import LoadError

KNOWN_RELEASES = ((2, 9), (2, 10), (2, 11), (2, 12), (2, 13), (2, 14), (2, 15))
"""The minor releases of torch that opsmith is tested with, oldest first."""

_RELEASED = re.compile(r"(\d+\.\d+)\.\d+(?:\.post\d+)?(?:\+(?:cpu|cu\d+|rocm[\d.]+|xpu))?")


def torch_version() -> str:
    """The installed torch's version, e.g. ``2.13.0+cpu``.

    Raises :class:`~opsmith.errors.LoadError` when torch is not installed.
    """
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise LoadError(
            "PyTorch is not installed in this environment", remedy="pip install torch==2.13.0"
        ) from None


def torch_release() -> tuple[int, int]:
    """The installed torch's minor release, e.g. ``(2, 13)`` of ``2.13.0+cpu`` or ``2.13.0a0+git1234``.

    Raises :class:`~opsmith.errors.LoadError` when torch is not installed, or has no such version.
    """
    version = torch_version()
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        raise LoadError(
            f"torch says that its version is `{version}`",
            remedy="pip install --force-reinstall torch",
        )
    return int(numbers[1]), int(numbers[2])


def compiled_for(version: str) -> str:
    """The torch that code compiled against ``version`` fits: ``2.13`` for all releases 2.13.x.

    Their C++ interface is one, whichever accelerator a wheel is for: ``2.13.1+cu130`` and ``2.13.0+cpu`` give
    the same.  A nightly build or one from source, ``2.13.0a0+git1234``, fits only itself.
    """
    released = _RELEASED.fullmatch(version)
    return released[1] if released else version


def requirement(torch: str) -> str:
    """The requirement, ``torch==2.13.*``, of code that was compiled for ``torch``, ``2.13``."""
    return f"torch=={torch}.*" if re.fullmatch(r"\d+\.\d+", torch) else f"torch=={torch}"
