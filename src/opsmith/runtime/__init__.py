"""The Python side of a loaded device."""

from opsmith.runtime.autoload import autoload
from opsmith.runtime.load import LoadedBackend, load

__all__ = ["LoadedBackend", "autoload", "load"]
