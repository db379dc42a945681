"""How a missing variant is built around another variant's kernel: one rule for each pair of variants.

``derivation`` chooses among the rules, ``emit.derived`` writes C++ by them, and the boxed kernel of Python
functions is told what they say.  docs/describe/variants.md shows them as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from opsmith.schema import Variant


class Into(Enum):
    """Where a kernel that is derived from puts its results."""

    RETURNED = "it returns them"
    NEW = "a newly allocated Tensor"
    OUT = "the derived variant's `out`, or a new Tensor where that overlaps an operand"
    SELF = "the derived variant's `self`"


@dataclass(frozen=True)
class Rule:
    """The steps around the kernel of the variant ``source`` that make the variant ``wanted`` of it.

    A mutable variant, which stands where a functional one would, is built as that is.
    An in-place kernel works on a copy of ``self`` that lies where ``into`` says.  ``elementwise``: where all
    operands are contiguous and share dtype, shape and device, the result is known without a meta function.
    ``pointwise``: for pointwise operators only.  ``why`` is the reason that people read.
    """

    wanted: Variant
    source: Variant
    into: Into
    why: str
    elementwise: bool = False
    pointwise: bool = False

    @property
    def needs_shape(self) -> bool:
        """Whether the result's shape and dtype must be known before the kernel runs."""
        return self.into is not Into.RETURNED

    @property
    def writes_back(self) -> bool:
        """Whether the results are copied to ``out`` or ``self`` after the kernel has run."""
        return self.wanted is not Variant.FUNCTIONAL and self.into is not Into.SELF


class Derivation(Enum):
    """The names of the rules; for each wanted variant the cheapest first."""

    FUNCTIONAL_FROM_OUT = "functional from out"
    FUNCTIONAL_FROM_INPLACE = "functional from inplace"
    OUT_FROM_FUNCTIONAL = "out from functional"
    OUT_FROM_INPLACE = "out from inplace"
    INPLACE_FROM_OUT = "inplace from out"
    INPLACE_FROM_OUT_TEMPORARY = "inplace from out temporary"
    INPLACE_FROM_FUNCTIONAL = "inplace from functional"

    @property
    def rule(self) -> Rule:
        return _RULES[self]


_RULES: Mapping[Derivation, Rule] = {
    Derivation.FUNCTIONAL_FROM_OUT: Rule(
        Variant.FUNCTIONAL,
        Variant.OUT,
        Into.NEW,
        "allocates the result and runs {kernel} into it",
        elementwise=True,
    ),
    Derivation.FUNCTIONAL_FROM_INPLACE: Rule(
        Variant.FUNCTIONAL,
        Variant.INPLACE,
        Into.NEW,
        "copies self into a new result and runs {kernel} on it",
    ),
    Derivation.OUT_FROM_FUNCTIONAL: Rule(
        Variant.OUT,
        Variant.FUNCTIONAL,
        Into.RETURNED,
        "runs {kernel}, resizes out and copies the result into it",
    ),
    Derivation.OUT_FROM_INPLACE: Rule(
        Variant.OUT, Variant.INPLACE, Into.OUT, "copies self into out and runs {kernel} on it"
    ),
    Derivation.INPLACE_FROM_OUT: Rule(
        Variant.INPLACE,
        Variant.OUT,
        Into.SELF,
        "runs {kernel} with out=self, which is safe for a pointwise operator",
        elementwise=True,
        pointwise=True,
    ),
    Derivation.INPLACE_FROM_OUT_TEMPORARY: Rule(
        Variant.INPLACE,
        Variant.OUT,
        Into.NEW,
        "runs {kernel} into a temporary and copies it back into self",
    ),
    Derivation.INPLACE_FROM_FUNCTIONAL: Rule(
        Variant.INPLACE,
        Variant.FUNCTIONAL,
        Into.RETURNED,
        "runs {kernel} and copies the result back into self",
        elementwise=True,
    ),
}
