"""Custom operators that a Python program declares, one schema at a time.

They are parsed and joined to the catalogue as those of manifests are.  Called by ``runtime`` for
``@backend.operator``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from opsmith.errors import Location, SchemaInvalid
from opsmith.schema.catalogue import Catalogue
from opsmith.schema.counterparts import Declaration, with_operators
from opsmith.schema.custom import parse_operator
from opsmith.schema.operator import Operator, Variant

# The runtime registers what torch.compile needs of an operator.
_TAGS = ("pt2_compliant_tag",)


def declarations_of(schema: str, inplace: bool, location: Location) -> tuple[Declaration, ...]:
    """The functional operator of ``schema`` and, where it is asked for, the in-place one.

    Raises :class:`SchemaInvalid` at ``location`` for what is no functional schema with a namespace.
    """
    functional = parse_operator(schema, lambda offending: location, _TAGS)
    if functional.variant is not Variant.FUNCTIONAL:
        raise SchemaInvalid(
            f"`{schema}` is the schema of an operator that writes to its arguments",
            location=location,
            remedy="declare the functional operator; its out variant is derived, and with `inplace=True` "
            "its in-place one",
        )
    operators = [functional]
    if inplace:
        written = _inplace_schema(functional, location)
        operators.append(parse_operator(written, lambda offending: location, _TAGS))
    return tuple(Declaration(operator, location) for operator in operators)


def group_declared(
    catalogue: Catalogue, declarations: Sequence[Declaration]
) -> tuple[Catalogue, tuple[Operator, ...]]:
    """``catalogue`` with the group that ``declarations`` form, and its operators, the declared first."""
    joined = with_operators(catalogue, declarations)
    names = [declaration.operator.name for declaration in declarations]
    if group := joined.group_of.get(names[0]):
        names += [name for _, name in group.members() if name not in names]
    return joined, tuple(joined.operators[name] for name in names)


def _inplace_schema(functional: Operator, location: Location) -> str:
    matched = re.fullmatch(
        r"(?P<base>\w+)(?P<overload>\.\w+)?\(Tensor self(?P<rest>.*)\) -> Tensor", functional.schema
    )
    if matched is None:
        raise SchemaInvalid(
            f"`{functional.schema}` has no in-place variant: that needs a first argument `Tensor self` and "
            "one result",
            location=location,
            remedy="remove `inplace=True`",
        )
    name = f"{functional.namespace}::{matched['base']}_{matched['overload'] or ''}"
    return f"{name}(Tensor(a!) self{matched['rest']}) -> Tensor(a!)"
