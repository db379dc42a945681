"""What benchmarks measured, read from the JSON that they wrote."""

from __future__ import annotations

from pathlib import Path

import msgspec

from opsmith.errors import FileMissing, ResultsInvalid
from opsmith.inspect.report.document import Measured


class _Row(msgspec.Struct):
    """One measurement of ``benchmarks/*.py --json``."""

    ratio: float
    goal: float | None = None
    ok: bool = True


def read_benchmarks(path: Path) -> tuple[Measured, ...]:
    """The rows of a benchmark's JSON.

    Raises :class:`~opsmith.errors.FileMissing` or :class:`~opsmith.errors.ResultsInvalid`.
    """
    remedy = "write it with `python benchmarks/NAME.py --json | tail -n 1 > FILE`"
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=dict[str, _Row])
    except OSError as error:
        raise FileMissing(
            f"benchmarks cannot be read from `{path}`: {error.strerror}", remedy=remedy
        ) from None
    except msgspec.DecodeError as error:
        raise ResultsInvalid(f"`{path}` does not hold benchmarks: {error}", remedy=remedy) from None
    return tuple(
        Measured(path.stem, name, "", "", row.ratio, row.goal, row.ok) for name, row in rows.items()
    )
