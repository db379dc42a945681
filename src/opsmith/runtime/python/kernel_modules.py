"""The Python modules that a manifest's kernels lie in and need; errors for missing ones and refused calls."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from opsmith.description import Kernel
from opsmith.driver.named import imported
from opsmith.errors import KernelRejected, Unsupported, nearest


def needed(kernel: Kernel, module: str, whose: str, package: str) -> ModuleType:
    """The ``module`` without which ``kernel`` does not run, of what people call ``whose``."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise KernelRejected(
            f"`{kernel.symbol}`, the kernel of `{kernel.operator}`, needs {whose}, which cannot be imported: "
            f"{error}",
            location=kernel.location,
            remedy=f"pip install {package}",
        ) from error


def module_of(
    kernel: Kernel, name: str, imported: Callable[[Path | str], ModuleType] = imported
) -> ModuleType:
    """The Python module ``name``, a file or a module's name, which has ``kernel``."""
    try:
        return imported(Path(name) if name.endswith(".py") else name)
    except Exception as error:
        raise KernelRejected(
            f"`{name}`, which has the kernel of `{kernel.operator}`, cannot be imported: "
            f"{type(error).__name__}: {error}",
            location=kernel.location,
            remedy="name a file relative to the manifest (kernels.py), or a module that Python finds",
        ) from error


def absent(kernel: Kernel, module: ModuleType, source: str, name: str) -> KernelRejected:
    """The error for a ``module`` that has no ``name``."""
    names: Sequence[str] = [each for each in vars(module) if not each.startswith("_")]
    return KernelRejected(
        f"`{source}` has no `{name}`, the kernel of `{kernel.operator}`{nearest(name, names)}",
        location=kernel.location,
        remedy="define it there, or name another",
    )


def refusal(kernel: Kernel, message: str) -> Unsupported:
    """The error for a call that ``kernel`` does not take, for the reason ``message``."""
    return Unsupported(
        message,
        location=kernel.location,
        remedy="limit the entry to the dtypes that it takes (`dtypes`), or let other kernels serve such "
        "calls (`on_error: fallback`)",
    )
