"""On which releases of torch opsmith was run, and what passed: kept results, which doctor and docs show.

``tools/tested_releases.py`` keeps those of a run in ``tested_releases.json``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

RESULTS = Path(__file__).with_name("tested_releases.json")


class Area(msgspec.Struct, frozen=True):
    """Tests of one part of opsmith; ``skipped`` are those that need what the release or the machine lacks."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        if self.failed:
            return f"{self.failed} of {self.passed + self.failed} fail"
        return str(self.passed) if self.passed else "none"


class Demo(msgspec.Struct, frozen=True):
    """The end of ``opsmith demo``: accuracies as fractions, the largest difference of losses at one step."""

    accuracy: float
    cpu_accuracy: float
    max_loss_difference: float


class ReleaseRun(msgspec.Struct, frozen=True):
    """One release: ``torch`` is the whole version, ``date`` the day of the runs (ISO 8601).

    ``areas`` is empty where the demo alone ran.
    """

    torch: str
    date: str
    demo: Demo
    areas: dict[str, Area]

    @property
    def fails(self) -> bool:
        return any(area.failed for area in self.areas.values())

    def __str__(self) -> str:
        tests = ", ".join(f"{name} {area}" for name, area in self.areas.items())
        return f"{self.torch}, {self.date}: {f'tests that pass: {tests}' if tests else 'the demo alone'}"


def tested_releases() -> dict[str, ReleaseRun]:
    """By minor release, ``2.13``, the oldest first."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, ReleaseRun])
