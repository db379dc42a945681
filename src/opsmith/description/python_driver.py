"""A driver that is a class in Python, as a description or a command names it: ``file.py:Class``."""

from __future__ import annotations

import re
from pathlib import Path

from opsmith.description.model import Driver, PythonDriver
from opsmith.description.paths import named_file
from opsmith.errors import Location, SyntaxInvalid

# The adapter between opsmith and the class: a table whose entries call Python.
_SOURCE = Path(__file__).resolve().parent.parent / "drivers" / "python" / "driver.cpp"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def python_driver(text: str, folder: Path, location: Location | None = None) -> PythonDriver:
    """The class that ``file.py:Class``, relative to ``folder``, or ``module:Class`` names.

    Raises :class:`SyntaxInvalid` or :class:`FileMissing`, at ``location``.
    """
    source, _, name = text.rpartition(":")
    is_path = source.endswith(".py")
    if not name.isidentifier() or not (is_path or _MODULE.fullmatch(source)):
        raise SyntaxInvalid(
            f"`{text}` names no class of Python",
            location=location,
            remedy="write a file and a class of it (driver.py:Driver), or a module and a class "
            "(mychip.driver:Driver)",
        )
    if not is_path:
        return PythonDriver(source, name)
    return PythonDriver(named_file(source, folder, location), name)


def python_source(text: str, folder: Path, location: Location | None = None) -> Path | str:
    """The Python file ``text``, relative to ``folder``, or the module that can be imported by that name.

    Raises :class:`SyntaxInvalid` or :class:`FileMissing`, at ``location``.
    """
    if text.endswith(".py"):
        return named_file(text, folder, location)
    if not _MODULE.fullmatch(text):
        raise SyntaxInvalid(
            f"`{text}` names no module of Python",
            location=location,
            remedy="write a file (kernels.py), or a module that can be imported (mychip.kernels)",
        )
    return text


def python_driver_of(named: PythonDriver, location: Location, host_window: bool) -> Driver:
    """The driver that is built for a class in Python."""
    return Driver(location, sources=(_SOURCE,), host_window=host_window, python=named)
