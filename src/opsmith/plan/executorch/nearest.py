"""The kernel that comes closest to a call that nobody serves, and what of the call it does not take.

Read by ``resolver`` for the libraries of a description and by ``built_libraries`` for built ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from opsmith.plan.executorch.kernel_keys import CallForm
from opsmith.plan.executorch.supported import Supported, mismatches


@dataclass(frozen=True)
class OfferedKernel:
    """A kernel that a library has: its operator with the namespace, the schema's arguments, and its library.

    ``compiled_for`` are the keys of the only calls that it knows; None where it knows all that it ``takes``.
    """

    operator: str
    arguments: Sequence[str]
    library: str
    symbol: str
    takes: Supported
    compiled_for: Collection[str] | None = None

    def against(self, form: CallForm) -> Iterator[str]:
        """All that of ``form`` it does not take, each in words."""
        yield from (found := tuple(mismatches(self.arguments, self.takes, form)))
        if not found and self.compiled_for is not None and form.key not in self.compiled_for:
            yield "this call: the library was built for other programs"


@dataclass(frozen=True)
class NearestKernel:
    """A kernel that a call could have had.

    ``differs`` is what of the call it does not take, each in words: a dtype, a dim order; empty where it is
    for another overload of the operator.
    """

    operator: str
    library: str
    symbol: str
    differs: tuple[str, ...]

    def __str__(self) -> str:
        if self.differs:
            return f"{self.symbol} of {self.library} does not take {' nor '.join(self.differs)}"
        return f"{self.symbol} of {self.library} is for {self.operator}"


def nearest_kernel(form: CallForm, offered: Iterable[OfferedKernel]) -> NearestKernel | None:
    """Of the kernels for the operator of ``form`` the one that takes most of it.

    Where there is none, one for another overload of it; the first of those that are equally near.
    """
    same: list[NearestKernel] = []
    others: list[NearestKernel] = []
    name = form.operator.partition(".")[0]
    for each in offered:
        if each.operator == form.operator:
            differs = tuple(dict.fromkeys(each.against(form)))
            same.append(NearestKernel(each.operator, each.library, each.symbol, differs))
        elif each.operator.partition(".")[0] == name:
            others.append(NearestKernel(each.operator, each.library, each.symbol, ()))
    return min(same, key=lambda found: len(found.differs)) if same else next(iter(others), None)
