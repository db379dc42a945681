"""Which entries of OpInfo test which operators, and what a conformance run says of an operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from opsmith.conformance.results import Results, Status, Verdict
from opsmith.plan import Plan


def tested_by(entry: str, called: Sequence[str], plan: Plan) -> tuple[str, ...]:
    """The operators that ``entry`` is named for, of those that it ``called``, with all variants of each.

    The variants are called by other checks than the one that was recorded.
    """
    named = [name for name in called if is_named_for(entry, name)]
    return tuple(dict.fromkeys(each for name in named for each in plan.group_of(name)))


def is_named_for(entry: str, operator: str) -> bool:
    """Whether OpInfo's ``entry`` tests ``operator``: ``linalg.norm`` does ``linalg_norm.ord_str``.

    OpInfo writes the namespaces of Python with dots, and a dot before the entry's variant too.
    """
    base = operator.partition(".")[0]
    base = base[:-1] if base.endswith("_") and not base.endswith("__") else base
    parts = entry.removeprefix("nn.functional.").split(".")
    return any("_".join(parts[:count]) == base for count in range(1, len(parts) + 1))


@dataclass(frozen=True)
class OperatorVerdicts:
    """The test results of one operator: the verdicts of the ``entries`` that are named for it.

    ``counts`` has how many ended in each way, ``bad`` those that fail a run.
    """

    entries: tuple[str, ...]
    counts: dict[str, int]
    bad: tuple[Verdict, ...]


def verdicts_of(operator: str, results: Results, plan: Plan) -> OperatorVerdicts:
    """The verdicts of ``results`` on ``operator``."""
    entries = tuple(
        entry
        for entry, called in results.operators.items()
        if operator in tested_by(entry, [name for name in called if name in plan.by_name], plan)
    )
    verdicts = [verdict for verdict in results.verdicts if verdict.entry in entries]
    counted = Counter(verdict.status for verdict in verdicts)
    return OperatorVerdicts(
        entries,
        {status.value: counted[status] for status in Status if counted[status]},
        tuple(verdict for verdict in verdicts if verdict.status.is_bad),
    )
