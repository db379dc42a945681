"""Custom operators as part of a catalogue, with the variants that their authors left out.

Groups form as torchgen's do: by the signature that in-place, out and functional variants share.  A
group without a functional or an out variant is given one, named by ExecuTorch's rule (``scale.out``,
``scale.Scalar_out``) and tagged ``generated``.  Called by ``description`` and by the plan, which drops
a generated variant that it cannot derive.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opsmith.errors import Location, SchemaInvalid
from opsmith.schema.catalogue import (
    Catalogue,
    base_name,
    custom_function,
    operator_of,
    parsed_schema,
    result_types,
    stand_in,
    stand_in_schema,
    tag_names,
    with_base_name,
)
from opsmith.schema.operator import GENERATED, Group, Operator, Variant

if TYPE_CHECKING:
    from opsmith.schema.torch_names import FunctionSchema, NativeFunction, OperatorName

# The tags that a generated variant shares with those that its author wrote.
_INHERITED_TAGS = frozenset(
    "pointwise pt2_compliant_tag nondeterministic_seeded nondeterministic_bitwise dynamic_output_shape "
    "data_dependent_output cudagraph_unsafe needs_exact_strides needs_contiguous_strides "
    "needs_fixed_stride_order flexible_layout reduction".split()
)
# PyTorch's own word for what an in-place or out variant does with its arguments, from 2.13 on: torch.compile
# needs it.
_TAG_OF: Mapping[Variant, str] = {Variant.INPLACE: "inplace", Variant.OUT: "out"}


@dataclass(frozen=True)
class Declaration:
    """A custom operator, and the place where it is declared."""

    operator: Operator
    location: Location


def with_operators(catalogue: Catalogue, declarations: Sequence[Declaration]) -> Catalogue:
    """``catalogue`` with custom operators, the variants that their groups lack, and the groups.

    Raises :class:`SchemaInvalid` where two declarations contradict each other.
    """
    declared = _distinct(declarations)
    operators = dict(catalogue.operators)
    groups = list(catalogue.groups)
    group_of = dict(catalogue.group_of)
    by_signature: dict[tuple[str, str, str], dict[Variant, Declaration]] = {}
    for declaration in declared.values():
        operator = _tagged(declaration.operator)
        operators[operator.name] = operator
        signature = operator.namespace, base_name(operator), _signature(stand_in_schema(operator))
        members = by_signature.setdefault(signature, {})
        _reject_second(members.get(operator.variant), declaration)
        members[operator.variant] = Declaration(operator, declaration.location)
    for members in by_signature.values():
        named = {variant: member.operator.name for variant, member in members.items()}
        for variant, operator in _counterparts(members, declared).items():
            operators[operator.name] = operator
            named[variant] = operator.name
        group = Group(
            functional=named.get(Variant.FUNCTIONAL),
            inplace=named.get(Variant.INPLACE),
            out=named.get(Variant.OUT),
        )
        if len(group.members()) > 1:
            groups.append(group)
            group_of |= {name: group for _, name in group.members()}
    return replace(catalogue, operators=operators, groups=tuple(groups), group_of=group_of)


@functools.cache
def _signature(schema: str) -> str:
    """The text that the variants of the operator with this ``schema`` share."""
    return str(parsed_schema(schema).signature(strip_default=False))


def returns_tensors(operator: Operator) -> bool:
    """Whether a custom operator returns one Tensor or several, and nothing else.

    PyTorch takes the tags ``inplace`` and ``out`` for such operators only.
    """
    return set(result_types(operator)) == {"Tensor"}


def _distinct(declarations: Sequence[Declaration]) -> dict[str, Declaration]:
    """The declarations by name; a library may repeat what another declares, word for word."""
    first: dict[str, Declaration] = {}
    for declaration in declarations:
        operator = declaration.operator
        earlier = first.setdefault(operator.name, declaration)
        if (earlier.operator.schema, earlier.operator.tags) != (operator.schema, operator.tags):
            raise SchemaInvalid(
                f"`{operator.name}` is declared twice: here as `{_shown(operator)}`, at "
                f"{earlier.location} as `{_shown(earlier.operator)}`",
                location=declaration.location,
                remedy="make both the same, or give one another overload name, e.g. "
                f"`{operator.name.partition('.')[0]}.other`",
            )
    return first


def _shown(operator: Operator) -> str:
    tags = f" with the tags {', '.join(operator.tags)}" if operator.tags else ""
    return operator.schema + tags


def _tagged(operator: Operator) -> Operator:
    """With PyTorch's tag for its variant."""
    tag = _TAG_OF.get(operator.variant)
    if tag is None or tag not in tag_names() or not returns_tensors(operator):
        return operator
    return replace(operator, tags=tuple(sorted({*operator.tags, tag})))


def _reject_second(earlier: Declaration | None, declaration: Declaration) -> None:
    if earlier is None:
        return
    first, second = earlier.operator.name, declaration.operator.name
    raise SchemaInvalid(
        f"`{second}` takes the same arguments as `{first}` ({earlier.location}): PyTorch could not tell "
        "which of the two a call means",
        location=declaration.location,
        remedy="give them different arguments, or different names",
    )


def _counterparts(
    members: Mapping[Variant, Declaration], declared: Mapping[str, Declaration]
) -> dict[Variant, Operator]:
    """The functional and the out variant of a group that its ``members`` lack, by variant.

    An out variant that writes to other arguments too, such as a cache, has none that is functional: what
    stands in its place writes to them as well.
    """
    made: dict[Variant, Operator] = {}
    origin = next(
        (members[v] for v in (Variant.FUNCTIONAL, Variant.INPLACE, Variant.OUT) if v in members),
        None,
    )
    if origin is None or not returns_tensors(origin.operator):
        return made
    base = base_name(origin.operator)
    alike = stand_in(origin.operator)
    tags = {tag for member in members.values() for tag in member.operator.tags} & _INHERITED_TAGS
    if Variant.FUNCTIONAL not in members:
        functional = with_base_name(_functional(alike, frozenset(tags)), base)
        _reject_misfit(functional, origin, declared)
        made[Variant.FUNCTIONAL] = functional
    if Variant.OUT not in members:
        out = with_base_name(_out(alike, frozenset(tags)), base)
        # One that is declared belongs to another group, which has a functional of its own.
        if out.name not in declared:
            made[Variant.OUT] = out
    return made


@functools.cache
def _functional(origin: Operator, tags: frozenset[str]) -> Operator:
    """The variant of ``origin`` that writes to nothing, or to other arguments than ``out`` and ``self``."""
    function = custom_function(origin)
    schema = _functional_schema(function)
    if function.func.arguments.post_self_positional_mutable:
        schema = _mutable_schema(function, schema.name)
    return _generated(schema, tags, origin)


@functools.cache
def _out(origin: Operator, tags: frozenset[str]) -> Operator:
    """The out variant of a functional or in-place ``origin``."""
    from opsmith.schema.torch_names import functional_to_out_signature, self_to_out_signature

    to_out = {
        Variant.FUNCTIONAL: functional_to_out_signature,
        Variant.INPLACE: self_to_out_signature,
    }[origin.variant]
    return _generated(to_out(custom_function(origin).func), tags, origin)


def _functional_schema(function: NativeFunction) -> FunctionSchema:
    """The functional schema of an in-place or out variant; results keep the names of multiple outs."""
    from opsmith.schema.torch_names import OperatorName, Return

    func = function.func
    signature = func.signature(keep_return_names=True)
    if len(func.arguments.out) > 1:
        named = tuple(
            Return(name=argument.name, type=result.type, annotation=None)
            for argument, result in zip(func.arguments.out, signature.returns, strict=True)
        )
        signature = replace(signature, returns=named)
    overload = func.name.overload_name
    if func.arguments.out:
        # `out` and `Scalar_out` by the rule; what is named otherwise (`values`) has one functional.
        overload = overload.removesuffix("_out") if overload.endswith("_out") else ""
    base = replace(func.name.name, inplace=False)
    return signature.with_name(OperatorName(base, overload))


def _mutable_schema(function: NativeFunction, name: OperatorName) -> FunctionSchema:
    """The schema of what returns an out variant's results and writes to the same other arguments."""
    from opsmith.schema.torch_names import Return

    func = function.func
    returns = tuple(
        Return(name=None, type=argument.type, annotation=None) for argument in func.arguments.out
    )
    return replace(func, name=name, arguments=replace(func.arguments, out=()), returns=returns)


def _generated(schema: FunctionSchema, tags: frozenset[str], origin: Operator) -> Operator:
    written = replace(origin, schema=str(schema), tags=tuple(sorted({GENERATED, *tags})))
    return _tagged(operator_of(custom_function(written)))


def _reject_misfit(
    functional: Operator, origin: Declaration, declared: Mapping[str, Declaration]
) -> None:
    """A variant needs a functional by this name, and one is declared that does not fit."""
    if functional.name not in declared:
        return
    other = declared[functional.name]
    raise SchemaInvalid(
        f"`{origin.operator.name}` is no variant of `{functional.name}` ({other.location}), which takes "
        f"other arguments or returns something else: `{other.operator.schema}`",
        location=origin.location,
        remedy=f"declare `{functional.schema}`, with the same names, types and defaults, or rename one",
    )
