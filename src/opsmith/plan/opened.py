"""A backend that was opened: one object for its description, the operators that there are, and its plan."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from opsmith.built import carried_plan
from opsmith.cache_folder import cache_root
from opsmith.description import Backend, find_backend, read_backend
from opsmith.plan.kept_plans import kept_plan, read_plan
from opsmith.plan.model import Plan
from opsmith.plan.resolver import resolve
from opsmith.schema import Catalogue, read_catalogue


class OpenedBackend:
    """The backend described by the file ``path``; each part is read or made when it is first asked for.

    Plans are kept in ``cache``, unless that is None.  Any part raises a :class:`DescriptionError` where
    the description is wrong.
    """

    def __init__(self, path: Path, cache: Path | None) -> None:
        self.path = path
        self._cache = cache

    @cached_property
    def outline(self) -> Backend:
        """The description with the operators' names taken on trust, which saves reading the catalogue."""
        with _uncollected():
            return read_backend(self.path, None)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The operators of the installed torch."""
        return read_catalogue()

    @cached_property
    def description(self) -> Backend:
        """The description, checked against the catalogue."""
        return read_backend(self.path, self.catalogue)

    @cached_property
    def plan(self) -> Plan:
        """The plan: as an installed package carries it, as it was kept, or made anew."""
        carried = carried_plan(self.path)
        if carried and (plan := read_plan(carried, self.path.parent)):
            return plan
        if self._cache is None:
            return self._planned()
        return kept_plan(self.outline, self._cache, self._planned)

    @cached_property
    def compiled_plan(self) -> Plan:
        """The plan without kernels that are called in Python: what code is generated for."""
        if not self.outline.calls_python:
            return self.plan
        if self._cache is None:
            return self._planned_to_compile()
        return kept_plan(self.outline, self._cache, self._planned_to_compile, "compiled")

    def _planned(self) -> Plan:
        with _uncollected():
            return resolve(self.description, self.catalogue)

    def _planned_to_compile(self) -> Plan:
        with _uncollected():
            return resolve(self.description.compiled, self.catalogue)


@contextmanager
def _uncollected() -> Iterator[None]:
    """While many objects are made that stay: the cyclic garbage collector would look at them all in vain."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def open_backend(name: str) -> OpenedBackend:
    """The backend ``name``: a shipped one, or a path.  Raises :class:`BackendUnknown`."""
    return OpenedBackend(find_backend(name), cache_root())


def plan_backend(name: str, cache: Path | None) -> Plan:
    """The plan for the backend ``name`` (shipped, or a path), from ``cache`` where it is fresh.

    Raises a :class:`DescriptionError` where the description is wrong.
    """
    return OpenedBackend(find_backend(name), cache).plan
