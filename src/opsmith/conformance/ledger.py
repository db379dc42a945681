"""A ledger of a suite's tests that a device does not pass, or that are not run, each with its reason.

It lies beside ``backend.yaml``.  A failure in it does not fail a run, and an entry that fails no more
does, as in :mod:`~opsmith.conformance.expected_failures`; what is left out in it is not run at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from opsmith.conformance.expected_failures import ExpectedFailure
from opsmith.conformance.results import Check
from opsmith.description import read_document
from opsmith.errors import ExpectedFailureInvalid


class _EntryYaml(msgspec.Struct, forbid_unknown_fields=True):
    tests: list[str]
    reason: str


class _LedgerYaml(msgspec.Struct, forbid_unknown_fields=True):
    failing: list[_EntryYaml] = []
    left_out: list[_EntryYaml] = []


@dataclass(frozen=True)
class Ledger:
    """Failures that are expected, and the reason of each test that is ``left_out``, by its entry."""

    failing: tuple[ExpectedFailure, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def ledger_beside(description: Path, named: Path | None, file: str, *, prefix: str = "") -> Ledger:
    """The ledger ``named``, or ``file`` beside ``description``; empty where there is neither.

    Raises as :func:`read_ledger`.
    """
    path = named or description.with_name(file)
    return read_ledger(path, prefix=prefix) if named or path.exists() else Ledger()


def read_ledger(path: Path, *, prefix: str = "") -> Ledger:
    """The ledger in the file ``path``; ``prefix`` is what all entries begin with.

    Raises :class:`~opsmith.errors.ExpectedFailureInvalid` or a
    :class:`~opsmith.errors.DescriptionError`, with the place.
    """
    document = read_document(path)
    ledger = document.convert(_LedgerYaml)
    for kind, entries in (("failing", ledger.failing), ("left_out", ledger.left_out)):
        for index, entry in enumerate(entries):
            for step, test in enumerate(entry.tests):
                if "::" not in test or (kind == "left_out" and "*" in test):
                    raise ExpectedFailureInvalid(
                        f"`{test}` names {'no test' if '::' not in test else 'many tests'}",
                        location=document.locate(kind, index, "tests", step),
                        remedy="name it with its file: operators/test_add::test_binary[add-dtype0]",
                    )
            if not entry.reason.strip():
                raise ExpectedFailureInvalid(
                    "the reason of this entry is empty",
                    location=document.locate(kind, index, "reason"),
                    remedy="say why, for whoever wonders whether it still has to",
                )
    return Ledger(
        tuple(
            ExpectedFailure(
                {f"{prefix}{test}": frozenset() for test in entry.tests},
                (Check.UPSTREAM,),
                (),
                entry.reason.strip(),
                document.locate("failing", index),
            )
            for index, entry in enumerate(ledger.failing)
        ),
        {
            f"{prefix}{test}": entry.reason.strip()
            for entry in ledger.left_out
            for test in entry.tests
        },
    )
