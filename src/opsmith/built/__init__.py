"""The libraries of a backend as a process loads them: what they are, and those that a package carries."""

from opsmith.built.backend import BuiltBackend
from opsmith.built.carried import carried_backend, carried_plan, fitting_backend
from opsmith.built.contents import (
    FORMAT,
    CarriedBuild,
    CarriedFile,
    Contents,
    DriverClass,
    Namespace,
    Place,
    read_contents,
)
from opsmith.built.torch_note import check_torch

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
    "read_contents",
]
