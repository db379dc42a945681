"""Operators and groups as data: what ATen declares, read through torchgen."""

from opsmith.schema.catalogue import Catalogue, read_catalogue, torch_version
from opsmith.schema.declared import declared_operators, with_declared
from opsmith.schema.gradient import gradient_operator, result_names
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
    "declared_operators",
    "gradient_operator",
    "qualified",
    "read_catalogue",
    "read_stubs",
    "result_names",
    "torch_version",
    "with_declared",
]
