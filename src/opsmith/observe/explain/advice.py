"""Which kernels to write next, so that the fewest of them take the most time off the CPU.

Reads what ran on the CPU, by the fallback or in kernels on copies, the plan, and what one kernel would serve:
all variants of a group, the operators behind a DispatchStub, or the parts of a composite.  Decides no route:
the description has to name the kernel.  ``opsmith fallbacks`` and ``opsmith coverage`` print it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opsmith.plan import Place, Plan, Route
from opsmith.schema import GENERATED, Catalogue, Composite, read_stubs


@dataclass(frozen=True)
class HostCalls:
    """The calls of one operator that ran on the CPU from one place, their seconds and bytes moved.

    ``within`` are the composites that were being run meanwhile.
    """

    operator: str
    calls: int
    seconds: float
    bytes_moved: int
    within: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Advice:
    """A kernel to write, and what it would take off the CPU.

    ``operators`` are those that ran there and that it would serve, ``seconds`` and ``calls`` theirs: the
    time saved is at most that, as the kernel takes time too.  ``remedy`` is the line for the manifest.
    """

    operators: tuple[str, ...]
    seconds: float
    calls: int
    remedy: str


def kernels_to_write(
    calls: Sequence[HostCalls], plan: Plan, catalogue: Catalogue, share: float = 1.0
) -> tuple[Advice, ...]:
    """The kernels that would take ``share`` of the time off the CPU, the most profitable first.

    Greedy: each is the one that saves most beside those before it, which for such a cover is within
    1 - 1/e of the best choice of as many (Nemhauser, Wolsey and Fisher, 1978).  A kernel that serves
    several groups stands before one for a group alone only where it saves more.
    """
    served = _served_by(calls, plan, catalogue)
    left = set(range(len(calls)))
    enough = (1 - share) * sum(each.seconds for each in calls)
    advice: list[Advice] = []
    while left and (not advice or sum(calls[i].seconds for i in left) > enough):
        remedy, best = max(
            served.items(), key=lambda item: _saved(calls[i] for i in item[1] & left)
        )
        taken = [calls[i] for i in sorted(best & left)]
        advice.append(
            Advice(
                tuple(sorted({each.operator for each in taken})),
                sum(each.seconds for each in taken),
                sum(each.calls for each in taken),
                remedy,
            )
        )
        left -= best
    return tuple(advice)


def _saved(calls: Iterable[HostCalls]) -> tuple[float, int, int]:
    each = list(calls)
    return (
        sum(one.seconds for one in each),
        sum(one.bytes_moved for one in each),
        sum(one.calls for one in each),
    )


def _served_by(
    calls: Sequence[HostCalls], plan: Plan, catalogue: Catalogue
) -> dict[str, frozenset[int]]:
    """For each remedy the places in ``calls`` that it would serve; those for one group first."""
    groups: dict[tuple[str, ...], set[int]] = {}
    composites: dict[str, set[int]] = {}
    for place, each in enumerate(calls):
        known = each.operator in plan.by_name
        members = plan.group_of(each.operator) if known else (each.operator,)
        groups.setdefault(members, set()).add(place)
        for composite in each.within:
            if _can_have_a_kernel(composite, plan, catalogue):
                composites.setdefault(composite, set()).add(place)
    found = {
        _for_group(calls[min(places)].operator, plan, catalogue): frozenset(places)
        for places in groups.values()
    }
    wider = [(_entry("op", name, plan), places) for name, places in composites.items()]
    wider += [(_entry("stub", name, plan), places) for name, places in _stubs(groups).items()]
    for remedy, places in sorted(wider):
        if not any(places <= members for members in groups.values()):
            found.setdefault(remedy, frozenset(places))
    return found


def _can_have_a_kernel(composite: str, plan: Plan, catalogue: Catalogue) -> bool:
    """Whether a kernel can take a composite's place and leave the gradient to PyTorch's formula."""
    entry, operator = plan.by_name.get(composite), catalogue.operators.get(composite)
    return (
        entry is not None
        and operator is not None
        and entry.route is Route.COMPOSITE
        and operator.composite is Composite.EXPLICIT
        and not operator.view
    )


def _stubs(groups: dict[tuple[str, ...], set[int]]) -> dict[str, set[int]]:
    """The DispatchStubs that serve these groups without the help of another stub."""
    known = read_stubs()
    found: dict[str, set[int]] = {}
    for members, places in groups.items():
        for caller in filter(None, map(known.callers.get, members)):
            if len(caller.stubs) == 1 and not known.obstacle(caller.stubs[0]):
                found.setdefault(caller.stubs[0], set()).update(places)
    return found


def _for_group(operator: str, plan: Plan, catalogue: Catalogue) -> str:
    entry = plan.by_name.get(operator)
    # A kernel on copies is the host's: the device wants one of its own.
    on_copies = entry is not None and entry.place is Place.COPIES
    if entry is not None and entry.kernel is not None and not (entry.is_on_cpu or on_copies):
        kernel = entry.kernel
        return f"let the kernel `{kernel.symbol}` ({kernel.location}) take these calls too"
    group = entry.group if entry is not None else None
    named = operator
    # The out variant, from which the others are derived; not one that PyTorch itself has generated.
    if group is not None and group.out and GENERATED not in catalogue.operators[group.out].tags:
        named = group.out
    structured = group is not None and group.structured
    return _entry("op", named, plan) + ("\n    structured: true" if structured else "")


def _entry(key: str, name: str, plan: Plan) -> str:
    """The manifest's entry for a kernel."""
    symbol = name.rpartition("::")[2].replace(".", "_").removesuffix("_stub")
    return f"  - {key}: {name}\n    kernel_name: {plan.backend}::{symbol}"
