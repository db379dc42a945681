"""What other commands measured, read from the JSON that they wrote: a program's calls, benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from opsmith.errors import FileMissing, ResultsInvalid
from opsmith.inspect.fallbacks import Advice
from opsmith.inspect.report.document import Cost, Measured, ProgramCost
from opsmith.runtime.fallbacks import FallbackCount

T = TypeVar("T")


class _Fallbacks(msgspec.Struct):
    """The line of ``opsmith fallbacks --json``."""

    operators: tuple[FallbackCount, ...]
    first_kernel: Advice | None = None


class _Row(msgspec.Struct):
    """One measurement of ``benchmarks/*.py --json``."""

    ratio: float
    goal: float | None = None
    ok: bool = True


def read_program(path: Path) -> ProgramCost:
    """What a program cost, from the JSON of ``opsmith fallbacks``.

    Raises :class:`~opsmith.errors.FileMissing` or :class:`~opsmith.errors.ResultsInvalid`.
    """
    remedy = "write it with `opsmith fallbacks SCRIPT --json | tail -n 1 > FILE`"
    found = _decoded(path, _Fallbacks, "a program's calls", remedy)
    costs = tuple(
        Cost(count.operator, count.calls, count.seconds, count.reason)
        for count in found.operators
        if count.calls
    )
    calls, seconds = sum(cost.calls for cost in costs), sum(cost.seconds for cost in costs)
    first = found.first_kernel.remedy if found.first_kernel else ""
    return ProgramCost(str(path), (("fallback", calls, seconds),), costs, first)


def read_benchmarks(path: Path) -> tuple[Measured, ...]:
    """The rows of a benchmark's JSON.

    Raises :class:`~opsmith.errors.FileMissing` or :class:`~opsmith.errors.ResultsInvalid`.
    """
    remedy = "write it with `python benchmarks/NAME.py --json | tail -n 1 > FILE`"
    rows = _decoded(path, dict[str, _Row], "benchmarks", remedy)
    return tuple(
        Measured(path.stem, name, "", "", row.ratio, row.goal, row.ok) for name, row in rows.items()
    )


def _decoded(path: Path, kind: type[T], what: str, remedy: str) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise FileMissing(
            f"{what} cannot be read from `{path}`: {error.strerror}", remedy=remedy
        ) from None
    except msgspec.DecodeError as error:
        raise ResultsInvalid(f"`{path}` holds no JSON of {what}: {error}", remedy=remedy) from None
