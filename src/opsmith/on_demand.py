"""A package's names, each imported when it is first asked for.

For packages whose modules cost much to import, and which are imported on the way to one of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from opsmith.collector import collector_paused


def on_demand(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` (PEP 562) of ``package``, where ``modules`` says which module has which name."""

    def find(name: str) -> Any:
        if name in modules:
            with collector_paused():
                module = importlib.import_module(modules[name])
            return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
