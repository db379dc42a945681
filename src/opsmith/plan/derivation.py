"""Which variant of a group can be derived from which, from the schemas alone.

Chooses among the rules of ``derivation_rules``.  A derivation that is impossible comes back as the reason in
words, one of :class:`Obstacle`, which the plan shows.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from opsmith.description import Abi, Derive, Kernel
from opsmith.plan.derivation_rules import Derivation
from opsmith.plan.model import Elementwise, Shape, computes_by_element
from opsmith.schema import Catalogue, Group, Operator, Variant

# Where a result's shape depends on elements of masks alone: the argument that may hold one.
_MASKS = {"index.Tensor": "indices"}
_MASK_DTYPES = frozenset({"Bool", "Byte"})


@dataclass(frozen=True)
class Derived:
    """A possible derivation: ``kernel`` of another variant, and how to build around it."""

    kernel: Kernel
    derivation: Derivation
    shape: Shape | None
    elementwise: Elementwise | None


class Obstacle(Enum):
    """Why a variant cannot be derived; the value is the reason that people read."""

    DECOMPOSED = "its CompositeImplicitAutograd kernel is what makes it differentiable"
    VIEW = "a view must share its input's storage"
    RESHAPES_SELF = "`{inplace}` changes the shape or the storage of self, not its elements"
    OTHER_LAYOUT = (
        "it is for sparse, quantized, nested or mkldnn tensors, and kernels are for strided ones"
    )
    DYNAMIC_SHAPE = "the shape of `{functional}`'s result depends on its operands' elements"
    NO_META = (
        "`{functional}` has no kernel for the meta device, so nothing tells the result's shape"
    )
    NO_FUNCTIONAL = (
        "the group has no functional variant, whose meta kernel would tell the result's shape"
    )
    BETWEEN_DEVICES = "it copies from and to other devices and dtypes, which no kernel does"
    NOT_TENSORS = "`{name}` gives back something else than Tensors"
    OTHER_OPTIONS = (
        "`{available}` takes its result's dtype and device as arguments, which a call of a Python kernel "
        "does not fill from `out`"
    )
    OTHER_RESULTS = "`{wanted}` does not give back the same Tensors as `{available}`"
    OTHER_WRITES = "it writes to arguments of which the variants with a kernel return new versions"


# Pointwise operators whose result is bool whatever the operands are, by the functional's base name.
# tests/plan/test_plan.py compares this and the rule of `elementwise_result` with every meta function.
_PREDICATES = frozenset(
    "eq ne lt le gt ge isposinf isneginf signbit isnan isinf logical_not logical_and logical_or "
    "logical_xor".split()
)
# Those whose result is of Double, or as an argument says.
_OF_OTHER_DTYPE_OR_FORMAT = frozenset({"float_power", "clone"})

# Words in the names of ATen's operators whose operands or results are no strided tensors.
_OTHER_LAYOUT = re.compile(
    r"(?<!fake_)(quantize|quantized)(_|$)|(^|_)(dequantize|sparse|nested|mkldnn|coalesce)(_|$)|^to_padded"
)

# The operators that `.to(device)` comes down to, through the runtime's `_copy_from`.
_BETWEEN_DEVICES = frozenset({"copy", "copy_"})

# The variant that a library says others are to be built on.
_PREFERRED: Mapping[Derive, Variant] = {
    Derive.FUNCTIONAL: Variant.FUNCTIONAL,
    Derive.OUT: Variant.OUT,
}


def is_pointwise(group: Group, catalogue: Catalogue) -> bool:
    """Whether one of the group's operators is (:func:`computes_by_element`).

    ``_foreach_`` operators are pointwise in each Tensor of the list where they have an in-place variant.
    """
    if group.inplace and group.inplace.startswith("_foreach_"):
        return True
    return any(computes_by_element(catalogue.operators[name]) for _, name in group.members())


def elementwise_result(group: Group, catalogue: Catalogue) -> Elementwise | None:
    """The result's dtype for operands of one floating dtype, where that is known without a meta."""
    if group.functional is None or not is_pointwise(group, catalogue):
        return None
    operator = catalogue.operators[group.functional]
    base = group.functional.partition(".")[0]
    if (
        operator.results is None
        or len(operator.results) != 1
        or operator.namespace != "aten"
        or base in _OF_OTHER_DTYPE_OR_FORMAT
        or base.startswith("_foreach_")
    ):
        return None
    return Elementwise.BOOL if base in _PREDICATES else Elementwise.SAME


def derive(
    wanted: Operator,
    group: Group,
    kernels: Mapping[Variant, Kernel],
    catalogue: Catalogue,
    *,
    differentiable: bool,
) -> Derived | str:
    """How ``wanted`` is built from the group's ``kernels``, or the reason why it cannot be.

    ``differentiable``: what is built takes no gradient away (:mod:`opsmith.plan.autograd`).
    """
    if not differentiable:
        return Obstacle.DECOMPOSED.value
    reasons = []
    for derivation in _by_preference(wanted.variant, group, kernels, catalogue):
        kernel = kernels[derivation.rule.source]
        source = catalogue.operators[kernel.operator]
        obstacle = _obstacle(wanted, source, derivation, group, kernel, catalogue)
        if obstacle is None:
            return _derived(kernel, derivation, group, catalogue)
        reasons.append(
            obstacle.value.format(
                inplace=group.inplace,
                functional=group.functional,
                wanted=wanted.name,
                available=source.name,
                name=source.name if source.results is None else wanted.name,
            )
        )
    return reasons[0] if reasons else Obstacle.OTHER_WRITES.value


def _by_preference(
    wanted: Variant, group: Group, kernels: Mapping[Variant, Kernel], catalogue: Catalogue
) -> list[Derivation]:
    """The derivations from ``kernels``, best first: what the description prefers, then the cheapest."""
    return sorted(
        _cheapest(wanted, tuple(kernels), is_pointwise(group, catalogue)),
        key=lambda each: _PREFERRED.get(kernels[each.rule.source].derive) is not each.rule.source,
    )


@functools.cache
def _cheapest(
    wanted: Variant, sources: tuple[Variant, ...], pointwise: bool
) -> tuple[Derivation, ...]:
    """The cheapest derivation from each of the ``sources``, in order."""
    if wanted.returns_new:
        wanted = Variant.FUNCTIONAL
    best: dict[Variant, Derivation] = {}
    for derivation in Derivation:
        rule = derivation.rule
        if rule.wanted is wanted and rule.source in sources and (pointwise or not rule.pointwise):
            best.setdefault(rule.source, derivation)
    return tuple(best.values())


def _obstacle(
    wanted: Operator,
    source: Operator,
    derivation: Derivation,
    group: Group,
    kernel: Kernel,
    catalogue: Catalogue,
) -> Obstacle | None:
    if wanted.view or source.view:
        return Obstacle.VIEW
    if Variant.INPLACE in (wanted.variant, source.variant) and any(
        "inplace_view" in operator.tags for operator in (wanted, source)
    ):
        return Obstacle.RESHAPES_SELF
    if wanted.namespace == "aten" and _OTHER_LAYOUT.search(wanted.name.partition(".")[0]):
        return Obstacle.OTHER_LAYOUT
    if wanted.name in _BETWEEN_DEVICES:
        return Obstacle.BETWEEN_DEVICES
    if wanted.results is None or source.results is None:
        return Obstacle.NOT_TENSORS
    if [result.many for result in wanted.results] != [result.many for result in source.results]:
        return Obstacle.OTHER_RESULTS
    # Generated C++ fills them: see emit/derived.py.
    if kernel.abi.is_python and source.factory and not source.tensor_arguments:
        return Obstacle.OTHER_OPTIONS
    if derivation.rule.needs_shape:
        return _obstacle_to_allocating(group, kernel, catalogue)
    return None


def shape_is_dynamic(functional: Operator, kernel: Kernel) -> bool:
    """Whether nothing but elements tells the shape of ``functional``'s result, of what ``kernel`` takes.

    Source: PyTorch's tag.  Where such an operator has a meta kernel, that raises.
    """
    if "dynamic_output_shape" not in functional.tags:
        return False
    taken = dict(kernel.dtypes).get(_MASKS.get(functional.name, ""), ())
    return not taken or not _MASK_DTYPES.isdisjoint(taken)


def _obstacle_to_allocating(group: Group, kernel: Kernel, catalogue: Catalogue) -> Obstacle | None:
    functional = catalogue.operators[group.functional] if group.functional else None
    if functional is not None and shape_is_dynamic(functional, kernel):
        return None if kernel.abi is Abi.EXECUTORCH else Obstacle.DYNAMIC_SHAPE
    if _shape(group, kernel, catalogue) is not None:
        return None
    return Obstacle.NO_META if functional is not None else Obstacle.NO_FUNCTIONAL


def _shape(group: Group, kernel: Kernel, catalogue: Catalogue) -> Shape | None:
    """The source of the results' shapes and dtypes, if any."""
    functional = catalogue.operators[group.functional] if group.functional else None
    if kernel.abi is Abi.EXECUTORCH and functional and shape_is_dynamic(functional, kernel):
        return Shape.KERNEL
    if group.structured:
        return Shape.STRUCTURED_META
    if functional is not None and functional.meta:
        return Shape.META_KERNEL
    # An operator that can work in place gives back what self is.
    return Shape.LIKE_SELF if group.inplace else None


def _derived(kernel: Kernel, derivation: Derivation, group: Group, catalogue: Catalogue) -> Derived:
    # A result of a functional kernel has its shape; only PyTorch's own meta checks what it goes to.
    needed = group.structured or derivation.rule.needs_shape
    shape = _shape(group, kernel, catalogue) if needed else None
    elementwise = elementwise_result(group, catalogue) if derivation.rule.elementwise else None
    return Derived(kernel, derivation, shape, elementwise)
