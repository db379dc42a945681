"""Results of a run of random programs: counts, and the differences by their class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """One program that differs, shrunk: after a step that calls ``operator``, in ``kind``.

    ``index`` is the program's number, ``text`` what differs and ``program`` Python that shows it.
    """

    index: int
    operator: str
    kind: str
    text: str
    program: str


@dataclass(frozen=True)
class FuzzOutcome:
    """``findings`` of ``programs`` programs with ``steps`` steps, which called ``operators``.
    ``expected`` are those that ``expected_failures.yaml`` declares.

    ``loaded`` says how the workers came by the device.
    ``skipped`` are the programs that crash PyTorch's CPU, or that call what the description refuses.
    """

    backend: str
    torch: str
    seed: int
    programs: int
    steps: int
    operators: frozenset[str]
    findings: Sequence[Finding]
    expected: Sequence[Finding]
    skipped: int
    interrupted: bool
    loaded: str = ""

    def classes(self) -> list[tuple[Finding, int]]:
        """For each class, operator and kind, the shortest program and how many there are; most first."""
        by_class: dict[tuple[str, str], list[Finding]] = {}
        for finding in sorted(self.findings, key=lambda each: each.index):
            by_class.setdefault((finding.operator, finding.kind), []).append(finding)
        shortest = [
            (min(each, key=lambda one: len(one.program)), len(each)) for each in by_class.values()
        ]
        return sorted(shortest, key=lambda pair: (-pair[1], pair[0].operator, pair[0].kind))
