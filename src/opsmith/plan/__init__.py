"""The plan: which route serves every operator, and why.  Nothing else decides anything."""

from opsmith.plan.cache import plan_backend
from opsmith.plan.model import (
    Autograd,
    AutogradRoute,
    Derivation,
    Elementwise,
    Entry,
    Meta,
    MetaRule,
    NotServed,
    Plan,
    Route,
    Shape,
)
from opsmith.plan.resolver import resolve

__all__ = [
    "Autograd",
    "AutogradRoute",
    "Derivation",
    "Elementwise",
    "Entry",
    "Meta",
    "MetaRule",
    "NotServed",
    "Plan",
    "Route",
    "Shape",
    "plan_backend",
    "resolve",
]
