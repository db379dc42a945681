"""The entries, dtypes and checks of a run, by the names that a user gives, or all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from opsmith.conformance.database import TRIED, EntryFacts
from opsmith.conformance.results import Check
from opsmith.errors import FilterInvalid, nearest

BOUNDED = (
    "bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64",
)  # fmt: skip
"""The dtypes that have ends to check."""

OPINFO_CHECKS = tuple(check for check in Check if check not in {Check.UPSTREAM, Check.FUZZ})


@dataclass(frozen=True)
class WorkUnit:
    """One entry in one dtype, with the checks that one worker makes of it in turn."""

    entry: str
    dtype: str
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Selection:
    """Entries, dtypes and checks; their product is run where an entry claims it."""

    entries: tuple[EntryFacts, ...]
    dtypes: tuple[str, ...]
    checks: tuple[Check, ...]

    def units(self) -> Iterator[WorkUnit]:
        """The work units to run, in the database's order."""
        for facts in self.entries:
            for dtype in self.dtypes:
                checks = tuple(check for check in self.checks if applies(facts, dtype, check))
                if checks:
                    yield WorkUnit(facts.name, dtype, checks)


def applies(facts: EntryFacts, dtype: str, check: Check) -> bool:
    """Whether there is anything to run of the entry in ``dtype``."""
    match check:
        case Check.BACKWARD:
            return dtype in facts.backward_dtypes
        case Check.BOUNDARY:
            return dtype in facts.dtypes and dtype in BOUNDED
        case Check.DTYPES:
            return dtype in facts.dtypes or dtype in TRIED
        case Check.OUT if not facts.out:
            return False
        case Check.IN_PLACE if not facts.in_place:
            return False
    return dtype in facts.dtypes


def select(
    known: Sequence[EntryFacts],
    operators: Iterable[str],
    dtypes: Iterable[str],
    checks: Iterable[str],
    *,
    called: Mapping[str, Collection[str]],
    aten: Collection[str],
) -> Selection:
    """The entries, dtypes and checks that are named, or all where nothing is.

    An operator is an entry's name or a pattern of such, or an ATen operator's: that stands for the
    entries that are about it, and those that called it in an earlier run (``called``).  ``aten`` are all
    ATen operators.  Raises :class:`~opsmith.errors.FilterInvalid` with the nearest names.
    """
    chosen: set[str] = set()
    for pattern in operators:
        found = matching(known, pattern, called)
        if not found:
            raise _no_entry(known, pattern, aten)
        chosen |= found
    every_dtype = sorted({dtype for facts in known for dtype in facts.dtypes}, key=dtype_order)
    return Selection(
        tuple(facts for facts in known if not chosen or facts.name in chosen),
        _named("dtype", dtypes, every_dtype),
        tuple(map(Check, _named("check", checks, [check.value for check in OPINFO_CHECKS]))),
    )


def matching(
    known: Iterable[EntryFacts], pattern: str, called: Mapping[str, Collection[str]]
) -> set[str]:
    """The names of the entries that ``pattern`` stands for."""
    by_name = {
        facts.name
        for facts in known
        if fnmatchcase(facts.name, pattern) or fnmatchcase(facts.base, pattern)
    }
    if by_name:
        return by_name
    operator = pattern.removeprefix("aten::")
    base = operator.partition(".")[0]
    about = {base, base.removesuffix("_")}
    return {
        facts.name
        for facts in known
        if facts.operator in about or operator in called.get(facts.name, ())
    }


def _no_entry(known: Sequence[EntryFacts], pattern: str, aten: Collection[str]) -> FilterInvalid:
    operator = pattern.removeprefix("aten::")
    if operator in aten:
        return FilterInvalid(
            f"OpInfo has no entry about `{operator}`, and none called it in an earlier run",
            remedy="run all entries once: opsmith conform",
        )
    return no_such("operator", pattern, [*(facts.name for facts in known), *aten])


def _named(what: str, names: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    given = tuple(dict.fromkeys(name.removeprefix("torch.") for name in names))
    for name in given:
        if name not in known:
            raise no_such(what, name, known)
    return given or tuple(known)


def no_such(what: str, name: str, known: Collection[str]) -> FilterInvalid:
    """The error for a name of which there is none."""
    remedy = {
        "operator": "name an entry of OpInfo such as nn.functional.gelu or linalg.*, or an ATen operator",
        "dtype": f"name one of {', '.join(known)}",
        "check": f"name one of {', '.join(known)}",
    }[what]
    return FilterInvalid(f"there is no {what} `{name}`{nearest(name, known)}", remedy=remedy)


# As people ask for them; what is not here follows.
_ORDER = (
    "float32 bfloat16 float16 float64 complex64 complex128 complex32 int8 int16 int32 int64 uint8 bool"
).split()


def dtype_order(dtype: str) -> tuple[int, str]:
    """The key that sorts dtypes as people ask for them."""
    return _ORDER.index(dtype) if dtype in _ORDER else len(_ORDER), dtype
