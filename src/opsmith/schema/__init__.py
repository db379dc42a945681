"""Operators and groups as data: what ATen declares, read through torchgen."""

from opsmith.schema.catalogue import Catalogue, read_catalogue, torch_version
from opsmith.schema.gradient import gradient_operator, result_names
from opsmith.schema.operator import Composite, Group, Operator, Result, Variant, qualified

__all__ = [
    "Catalogue",
    "Composite",
    "Group",
    "Operator",
    "Result",
    "Variant",
    "gradient_operator",
    "qualified",
    "read_catalogue",
    "result_names",
    "torch_version",
]
