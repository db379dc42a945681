"""What every benchmark prints: a table for people and, with ``--json``, one last line for programs."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Measurement:
    """One goal: what was measured on both sides, their ratio, and the ratio to reach."""

    name: str
    ours: str
    peer: str
    ratio: float
    goal: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the goal is met; a measurement without one always is."""
        return self.goal is None or self.ratio <= self.goal


def compared(name: str, ours: float, peer: float, goal: float | None) -> Measurement:
    """A count on both sides, and their ratio."""
    return Measurement(name, f"{ours:,.0f}", f"{peer:,.0f}", ours / peer, goal)


def report(title: str, measurements: list[Measurement], *, unit: str = "ratio") -> None:
    """Prints ``measurements``; ``unit`` heads the column that the goals are stated in."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    as_json = parser.parse_args().json
    table = Table(title=title, header_style="bold")
    table.add_column("measured")
    for column in ("opsmith", "peer", unit, "goal", ""):
        table.add_column(column, justify="right")
    for row in measurements:
        goal = "" if row.goal is None else f"≤ {row.goal:g}"
        verdict = "" if row.goal is None else ("ok" if row.ok else "missed")
        table.add_row(row.name, row.ours, row.peer, f"{row.ratio:.3f}", goal, verdict)
    Console().print(table)
    if as_json:
        goals = {
            row.name: {"ratio": round(row.ratio, 4), "goal": row.goal, "ok": row.ok}
            for row in measurements
            if row.goal is not None
        }
        print(json.dumps(goals))
