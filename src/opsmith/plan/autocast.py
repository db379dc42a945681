"""For which operators ``torch.autocast`` casts otherwise on a device than PyTorch's own lists say.

Refuses operators that would not do what they are called for: autocast calls an operator with cast copies of
its arguments.  Called by the resolver.
"""

from __future__ import annotations

import re

from opsmith.description import Autocast, Precision
from opsmith.errors import AutocastRejected, Location
from opsmith.plan.model import AutocastRule
from opsmith.schema import Catalogue, Operator

_SETS_DTYPE = re.compile(r"\bScalarType\? dtype=None\b")


def autocast_rules(autocast: Autocast, catalogue: Catalogue) -> tuple[AutocastRule, ...]:
    """The rules that ``autocast`` changes, in the order of the description.

    Raises :class:`AutocastRejected`.
    """
    return tuple(
        _rule(catalogue.operators[named.name], precision, named.location)
        for named, precision in autocast.operators
    )


def _rule(operator: Operator, precision: Precision, location: Location) -> AutocastRule:
    reason = _obstacle(operator)
    if reason and precision is not Precision.UNCHANGED:
        raise AutocastRejected(
            f"autocast cannot cast for `{operator.name}`: {reason}",
            location=location,
            remedy=f"take it out of `{precision.value}`; its schema is {operator.schema}",
        )
    sets_dtype = precision is Precision.FLOAT32 and _SETS_DTYPE.search(operator.schema) is not None
    return AutocastRule(operator.qualified_name, precision, location, sets_dtype)


def _obstacle(operator: Operator) -> str:
    """Why cast copies of the arguments will not do; empty where they will."""
    if not operator.tensor_arguments:
        return "it takes no Tensors"
    if "!" in operator.schema:
        return "it writes to an argument, of which a copy would be written"
    if "Tensor(" in operator.schema:
        return "its result shares memory with an argument, and would share it with a copy"
    return ""
