"""Which ATen operators PyTorch can differentiate, from the ``derivatives.yaml`` of torch's wheel.

Only whether there is a formula is read; the formulas themselves are PyTorch's business.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import Enum
from typing import Any

import yaml

from opsmith.schema.catalogue import Catalogue, torchgen_folder
from opsmith.schema.operator import Composite, Operator, Variant


class Differentiable(Enum):
    """Where an operator's gradient comes from.  The value is what people read."""

    FORMULA = "formula"
    """PyTorch has one, for the operator or for the variant of its group that computes the same."""
    PARTS = "parts"
    """It is ``CompositeImplicitAutograd``: the operators that it is decomposed into are differentiated."""
    DISCRETE = "discrete"
    """None of its results depends smoothly on an argument: they never require a gradient."""
    NO = "no"
    """Nothing: it raises where an argument requires a gradient, as ``out=`` variants always do."""


def differentiable(operator: Operator, catalogue: Catalogue) -> Differentiable:
    """Where the gradient of ``operator``, one of ``catalogue``, comes from."""
    from opsmith.schema.torch_names import DONT_REQUIRE_DERIVATIVE

    if operator.variant is Variant.OUT:
        return Differentiable.NO
    if operator.composite is Composite.IMPLICIT:
        # Also where there is a formula, which is then for nested Tensors: matmul.
        return Differentiable.PARTS
    for name in _with_the_same_gradient(operator, catalogue):
        if name in _formulas():
            return Differentiable.FORMULA if _formulas()[name] else Differentiable.DISCRETE
    if operator.name.partition(".")[0] in DONT_REQUIRE_DERIVATIVE:
        return Differentiable.DISCRETE
    return Differentiable.NO


def _with_the_same_gradient(operator: Operator, catalogue: Catalogue) -> list[str]:
    """The operators whose formula serves, its own first, as torchgen's load_derivatives.py has it."""
    names = [operator.name]
    group = catalogue.group_of.get(operator.name)
    if group is not None and group.functional is not None:
        names.append(group.functional)
    for name in list(names):
        base, dot, overload = name.partition(".")
        # A view that is copied has the view's formula, a list of Tensors that of each.
        for known in (base.removesuffix("_copy"), base.removeprefix("_foreach_").removesuffix("_")):
            if known != base:
                names += [known + dot + overload, *_overloads_with_formulas().get(known, ())]
    return names


@functools.cache
def _overloads_with_formulas() -> Mapping[str, list[str]]:
    """The operators in ``derivatives.yaml`` by base name, in the file's order."""
    found: dict[str, list[str]] = {}
    for name in _formulas():
        found.setdefault(name.partition(".")[0], []).append(name)
    return found


@functools.cache
def _formulas() -> Mapping[str, bool]:
    """The operators in ``derivatives.yaml``: whether any of their results can have a gradient."""
    path = torchgen_folder() / "packaged" / "autograd" / "derivatives.yaml"
    entries: list[dict[str, Any]] = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return {
        str(entry["name"]).partition("(")[0]: any(entry.get("output_differentiability", [True]))
        for entry in entries
        # Some are for one autograd key only, such as that of nested Tensors.
        if "Default" in entry.get("dispatch", {"Default": {}})
    }
