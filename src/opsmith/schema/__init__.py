"""Operators and groups as data: what ATen declares, read through torchgen."""

from opsmith.schema.catalogue import Catalogue, read_catalogue, torch_version
from opsmith.schema.operator import Composite, Group, Operator, Result, Variant, qualified
from opsmith.schema.stubs import Caller, Stub, StubMap, Unfit, read_stubs

__all__ = [
    "Caller",
    "Catalogue",
    "Composite",
    "Group",
    "Operator",
    "Result",
    "Stub",
    "StubMap",
    "Unfit",
    "Variant",
    "qualified",
    "read_catalogue",
    "read_stubs",
    "torch_version",
]
