"""The plan: which route serves every operator, and why.  Nothing else decides anything."""

from typing import TYPE_CHECKING

from opsmith.base.on_demand import on_demand

if TYPE_CHECKING:
    from opsmith.plan.derivation_rules import Derivation, Into, Rule
    from opsmith.plan.interception import decompositions
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

__getattr__ = on_demand(
    __name__,
    {
        "derivation_rules": "Derivation Into Rule",
        "interception": "decompositions",
        "model": (
            "claims_of AutocastRule Autograd AutogradRoute Elementwise Entry Interception "
            "KernelCall Meta MetaRule NotServed Operands Place Plan Route Shape"
        ),
        "opened": "open_backend plan_backend OpenedBackend",
        "resolver": "resolve resolve_group",
    },
)
