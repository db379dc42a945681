"""The libraries of a backend as a process loads them: what they are, and those that a package carries."""

from typing import TYPE_CHECKING

from opsmith.base.on_demand import on_demand

if TYPE_CHECKING:
    from opsmith.description.built.backend import BuiltBackend
    from opsmith.description.built.carried import carried_backend, carried_plan, fitting_backend
    from opsmith.description.built.contents import (
        FORMAT,
        CarriedBuild,
        CarriedFile,
        Contents,
        DriverClass,
        Namespace,
        Place,
        read_contents,
    )
    from opsmith.description.built.torch_note import check_torch
    from opsmith.description.built.unchanged import note_unchanged, unchanged_backend

__all__ = [
    "FORMAT",
    "BuiltBackend",
    "CarriedBuild",
    "CarriedFile",
    "Contents",
    "DriverClass",
    "Namespace",
    "Place",
    "carried_backend",
    "carried_plan",
    "check_torch",
    "fitting_backend",
    "note_unchanged",
    "read_contents",
    "unchanged_backend",
]

__getattr__ = on_demand(
    __name__,
    {
        "backend": "BuiltBackend",
        "carried": "carried_backend carried_plan fitting_backend",
        "contents": "read_contents CarriedBuild CarriedFile Contents DriverClass FORMAT Namespace Place",
        "torch_note": "check_torch",
        "unchanged": "note_unchanged unchanged_backend",
    },
)
