"""The catalogue says of every operator what the installed torch's dispatcher says."""

from __future__ import annotations

import torch

from opsmith.schema import Catalogue, Composite, Variant

_ALIASES = {
    # In the dispatcher's order of precedence.
    "CompositeExplicitAutogradNonFunctional": Composite.NON_FUNCTIONAL,
    "CompositeExplicitAutograd": Composite.EXPLICIT,
    "CompositeImplicitAutograd": Composite.IMPLICIT,
}


def test_every_aten_operator_is_in_the_catalogue(catalogue: Catalogue) -> None:
    registered = {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
    }
    assert catalogue.operators.keys() == registered


def test_composite_kinds_are_the_dispatchers(catalogue: Catalogue) -> None:
    wrong = {}
    for operator in catalogue.operators.values():
        dump = torch._C._dispatch_dump(operator.qualified_name)
        kinds = [kind for alias, kind in _ALIASES.items() if f"\n{alias}[alias]" in dump]
        if operator.composite is not (kinds[0] if kinds else Composite.NONE):
            wrong[operator.name] = (operator.composite, kinds)
    assert wrong == {}


def test_add_is_one_structured_group(catalogue: Catalogue) -> None:
    group = catalogue.group_of["add_.Tensor"]
    assert group is catalogue.group_of["add.Tensor"]
    assert (group.functional, group.inplace, group.out) == ("add.Tensor", "add_.Tensor", "add.out")
    assert group.structured and group.iterator
    assert catalogue.operators["add_.Tensor"].variant is Variant.INPLACE


def test_multiple_results_are_counted(catalogue: Catalogue) -> None:
    assert catalogue.operators["max.dim"].tensor_returns == 2
    assert catalogue.operators["native_layer_norm"].tensor_returns == 3
    assert catalogue.operators["_foreach_add.Scalar"].tensor_returns is None


def test_275_groups_are_structured(catalogue: Catalogue) -> None:
    assert sum(group.structured for group in catalogue.groups) == 275
