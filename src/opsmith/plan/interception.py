"""Which composites are intercepted: run by one call of the fallback instead of part by part.

Follows what PyTorch decomposes a composite into through this plan's routes, and refuses what one call on the
CPU could not equal.  Called by the resolver for operators on the route ``composite``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from opsmith.description import Fallback
from opsmith.errors import InterceptionRejected, Location
from opsmith.plan.attention import ATTENTION, FORWARD
from opsmith.plan.model import Entry, Interception, Route
from opsmith.schema import Catalogue, Composite, Operator, read_parts

_RANDOM = "nondeterministic_seeded"
# `Tensor(a) self`, `Tensor(a -> *)`, and not `Tensor(a!) self`.
_ALIAS = re.compile(r"Tensor\([a-z|]+( -> [^)]*)?\)")
_PLACEMENT = re.compile(r"\b(Device|Layout)\b")
_GENERATOR = re.compile(r"\bGenerator\b")
# Composites with such an argument draw random numbers for that only.
_DROPOUT = re.compile(r"\bfloat dropout(_p)?\b")


# The operators that an accelerator is bought for: those that torch.utils.flop_counter counts. Where the
# device has a kernel for one, `auto` leaves it the work.
_HEAVY = frozenset(
    "mm addmm bmm baddbmm _scaled_mm convolution convolution_overrideable convolution_backward "
    "convolution_backward_overrideable _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_fused_attention_overrideable".split()
)


@dataclass(frozen=True)
class _Outcome:
    """A possible outcome of a call: how often it falls back (2: twice or more), and whether kernels serve it.

    ``heavy``: a kernel serves work that is never taken from the device; ``raises``: some part is denied,
    or missing.
    """

    falls: int = 0
    served: bool = False
    heavy: bool = False
    raises: bool = False

    def and_then(self, other: _Outcome) -> _Outcome:
        return _Outcome(
            min(2, self.falls + other.falls),
            self.served or other.served,
            self.heavy or other.heavy,
            self.raises or other.raises,
        )


_NOTHING = frozenset({_Outcome()})
_OF_ROUTE = {
    Route.FALLBACK: _Outcome(falls=1),
    Route.DENIED: _Outcome(raises=True),
    Route.MISSING: _Outcome(raises=True),
}


def decompositions(operator: Operator, catalogue: Catalogue) -> tuple[Mapping[str, int], ...]:
    """The ways in which PyTorch decomposes a composite: how often it calls which operator."""
    group = catalogue.group_of.get(operator.name)
    if (
        operator.composite is Composite.NON_FUNCTIONAL
        and group is not None
        and group.structured
        and group.out is not None
    ):
        return ({group.out: 1},)
    return read_parts().parts.get(operator.name, ())


def draws_from_generator(operator: Operator) -> bool:
    """Whether the operator draws random numbers from a Generator that it is given."""
    return _RANDOM in operator.tags and _GENERATOR.search(operator.schema) is not None


class Interceptions:
    """The composites that a fallback policy intercepts.

    ``entry_of`` gives the plan's entry of an operator as it is without `intercept`; ``last_resort`` the route
    and the reason by the policy; ``differentiated`` tells of operators whose autograd key the description
    provides for.
    """

    def __init__(
        self,
        policy: Fallback,
        catalogue: Catalogue,
        entry_of: Callable[[Operator], Entry],
        last_resort: Callable[[str], tuple[Route, str]],
        differentiated: Callable[[Entry, Operator], bool],
    ) -> None:
        self._catalogue = catalogue
        self._entry_of = entry_of
        self._last_resort = last_resort
        self._differentiated = differentiated
        self._auto = policy.intercept_auto
        self._listed = policy.intercept
        self._named: dict[str, Location] = {}
        for named in policy.intercept:
            for name in catalogue.variants_of(named.name):
                self._named.setdefault(name, named.location)
        self._outcomes: dict[str, frozenset[_Outcome]] = {}

    def intercepted(self, operator: Operator, entry: Entry) -> Entry | None:
        """The entry of a composite that is intercepted, in the place of ``entry``; None if it is not."""
        location = self._named.get(operator.name, self._auto)
        if location is None or self._obstacle(operator, entry):
            return None
        if operator.name not in self._named and not self._gains(operator):
            return None
        return replace(
            entry,
            route=Route.FALLBACK,
            source=str(location),
            why=f"intercepted ({location}): one call on the CPU, in the place of "
            f"{self._parts_in_words(operator)}",
            interception=Interception(operator.composite, self._draws(operator)),
        )

    def check_named(self, entries: Mapping[str, Entry]) -> None:
        """Raises :class:`InterceptionRejected` for an operator that the policy names, and that is not."""
        for named in self._listed:
            entry = entries[named.name]
            if entry.interception is None:
                operator = self._catalogue.operators[named.name]
                raise InterceptionRejected(
                    f"`{operator.name}` cannot be intercepted: {self._obstacle(operator, entry)}",
                    location=named.location,
                    remedy=f"take `{operator.name}` out of `intercept`",
                )

    # ---- what stands against it

    def _obstacle(self, operator: Operator, entry: Entry) -> str:
        """Why ``operator`` is not, or must not be, run as one call; empty where it can."""
        if operator.composite is Composite.NONE and entry.route is Route.FALLBACK:
            return "PyTorch does not decompose it, so that the fallback runs it as one call already"
        if entry.route is not Route.COMPOSITE:
            return f"it would not be decomposed: its route is `{entry.route.value}`, {entry.why}"
        route, reason = self._last_resort(operator.name)
        if route is not Route.FALLBACK:
            return reason
        if operator.view or _ALIAS.search(operator.schema):
            return "its result can be a view of its argument, and autograd has to see a view being made"
        if not operator.results:
            return "it returns something else than Tensors"
        if operator.tensor_arguments and _PLACEMENT.search(operator.schema):
            return "it can be asked for another device or layout"
        if not operator.tensor_arguments and operator.composite is Composite.IMPLICIT:
            return "it takes no Tensor that would tell the device"
        if self._differentiated(entry, operator):
            return "the description says how it is differentiated, and that calls its parts"
        if reason := read_parts().unfit.get(operator.name, ""):
            return reason
        if not self._decompositions(operator):
            return "PyTorch is not known to decompose it into operators that a device can lack"
        if self._draws(operator) and not _DROPOUT.search(operator.schema):
            return (
                "it draws random numbers and takes no Generator: they would be the CPU's, not the "
                "device's"
            )
        return ""

    def _draws(self, operator: Operator) -> bool:
        """Whether the operator, or what it is made of, draws random numbers with no Generator of its own."""
        if _GENERATOR.search(operator.schema):
            return False
        waiting, seen = [operator], {operator.name}
        while waiting:
            one = waiting.pop()
            if _RANDOM in one.tags:
                return True
            for part in {part for calls in self._decompositions(one) for part in calls} - seen:
                seen.add(part)
                waiting.append(self._catalogue.operators[part])
        return False

    # ---- what it gains

    def _gains(self, operator: Operator) -> bool:
        """Whether some call would fall back more than once, and none is the device's own work."""
        if operator.name == ATTENTION and self._has_kernel(FORWARD):
            return False
        outcomes = self._of_parts(operator)
        return any(outcome.falls > 1 for outcome in outcomes) and not any(
            outcome.raises or outcome.heavy or (outcome.served and outcome.falls < 2)
            for outcome in outcomes
        )

    def _has_kernel(self, name: str) -> bool:
        operator = self._catalogue.operators.get(name)
        return operator is not None and self._entry_of(operator).kernel is not None

    def _decompositions(self, operator: Operator) -> tuple[Mapping[str, int], ...]:
        return decompositions(operator, self._catalogue)

    def _of_parts(self, operator: Operator) -> frozenset[_Outcome]:
        """The possible outcomes of a composite's call when PyTorch decomposes it."""
        found: frozenset[_Outcome] = frozenset()
        for calls in self._decompositions(operator):
            together = _NOTHING
            for part, times in calls.items():
                for _ in range(times):
                    together = frozenset(
                        before.and_then(after) for before in together for after in self._of(part)
                    )
            found |= together
        return found or _NOTHING

    def _of(self, name: str) -> frozenset[_Outcome]:
        """The possible outcomes of a call of the operator ``name``."""
        if name not in self._outcomes:
            self._outcomes[name] = _NOTHING  # meanwhile: a composite may call itself
            operator = self._catalogue.operators[name]
            route = self._entry_of(operator).route
            served = _Outcome(served=True, heavy=name.partition(".")[0] in _HEAVY)
            self._outcomes[name] = (
                self._of_parts(operator)
                if route is Route.COMPOSITE
                else frozenset({_OF_ROUTE.get(route, served)})
            )
        return self._outcomes[name]

    def _parts_in_words(self, operator: Operator) -> str:
        """The parts of the decomposition that falls back most, and which of them do."""

        def falls(part: str) -> int:
            return max(outcome.falls for outcome in self._of(part))

        calls = max(
            self._decompositions(operator),
            key=lambda calls: sum(falls(part) * times for part, times in calls.items()),
        )
        falling = [
            f"`{part}`{' (more than once)' if times > 1 else ''}"
            for part, times in calls.items()
            if falls(part)
        ]
        if not falling:
            return f"{_listed([f'`{part}`' for part in calls])}, none of which falls back"
        others = len(calls) - len(falling)
        also = f", and {others} more that need not" if others else ""
        return f"{_listed(falling)}, which fall{'s' if len(falling) == 1 else ''} back{also}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
