"""The backend of a command as its package loads it, and the line on stderr that says so."""

from __future__ import annotations

from opsmith.cli.console import err, shown_progress
from opsmith.plan import OpenedBackend
from opsmith.runtime.as_package import (
    how_loaded,
    left_out,
    load_as_package,
    open_as_loaded,
    why_not_loaded,
)
from opsmith.runtime.loaded import LoadedBackend


def opened_backend(name: str) -> OpenedBackend:
    """The backend ``name``, loaded only where a package registers kernels for it in Python."""
    with shown_progress() as progress:
        opened, loaded = open_as_loaded(name, progress=progress)
    if loaded:
        say_loaded(how_loaded(loaded))
    elif note := left_out(opened.path):
        say_loaded(f"the plan of {opened.path} is {note}")
    return opened


def loaded_backend(name: str) -> LoadedBackend:
    """The backend ``name``, loaded as its package loads it."""
    with shown_progress() as progress:
        loaded = load_as_package(name, progress=progress)
    say_loaded(how_loaded(loaded))
    return loaded


def may_load(opened: OpenedBackend, build: bool) -> bool:
    """Whether to load the backend for its dispatch tables; stderr is told why not.

    Where ``build`` was not asked for, nothing is built, and nothing run that came with a description.
    """
    why = "" if build else why_not_loaded(opened.path)
    if why:
        say_loaded(f"no dispatch tables: {why}; --build builds and loads it")
    return not why


_said: set[str] = set()


def say_loaded(how: str) -> None:
    """Prints the line on stderr, once."""
    if not how or how in _said:
        return
    _said.add(how)
    err.print(how, style="dim", highlight=False, markup=False, soft_wrap=True)
