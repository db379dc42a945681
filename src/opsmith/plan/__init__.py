"""The plan: which route serves every operator, and why.  Nothing else decides anything."""

from typing import TYPE_CHECKING

from opsmith.on_demand import on_demand
from opsmith.plan.derivation_rules import Derivation, Into, Rule
from opsmith.plan.model import (
    AutocastRule,
    Autograd,
    AutogradRoute,
    Elementwise,
    Entry,
    Interception,
    KernelCall,
    Meta,
    MetaRule,
    NotServed,
    Operands,
    Place,
    Plan,
    Route,
    Shape,
    claims_of,
)
from opsmith.plan.opened import OpenedBackend, open_backend, plan_backend

if TYPE_CHECKING:
    from opsmith.plan.interception import decompositions
    from opsmith.plan.resolver import resolve, resolve_group

__all__ = [
    "AutocastRule",
    "Autograd",
    "AutogradRoute",
    "Derivation",
    "Elementwise",
    "Entry",
    "Interception",
    "Into",
    "KernelCall",
    "Meta",
    "MetaRule",
    "NotServed",
    "OpenedBackend",
    "Operands",
    "Place",
    "Plan",
    "Route",
    "Rule",
    "Shape",
    "claims_of",
    "decompositions",
    "open_backend",
    "plan_backend",
    "resolve",
    "resolve_group",
]

# A plan that is kept is read without what makes plans.
__getattr__ = on_demand(
    __name__,
    {
        "decompositions": "opsmith.plan.interception",
        "resolve": "opsmith.plan.resolver",
        "resolve_group": "opsmith.plan.resolver",
    },
)
