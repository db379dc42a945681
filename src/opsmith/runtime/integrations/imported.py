"""Calling a function with a module as soon as it has been imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OnImport = Callable[[ModuleType], None]

# Functions to be called with the modules of these names.
_awaited: dict[str, list[OnImport]] = {}


def when_imported(name: str, function: OnImport) -> None:
    """Calls ``function`` with the module ``name``: now where it has been imported, or else after its import.

    What the function raises, the statement that imports the module raises.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    is_half_imported = getattr(spec, "_initializing", False)
    if module is not None and not is_half_imported:
        function(module)
        return
    _awaited.setdefault(name, []).append(function)
    if module is None:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    elif type(spec) is ModuleSpec:
        # The module imports torch, which loads the backend, before it has all its parts.
        spec.__class__ = _AwaitedSpec


class _AwaitedSpec(ModuleSpec):
    """The spec of an awaited module: importlib says in ``_initializing`` when the module is whole."""

    @property
    def _initializing(self) -> bool:
        return bool(vars(self).get("_initializing", False))

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        vars(self)["_initializing"] = value
        module = sys.modules.get(self.name)
        if not value and module is not None:
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            for function in _awaited.pop(self.name, ()):
                function(module)


class _Finder(MetaPathFinder):
    """Finds awaited modules where the other finders do."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _awaited:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                if type(spec) is ModuleSpec:
                    spec.__class__ = _AwaitedSpec
                return spec
        return None


_finder = _Finder()
