"""Modules and files of Python that a description names, imported, and a driver's class in one."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from opsmith.driver.python_driver import Driver
from opsmith.errors import DriverInvalid, Location


def driver_class(source: Path | str, name: str, location: Location | None = None) -> type[Driver]:
    """The class ``name`` of a file, or of a module that can be imported.

    Raises :class:`DriverInvalid`, at ``location``.
    """
    try:
        module = imported(source)
    except Exception as error:
        raise DriverInvalid(
            f"`{source}` cannot be imported: {_last_line(error)}",
            location=location,
            remedy="name a file relative to the description (driver.py:Driver), or a module that Python "
            "finds (mychip.driver:Driver)",
        ) from error
    found = getattr(module, name, None)
    if not (isinstance(found, type) and issubclass(found, Driver)):
        classes = [
            each
            for each, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, Driver) and value is not Driver
        ]
        known = f"; its drivers are {', '.join(classes)}" if classes else ""
        wrong = f"has no class `{name}`" if found is None else f"has a `{name}`, which"
        is_none = "" if found is None else " is no class of opsmith.driver.Driver's kind"
        raise DriverInvalid(
            f"`{source}` {wrong}{is_none}{known}",
            location=location,
            remedy=f"write class {name}(opsmith.driver.Driver), or name another",
        )
    return found


def imported(source: Path | str) -> ModuleType:
    """The module of that name, or that of a file."""
    if isinstance(source, str):
        return importlib.import_module(source)
    # One module a file, however often it is asked for; `import` does not find it.
    name = f"opsmith_file_{source.stem}_{abs(hash(source)):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _last_line(error: Exception) -> str:
    """The error, and its line of the file where that is known."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename
    ]
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 2 else ""
    return f"{type(error).__name__}: {error}{place}"
