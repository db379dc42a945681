"""A module that is an object: what its class offers appears in ``dir()`` and in ``__all__``.

``torch.<name>`` and its submodules are such modules, since their functions know the device.  What they do
not have, :mod:`opsmith.runtime.module.names_left_out` explains.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NoReturn

from opsmith.runtime.module.names_left_out import missing_name


class PublicModule(types.ModuleType):
    """A module whose functions are methods of its class, and whose constants are attributes."""

    def __getattr__(self, name: str) -> NoReturn:
        raise missing_name(self.__name__, name)

    @property
    def __all__(self) -> list[str]:
        """The public names, sorted."""
        names = set(vars(self))
        for cls in type(self).__mro__:
            if cls not in (types.ModuleType, object):
                names |= set(vars(cls))
        return sorted(name for name in names if not name.startswith("_"))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


class Submodule(PublicModule):
    """``torch.<device_type>.<name>``; ``index`` gives the number of what its functions take as a device."""

    def __init__(self, device_type: str, name: str, doc: str, index: Callable[[Any], int]) -> None:
        super().__init__(f"torch.{device_type}.{name}", doc)
        self._index_of = index

    def _index(self, device: Any) -> int:
        return self._index_of(device)
