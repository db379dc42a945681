"""Parts of a library that opsmith relies on: found, and replaced wherever the library has them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from opsmith.errors import LibraryChanged


def part(module: ModuleType, name: str) -> Any:
    """The part ``name``, which may be dotted, of ``module``; a class's own attribute is not bound.

    Raises :class:`LibraryChanged` where there is no such part.
    """
    found: Any = module
    for step in name.split("."):
        if step not in vars(found):
            raise changed(module, f"has no {module.__name__}.{name}")
        found = vars(found)[step]
    return found


def replace_method(module: ModuleType, name: str, make: Callable[[Any], Any]) -> None:
    """Makes ``Class.method`` of ``module`` what ``make`` returns for the one before."""
    before = part(module, name)
    owner, _, method = name.rpartition(".")
    setattr(part(module, owner), method, make(before))


def replace_function(module: ModuleType, name: str, make: Callable[[Any], Any]) -> None:
    """Makes the function ``name`` of ``module`` what ``make`` returns for the one before.

    Other modules of the libraries that have imported it have the new one, too.
    """
    before = part(module, name)
    after = make(before)
    packages = {module.__name__.partition(".")[0], "accelerate", "transformers"}
    for each, loaded in list(sys.modules.items()):
        if each.partition(".")[0] in packages:
            for key, value in list(vars(loaded).items()):
                if value is before:
                    setattr(loaded, key, after)


def replace_constant(module: ModuleType, name: str, make: Callable[[Any], Any]) -> None:
    """Makes the one constant of the function ``name`` for which ``make`` returns another what that is."""
    function = part(module, name)
    code: CodeType | None = getattr(function, "__code__", None)
    constants = code.co_consts if code is not None else ()
    made = [make(each) for each in constants]
    if code is None or sum(new is not old for new, old in zip(made, constants, strict=True)) != 1:
        raise changed(module, f"has no list of devices in {name}")
    function.__code__ = code.replace(co_consts=tuple(made))


def changed(module: ModuleType, what: str) -> LibraryChanged:
    """The error for a library that is not as expected: it ``what``."""
    # Here: it takes long to import, and few libraries have changed.
    from importlib import metadata

    library = module.__name__.partition(".")[0]
    try:
        version = metadata.version(library.replace("_", "-"))
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    return LibraryChanged(
        f"{library} {version} {what}, so it cannot be told of the device and may take the CPU",
        remedy="install a version that docs/start/programs.md names, or name the device as it says",
    )
