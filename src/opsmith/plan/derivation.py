"""Which variant of a group can be derived from which, from the schemas alone.

The rules are the table of docs/derivation.md.  A derivation that is impossible comes back as the
reason in words, which the plan shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opsmith.description import Kernel
from opsmith.plan.model import Derivation, Elementwise, Shape
from opsmith.schema import Catalogue, Composite, Group, Operator, Variant


@dataclass(frozen=True)
class Derived:
    """A possible derivation: ``kernel`` of another variant, and how to build around it."""

    kernel: Kernel
    derivation: Derivation
    shape: Shape | None
    elementwise: Elementwise | None


# Pointwise operators whose result is bool whatever the operands are, by the functional's base name.
# tests/test_plan.py compares this and the rule of `elementwise_result` with every meta function.
_PREDICATES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isposinf", "isneginf", "signbit"})

# The kernels to build on, best first, for each wanted variant.
_PREFERENCE: Mapping[Variant, tuple[Variant, ...]] = {
    Variant.FUNCTIONAL: (Variant.OUT, Variant.INPLACE),
    Variant.OUT: (Variant.FUNCTIONAL, Variant.INPLACE),
    Variant.INPLACE: (Variant.OUT, Variant.FUNCTIONAL),
}


def is_pointwise(group: Group, catalogue: Catalogue) -> bool:
    """Whether each element of the result depends only on the operands' elements at its place.

    Source: PyTorch's tag ``pointwise``.
    """
    return any("pointwise" in catalogue.operators[name].tags for _, name in group.members())


def elementwise_result(group: Group, catalogue: Catalogue) -> Elementwise | None:
    """The result's dtype for operands of one floating dtype, where that is known without a meta."""
    if group.functional is None or not (group.iterator and is_pointwise(group, catalogue)):
        return None
    if catalogue.operators[group.functional].tensor_returns != 1:
        return None
    base = group.functional.partition(".")[0]
    return Elementwise.BOOL if base in _PREDICATES else Elementwise.SAME


def derive(
    wanted: Operator, group: Group, kernels: Mapping[Variant, Kernel], catalogue: Catalogue
) -> Derived | str:
    """How ``wanted`` is built from the group's ``kernels``, or the reason why it cannot be."""
    if reason := _obstacle(wanted, group, catalogue):
        return reason
    for available in _PREFERENCE[wanted.variant]:
        if kernel := kernels.get(available):
            return _derived(wanted, available, kernel, group, catalogue)
    return "the group's kernel is itself not one to derive from"


def _obstacle(wanted: Operator, group: Group, catalogue: Catalogue) -> str:
    if wanted.variant not in _PREFERENCE:
        return f"a {wanted.variant.value} variant has no rule"
    if wanted.composite is Composite.IMPLICIT:
        return "its CompositeImplicitAutograd kernel is what makes it differentiable"
    if wanted.view:
        return "a view must share its input's storage"
    for _, name in group.members():
        if catalogue.operators[name].factory:
            return f"`{name}` takes the result's dtype and device as arguments"
        if not catalogue.operators[name].tensor_returns:
            return f"`{name}` does not return a fixed number of Tensors"
    returns = {name: catalogue.operators[name].tensor_returns for _, name in group.members()}
    if len(set(returns.values())) > 1:
        counts = ", ".join(f"`{name}` {count}" for name, count in returns.items())
        return f"the variants do not return the same number of Tensors: {counts}"
    return ""


def _derived(
    wanted: Operator, available: Variant, kernel: Kernel, group: Group, catalogue: Catalogue
) -> Derived:
    pointwise = is_pointwise(group, catalogue)
    shape = Shape.STRUCTURED_META if group.structured else Shape.META_KERNEL
    elementwise = elementwise_result(group, catalogue)
    match wanted.variant, available:
        case Variant.FUNCTIONAL, Variant.OUT:
            return Derived(kernel, Derivation.FUNCTIONAL_FROM_OUT, shape, elementwise)
        case Variant.FUNCTIONAL, _:
            return Derived(kernel, Derivation.FUNCTIONAL_FROM_INPLACE, shape, None)
        case Variant.OUT, Variant.FUNCTIONAL:
            return Derived(kernel, Derivation.OUT_FROM_FUNCTIONAL, None, None)
        case Variant.OUT, _:
            return Derived(kernel, Derivation.OUT_FROM_INPLACE, Shape.META_KERNEL, None)
        case Variant.INPLACE, Variant.OUT if pointwise:
            return Derived(kernel, Derivation.INPLACE_FROM_OUT, shape, elementwise)
        case Variant.INPLACE, Variant.OUT:
            return Derived(kernel, Derivation.INPLACE_FROM_OUT_TEMPORARY, shape, None)
        case _:
            return Derived(kernel, Derivation.INPLACE_FROM_FUNCTIONAL, None, None)
