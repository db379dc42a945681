"""Which library serves which operator for which dtypes, and what comes after the last of them."""

from __future__ import annotations

from dataclasses import dataclass

from opsmith.plan import Entry, Plan, claims_of

# The text for a kernel that leaves nothing to others.
ALL = "all"


@dataclass(frozen=True)
class Link:
    """One kernel that serves an operator: ``takes`` are its dtypes and dim orders, or :data:`ALL`.

    ``place`` is where it computes.
    """

    library: str
    kernel: str
    takes: str
    place: str


@dataclass(frozen=True)
class ServedOperator:
    """An operator's kernels in the order in which they are asked.

    ``last_resort`` is the route of calls that none takes: ``fallback``, ``denied`` or ``missing``; empty
    where the last kernel takes all.
    """

    name: str
    chain: tuple[Link, ...]
    last_resort: str


def served_operators(plan: Plan) -> tuple[ServedOperator, ...]:
    """The operators of ``plan`` that some kernel serves, sorted by name."""
    return tuple(served for entry in plan.entries if (served := served_operator(entry)).chain)


def entry_json(entry: Entry) -> dict[str, object]:
    """How the operator of ``entry`` is served, in plain values."""
    return {
        "name": entry.name,
        "route": entry.route.value,
        "place": entry.where or None,
        "source": entry.source,
        "library": entry.library,
        "why": entry.why,
        "served_by": served_operator(entry),
    }


def served_operator(entry: Entry) -> ServedOperator:
    """The kernels that serve the operator of ``entry``; an empty chain where it has none."""
    return ServedOperator(
        entry.name,
        tuple(
            Link(
                kernel.library,
                kernel.symbol,
                claims_of(kernel) or ALL,
                link.where,
            )
            for link in entry.chain
            if (kernel := link.kernel) is not None
        ),
        entry.other_dtypes.value if entry.other_dtypes else "",
    )
