"""Operators that a Python program declares, and the variants that are derived from them.

Builds the same :class:`Operator` values as the catalogue does for ATen, and joins them to it.  Called by
``runtime`` for ``@backend.operator``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from opsmith.errors import Location, SchemaInvalid
from opsmith.schema.catalogue import Catalogue, native_function_of, operator_of
from opsmith.schema.operator import Group, Operator, Variant

_NAMESPACED = re.compile(r"^\s*(?P<namespace>\w+)::(?P<schema>.*)$", re.DOTALL)


def declared_operators(schema: str, inplace: bool, location: Location) -> tuple[Operator, ...]:
    """The functional operator of ``schema``, its out variant and, where it is asked for, the in-place one.

    Raises :class:`SchemaInvalid` at ``location`` for what is no functional schema with a namespace.
    """
    from torchgen.model import FunctionSchema, SchemaKind
    from torchgen.native_function_generation import functional_to_out_signature

    matched = _NAMESPACED.match(schema)
    if matched is None or matched["namespace"] == "aten":
        raise SchemaInvalid(
            f"the schema `{schema}` has no namespace of its own",
            location=location,
            remedy='write it like "myop::scale(Tensor self, float factor) -> Tensor"',
        )
    namespace = matched["namespace"]
    try:
        function = FunctionSchema.parse(matched["schema"])
        kind = function.kind()
        if kind == SchemaKind.functional:
            operators = [_operator(namespace, str(function))]
            if operators[0].results:
                operators.append(_operator(namespace, str(functional_to_out_signature(function))))
    except Exception as error:  # torchgen's parser asserts
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise SchemaInvalid(
            f"`{schema}` is not a schema: {lines[0]}",
            location=location,
            remedy='write it like "myop::scale(Tensor self, float factor) -> Tensor"',
        ) from None
    if kind != SchemaKind.functional:
        raise SchemaInvalid(
            f"`{schema}` is the schema of an operator that writes to its arguments",
            location=location,
            remedy="declare the functional operator; its out variant is derived, and with `inplace=True` "
            "its in-place one",
        )
    if inplace:
        operators.append(_operator(namespace, _inplace_schema(str(function), schema, location)))
    return tuple(operators)


def _operator(namespace: str, schema: str) -> Operator:
    return operator_of(native_function_of(namespace, schema))


def _inplace_schema(functional: str, shown: str, location: Location) -> str:
    matched = re.fullmatch(
        r"(?P<base>\w+)(?P<overload>\.\w+)?\(Tensor self(?P<rest>.*)\) -> Tensor", functional
    )
    if matched is None:
        raise SchemaInvalid(
            f"`{shown}` has no in-place variant: that needs a first argument `Tensor self` and one result",
            location=location,
            remedy="remove `inplace=True`",
        )
    overload = matched["overload"] or ""
    return f"{matched['base']}_{overload}(Tensor(a!) self{matched['rest']}) -> Tensor(a!)"


def with_declared(catalogue: Catalogue, operators: Sequence[Operator]) -> Catalogue:
    """``catalogue`` with ``operators``, which are the variants of one group."""
    named = {operator.variant: operator.name for operator in operators}
    group = Group(
        functional=named.get(Variant.FUNCTIONAL),
        inplace=named.get(Variant.INPLACE),
        out=named.get(Variant.OUT),
    )
    members = {operator.name: operator for operator in operators}
    grouped = dict.fromkeys(members, group) if len(members) > 1 else {}
    return replace(
        catalogue,
        operators={**catalogue.operators, **members},
        groups=(*catalogue.groups, group) if grouped else catalogue.groups,
        group_of={**catalogue.group_of, **grouped},
    )
