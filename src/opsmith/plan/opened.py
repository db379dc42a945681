"""A backend that was opened: one object for its description, the operators that there are, and its plan."""

from __future__ import annotations

from functools import cache as cache_of
from functools import cached_property
from pathlib import Path

from opsmith.base.cache_folder import cache_root
from opsmith.base.collector import collector_paused
from opsmith.description import (
    Backend,
    PlanSources,
    find_backend,
    read_backend,
    read_document,
    read_plan_sources,
)
from opsmith.description.built import carried_plan
from opsmith.plan.kept_plans import kept_plan, read_plan
from opsmith.plan.model import Plan
from opsmith.schema import Catalogue, read_catalogue


class OpenedBackend:
    """The backend described by the file ``path``; each part is read or made when it is first asked for.

    Plans are kept in ``cache``, unless that is None.  Any part raises a :class:`DescriptionError` where
    the description is wrong.
    """

    def __init__(self, path: Path, cache: Path | None) -> None:
        self.path = path
        self._cache = cache
        self._read = cache_of(read_document)

    @cached_property
    def outline(self) -> Backend:
        """The description with the operators' names taken on trust, which saves reading the catalogue."""
        with collector_paused():
            return read_backend(self.path, None, self._read)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The operators of the installed torch."""
        return read_catalogue()

    @cached_property
    def description(self) -> Backend:
        """The description, checked against the catalogue."""
        catalogue = self.catalogue
        with collector_paused():
            description = read_backend(self.path, catalogue, self._read)
        self._read.cache_clear()
        return description

    @cached_property
    def plan(self) -> Plan:
        """The plan: as an installed package carries it, as it was kept, or made anew."""
        with collector_paused():
            carried = carried_plan(self.path)
            if carried and (plan := read_plan(carried, self.path.parent)):
                return plan
            if self._cache is None:
                return self._planned()
            return kept_plan(self._sources, self._cache, self._planned)

    @cached_property
    def compiled_plan(self) -> Plan:
        """The plan without kernels that are called in Python: what code is generated for."""
        if not self.outline.calls_python:
            return self.plan
        with collector_paused():
            if self._cache is None:
                return self._planned_to_compile()
            return kept_plan(self._sources, self._cache, self._planned_to_compile, "compiled")

    @cached_property
    def _sources(self) -> PlanSources:
        return read_plan_sources(self.path, self._read)

    def _planned(self) -> Plan:
        return self._resolved(self.description)

    def _planned_to_compile(self) -> Plan:
        return self._resolved(self.description.compiled)

    def _resolved(self, description: Backend) -> Plan:
        from opsmith.plan.resolver import resolve  # what a kept plan does without

        return resolve(description, self.catalogue)


def open_backend(name: str) -> OpenedBackend:
    """The backend ``name``: a shipped one, or a path.  Raises :class:`BackendUnknown`."""
    return OpenedBackend(find_backend(name), cache_root())


def plan_backend(name: str, cache: Path | None) -> Plan:
    """The plan for the backend ``name`` (shipped, or a path), from ``cache`` where it is fresh.

    Raises a :class:`DescriptionError` where the description is wrong.
    """
    return OpenedBackend(find_backend(name), cache).plan
