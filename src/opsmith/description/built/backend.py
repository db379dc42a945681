"""The parts of a backend that are loaded: its library, its driver, and what has to be known of them."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opsmith.description import ExternalNamespace, PythonDriver, Rng
    from opsmith.errors import Location


@dataclass(frozen=True)
class BuiltBackend:
    """The library to load into torch, and the driver it opens: built here, or carried by a package.

    ``external_namespaces`` name the modules that define what the library implements; they come first.
    ``generated`` is the folder of its C++.  Of a package that is None, ``package`` is the distribution that
    carries it, and ``adapters`` are what calls Python kernels, by the suffix of Python's extension modules.
    """

    name: str
    library: Path
    driver: Path
    generated: Path | None
    host_window: bool
    rng: Rng
    driver_location: Location
    cache: Path
    external_namespaces: tuple[ExternalNamespace, ...] = ()
    python_driver: PythonDriver | None = None
    """The class behind the driver, for which ``driver`` only stands."""
    calls_python: bool = False
    """Whether the description has kernels that are called in Python, registered when it is loaded."""
    package: str = ""
    adapters: Mapping[str, Path] = field(default_factory=dict)

    @property
    def adapter(self) -> Path | None:
        """The library that calls Python kernels in the running Python, where the package carries it."""
        return self.adapters.get(str(sysconfig.get_config_var("EXT_SUFFIX")))
