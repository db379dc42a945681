"""One step of a build, as it is told to whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Step ``done`` of ``total``; ``total`` 0 stands for a step that is not counted."""

    action: str
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"[{self.done}/{self.total}] {self.action}" if self.total else self.action


OnProgress = Callable[[Progress], None]
"""The callback that gets each step."""
