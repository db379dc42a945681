"""A package's names, each imported when it is first asked for.

For packages whose modules cost much to import, and which are imported on the way to one of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from opsmith.base.collector import collector_paused


def on_demand(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` (PEP 562) of ``package``, where ``names`` lists the names of each of its modules.

    No name may be that of a module of ``package``: whoever imports the module would put it in the place of
    the name.
    """

    modules = {
        name: f"{package}.{module}" for module, listed in names.items() for name in listed.split()
    }

    def find(name: str) -> Any:
        if name in modules:
            with collector_paused():
                module = importlib.import_module(modules[name])
            return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
