"""Measurements of a benchmark, and their output: a table for people, a line of JSON for ``opsmith bench``.

A benchmark is a script that ends with :func:`report`.  Each measurement holds what was measured on both
sides, in turn, in one run: a figure without its peer says little on another machine.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from rich.console import Console
from rich.table import Table

_UNSEEN_WIDTH = 160


@dataclass(frozen=True)
class Figure:
    """Rounds of one measurement: their median, and their spread.

    ``spread`` is half of the interquartile range, as a part of the median; 0 for a single round.
    """

    median: float
    spread: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """The figure of at least one round."""
        median = statistics.median(values)
        if len(values) < 2 or not median:
            return cls(median, 0.0, len(values))
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, (high - low) / 2 / abs(median), len(values))

    def __str__(self) -> str:
        spread = f" ±{self.spread:.0%}" if self.rounds > 1 else ""
        return f"{_shortened(self.median)}{spread}"


@dataclass(frozen=True)
class Measurement:
    """One thing that was measured, in ``unit``, less being better.

    ``goal`` is the most that ``value`` may be: the ratio to the peer, or what opsmith takes itself, where
    ``is_absolute`` says so or there is no peer.  ``operator`` is the one whose call was measured, if it
    was one: ``add_.Tensor``.
    """

    name: str
    unit: str
    ours: Figure
    peer: Figure | None = None
    goal: float | None = None
    is_absolute: bool = False
    operator: str = ""

    @property
    def ratio(self) -> float | None:
        """The median of opsmith as a multiple of the peer's."""
        return None if self.peer is None else self.ours.median / self.peer.median

    @property
    def value(self) -> float:
        """The figure that the goal is for."""
        return self.ours.median if self.is_absolute or self.ratio is None else self.ratio

    @property
    def spread(self) -> float:
        """That of :attr:`value`, as a part of it: both sides' spreads add up."""
        of_peer = self.peer.spread if self.peer is not None and not self.is_absolute else 0.0
        return self.ours.spread + of_peer

    @property
    def verdict(self) -> str:
        """``ok`` or ``missed``; empty without a goal."""
        if self.goal is None:
            return ""
        return "ok" if self.value <= self.goal else "missed"


@dataclass(frozen=True)
class BenchmarkReport:
    """The last line that a benchmark prints with ``--json``."""

    title: str
    measurements: tuple[Measurement, ...]


def measured(
    name: str,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float] = (),
    goal: float | None = None,
    *,
    is_absolute: bool = False,
    operator: str = "",
) -> Measurement:
    """A measurement of the rounds ``ours`` and ``peer``, which should have taken turns."""
    return Measurement(
        name,
        unit,
        Figure.of(ours),
        Figure.of(peer) if peer else None,
        goal,
        is_absolute,
        operator,
    )


def report(title: str, measurements: Sequence[Measurement]) -> None:
    """Ends a benchmark: prints the table; with ``--json`` on the command line, a :class:`BenchmarkReport`."""
    # Where nobody looks, a narrow table would fold the names.
    console = Console() if sys.stdout.isatty() else Console(width=_UNSEEN_WIDTH)
    console.print(table(title, measurements))
    if "--json" in sys.argv[1:]:
        sys.stdout.write(
            msgspec.json.encode(BenchmarkReport(title, tuple(measurements))).decode() + "\n"
        )


def table(title: str, measurements: Sequence[Measurement]) -> Table:
    """The measurements, a row each."""
    rows = Table(title=title, header_style="bold", title_justify="left")
    rows.add_column("measured", overflow="fold")
    for column in ("opsmith", "peer", "unit", "ratio", "goal", ""):
        rows.add_column(column, justify="right", no_wrap=True)
    for each in measurements:
        goal = "" if each.goal is None else f"≤ {_shortened(each.goal)}"
        if each.goal is not None and (each.is_absolute or each.peer is None):
            goal += f" {each.unit}"
        rows.add_row(
            each.name,
            str(each.ours),
            "" if each.peer is None else str(each.peer),
            each.unit,
            "" if each.ratio is None else f"{each.ratio:.3f}",
            goal,
            each.verdict,
            style="bold" if each.verdict == "missed" else None,
        )
    return rows


def _shortened(value: float) -> str:
    """To three digits, and whole where it has more."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
