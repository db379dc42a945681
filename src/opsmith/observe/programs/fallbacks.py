"""The calls of a program on the CPU, the kernel to write first, and whether there were more than allowed.

Runs the program as a process of its own, which writes its counts when it ends; those of all processes
that it starts are added up.  ``opsmith fallbacks`` prints what is found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opsmith.base.trusted_files import read_text
from opsmith.errors import BudgetInvalid, FileMissing, Location, OperatorUnknown, nearest
from opsmith.observe.explain.advice import Advice, HostCalls, kernels_to_write
from opsmith.observe.programs.process import Program
from opsmith.plan import Plan
from opsmith.runtime.records.fallbacks import (
    CALLERS_VARIABLE,
    REPORT_VARIABLE,
    FallbackCount,
    FallbackReport,
    Fallbacks,
    ranked,
)
from opsmith.schema import Catalogue


@dataclass(frozen=True)
class FallbackRun:
    """How a program ended and what ran on the CPU in its processes.

    ``status`` is its exit status, 128 and the signal's number where a signal ended it.  ``description``
    is the loaded backend's ``backend.yaml``; None, where the program loaded no backend.
    """

    status: int
    description: str | None
    fallbacks: Fallbacks


def run_program(program: Program, *, backend: str | None, callers: bool) -> FallbackRun:
    """Runs ``program`` to its end and gathers what ran on the CPU; ``backend`` is loaded for it, if given.

    Raises :class:`~opsmith.errors.FileMissing`.
    """
    status, reports = program.run_reporting(
        REPORT_VARIABLE,
        FallbackReport,
        backend=backend,
        environment={CALLERS_VARIABLE: "1"} if callers else {},
    )
    return FallbackRun(
        status,
        reports[0].description if reports else None,
        added(report.fallbacks for report in reports),
    )


def added(reports: Iterable[Fallbacks]) -> Fallbacks:
    """The counts of several processes as one."""
    sums: dict[str, FallbackCount] = {}
    for report in reports:
        for count in report.counts:
            known = sums.get(count.operator)
            sums[count.operator] = count if known is None else _sum(known, count)
    return ranked(iter(sums.values()))


def _sum(one: FallbackCount, other: FallbackCount) -> FallbackCount:
    reason = one.reason if one.reason == other.reason else f"{one.reason}; {other.reason}"
    return replace(
        one,
        calls=one.calls + other.calls,
        seconds=one.seconds + other.seconds,
        bytes_moved=one.bytes_moved + other.bytes_moved,
        reason=reason,
        callers=dict(Counter(one.callers) + Counter(other.callers)),
        denied=one.denied + other.denied,
        kernel_calls=one.kernel_calls + other.kernel_calls,
    )


def first_kernel(fallbacks: Fallbacks, plan: Plan, catalogue: Catalogue) -> Advice | None:
    """The kernel worth writing first; None where nothing ran on the CPU."""
    calls = [
        HostCalls(count.operator, count.calls, count.seconds, count.bytes_moved)
        for count in fallbacks.counts
        if count.calls
    ]
    return next(iter(kernels_to_write(calls, plan, catalogue, share=0.0)), None)


# ---- what is allowed


@dataclass(frozen=True)
class Gate:
    """The limit on calls on the CPU: ``budget`` in all (None: any number), those of ``allowed`` beside.

    No operator of ``forbidden`` may run there.  Where something is allowed by name and no budget is given,
    the budget is 0.
    """

    budget: int | None = None
    allowed: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()

    def violations(self, fallbacks: Fallbacks) -> list[str]:
        """The violations in ``fallbacks``, a sentence each."""
        found = [
            f"`{count.operator}` ran on the CPU in {_calls(count.calls)}, and --fail-on forbids it"
            for count in fallbacks.counts
            if count.calls and count.operator in self.forbidden
        ]
        charged = [
            count
            for count in fallbacks.counts
            if count.calls and count.operator not in self.allowed
        ]
        budget = 0 if self.budget is None and self.allowed else self.budget
        calls = sum(count.calls for count in charged)
        if budget is not None and calls > budget:
            worst = ", ".join(f"`{count.operator}` {count.calls:,}" for count in charged[:5])
            more = f" and {len(charged) - 5} more operators" if len(charged) > 5 else ""
            beside = " beside those of --allow" if self.allowed else ""
            found.append(
                f"{_calls(calls)} ran on the CPU, and {budget:,} may{beside}: {worst}{more}"
            )
        return found


def read_gate(
    catalogue: Catalogue, budget: int | None, allow: Path | None, fail_on: Sequence[str]
) -> Gate:
    """The gate of a command line; ``allow`` is a file with one operator in each line.

    ``#`` begins a comment; a name stands for all variants of its group.  Raises
    :class:`~opsmith.errors.FileMissing`, :class:`~opsmith.errors.BudgetInvalid` or
    :class:`~opsmith.errors.OperatorUnknown`.
    """
    forbidden = {
        member for name in fail_on for member in _members(catalogue, name, "--fail-on", None)
    }
    allowed: set[str] = set()
    if allow is not None:
        for location, name in _lines(allow):
            allowed.update(_members(catalogue, name, f"`{allow}`", location))
    if both := sorted(allowed & forbidden):
        raise BudgetInvalid(
            f"`{both[0]}` is allowed by {allow} and forbidden by --fail-on",
            remedy="take it out of one of the two",
        )
    return Gate(budget, frozenset(allowed), frozenset(forbidden))


def _lines(path: Path) -> list[tuple[Location, str]]:
    try:
        text = read_text(path)
    except OSError as error:
        raise FileMissing(
            f"the operators that may run on the CPU cannot be read from `{path}`: {error.strerror}",
            remedy="name a file with one operator in each line, such as topk.values",
        ) from None
    except UnicodeDecodeError:
        raise BudgetInvalid(
            f"`{path}` is no text", remedy="write one operator in each line, such as topk.values"
        ) from None
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        name = line.partition("#")[0].strip()
        if name:
            found.append((Location(path, number, line.index(name) + 1), name))
    return found


def _members(
    catalogue: Catalogue, name: str, where: str, location: Location | None
) -> tuple[str, ...]:
    name = name.removeprefix("aten::")
    if name not in catalogue.operators and "::" not in name:
        raise OperatorUnknown(
            f"{where} names `{name}`, and torch {catalogue.torch} has no such operator"
            f"{nearest(name, catalogue.operators)}",
            location=location,
            remedy="name the overload too, as the table of `opsmith fallbacks` does",
        )
    return catalogue.variants_of(name)


def _calls(calls: int) -> str:
    return "1 call" if calls == 1 else f"{calls:,} calls"
