"""Which kernel for the meta device a custom operator gets, from the description or by rule.

PyTorch traces with such kernels (torch.compile, torch.export), and derived code allocates by them.  A
rule is used only where it cannot be wrong; everything else needs ``meta:`` in the description.  An operator
of ATen has PyTorch's; what the description gives takes its place in derived code only, and of those that
PyTorch has in Python, opsmith's (``meta_functions.yaml``).  Called by the resolver.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from opsmith.description import GivenMeta, Library, read_document
from opsmith.description.custom import DescribedMeta, read_meta
from opsmith.errors import KernelDuplicate, KernelRejected, nearest
from opsmith.plan.derivation import is_pointwise
from opsmith.plan.model import Meta, MetaRule, computes_by_element
from opsmith.schema import Catalogue, Group, Operator, Variant
from opsmith.schema.catalogue import function_schema, result_types

_FUNCTIONS = Path(__file__).with_name("meta_functions.yaml")


class Metas:
    """The meta kernels of the custom operators in ``catalogue``.

    Raises :class:`KernelRejected` for a ``meta:`` that does not fit its operator, and
    :class:`KernelDuplicate` for two of one library in one group.
    """

    def __init__(
        self, libraries: Sequence[Library], served: Collection[str], catalogue: Catalogue
    ) -> None:
        self._served = served
        self.external_namespaces = frozenset(
            each.namespace for library in libraries for each in library.external_namespaces
        )
        """The namespaces of operators that others define."""
        self._catalogue = catalogue
        self._given: dict[str, GivenMeta] = {}
        self._found: dict[str, Meta | None] = {}
        for library in libraries:
            here: dict[str, GivenMeta] = {}
            for meta in library.metas:
                name = self._shaped(meta.operator)
                _reject_second(here.setdefault(name, meta), meta)
                self._check(meta, catalogue.operators[name])
                self._given.setdefault(name, meta)
        for meta in meta_functions():
            if meta.operator in catalogue.operators:
                self._given.setdefault(meta.operator, meta)
        self.catalogue = _with_metas(catalogue, self._given)
        """The catalogue, in which the operators that the description shapes have a meta kernel."""

    def of(self, operator: Operator) -> Meta | None:
        """The meta kernel of ``operator``; None where nothing says how its results are shaped."""
        if operator.name not in self._found:
            self._found[operator.name] = self._of(operator)
        return self._found[operator.name]

    def _of(self, operator: Operator) -> Meta | None:
        functional = self._shaped(operator.name)
        if functional != operator.name:
            shaped = self._rule(self._catalogue.operators[functional])
            return shaped and Meta(operator.name, MetaRule.FROM_FUNCTIONAL, (functional,))
        return self._rule(operator)

    def given_for(self, operator: Operator) -> Meta | None:
        """The meta that the description gives for an operator of ATen, instead of PyTorch's meta kernel."""
        name = self._shaped(operator.name)
        given = self._given.get(name)
        return _meta(name, given) if given and operator.namespace == "aten" else None

    def _shaped(self, name: str) -> str:
        """The operator whose meta shapes all variants of the group: the functional one."""
        group = self._catalogue.group_of.get(name)
        return group.functional if group is not None and group.functional else name

    def _rule(self, operator: Operator) -> Meta | None:
        if given := self._given.get(operator.name):
            return _meta(operator.name, given)
        if operator.namespace in self.external_namespaces and operator.variant.returns_new:
            return Meta(operator.name, MetaRule.ELSEWHERE)
        if operator.schema.endswith("-> ()"):
            return Meta(operator.name, MetaRule.NOTHING)
        group = self._catalogue.group_of.get(operator.name)
        if operator.variant is not Variant.FUNCTIONAL or result_types(operator) != ("Tensor",):
            return None
        if group is not None and self._only_inplace(group):
            # The functional copies self and runs the in-place kernel on the copy.
            return Meta(operator.name, MetaRule.SAME_AS, ("self",))
        if computes_by_element(operator) if group is None else is_pointwise(group, self._catalogue):
            return Meta(operator.name, MetaRule.BROADCAST)
        return None

    def _only_inplace(self, group: Group) -> bool:
        with_kernel = [variant for variant, name in group.members() if name in self._served]
        return with_kernel == [Variant.INPLACE]

    def _check(self, meta: GivenMeta, operator: Operator) -> None:
        group = self._catalogue.group_of.get(operator.name)
        if operator.namespace == "aten" and group is not None and group.structured:
            raise KernelRejected(
                f"`{meta.operator}` is structured: PyTorch's meta function, which is compiled, checks and "
                "shapes its variants",
                location=meta.location,
                remedy="remove `meta`",
            )
        if not meta.same_as:
            return
        func = function_schema(operator)
        kinds = {argument.name: str(argument.type) for argument in func.arguments.flat_all}
        returns = result_types(operator)
        if len(meta.same_as) != len(returns):
            raise KernelRejected(
                f"`same_as` names {len(meta.same_as)}, but `{operator.name}` returns {len(returns)}: "
                f"`{operator.schema}`",
                location=meta.location,
                remedy="name one argument for each result, e.g. "
                f"`same_as: [{', '.join(['self'] * max(len(returns), 1))}]`, or a C++ function",
            )
        for name, kind in zip(meta.same_as, returns, strict=True):
            if name not in kinds:
                raise KernelRejected(
                    f"`{operator.name}` has no argument `{name}`{nearest(name, kinds)}",
                    location=meta.location,
                    remedy=f"its schema is {operator.schema}",
                )
            if kinds[name] != kind:
                raise KernelRejected(
                    f"the result of `{operator.name}` is a `{kind}`, which cannot be like `{name}`, a "
                    f"`{kinds[name]}`",
                    location=meta.location,
                    remedy=f"name an argument that is a `{kind}`, or a C++ function that makes the result",
                )


class _Shaped(msgspec.Struct, forbid_unknown_fields=True):
    op: str
    meta: str | DescribedMeta


@functools.cache
def meta_functions() -> tuple[GivenMeta, ...]:
    """What opsmith says of the shapes of operators of ATen, whatever library has the kernels."""
    document = read_document(_FUNCTIONS)
    return tuple(
        read_meta(document, ("metas", index), shaped.op, shaped.meta)
        for index, shaped in enumerate(document.convert(list[_Shaped], "metas"))
    )


def is_opsmiths(meta: Meta) -> bool:
    """Whether the function is one of :func:`meta_functions`, which no author has to define."""
    return meta.location is not None and meta.location.path == _FUNCTIONS


def _meta(operator: str, given: GivenMeta) -> Meta:
    if given.symbols:
        return Meta(operator, MetaRule.GIVEN, given.symbols, given.location)
    return Meta(operator, MetaRule.SAME_AS, given.same_as, given.location)


def _with_metas(catalogue: Catalogue, names: Collection[str]) -> Catalogue:
    shaped = {name: replace(catalogue.operators[name], meta=True) for name in names}
    return replace(catalogue, operators={**catalogue.operators, **shaped})


def _reject_second(earlier: GivenMeta, meta: GivenMeta) -> None:
    if earlier is meta:
        return
    raise KernelDuplicate(
        f"`meta` is given twice for the variants of `{meta.operator}`; first at {earlier.location}",
        location=meta.location,
        remedy="keep one: it shapes the results of all variants",
    )
