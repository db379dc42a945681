"""Expected failures: what a backend's author knows of, in ``expected_failures.yaml`` beside ``backend.yaml``.

A declared failure does not fail a run.  A declaration that is no longer true does: every operator, check
and dtype that it names must fail somewhere, or be taken out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from opsmith.conformance.database import EntryFacts
from opsmith.conformance.results import Check, Status, Verdict
from opsmith.conformance.selection import OPINFO_CHECKS, Selection, matching, no_such
from opsmith.description import read_document, warn_of_old_name, with_new_name
from opsmith.errors import ExpectedFailureInvalid, Location

FILE = "expected_failures.yaml"
_OLD_FILE = "gaps.yaml"

Key = tuple[str, str, Check]


class _ExpectedFailureYaml(msgspec.Struct, forbid_unknown_fields=True):
    operators: list[str]
    reason: str
    checks: list[str] | None = None
    dtypes: list[str] | None = None
    issue: int | None = None


class _ExpectedFailuresYaml(msgspec.Struct, forbid_unknown_fields=True):
    expected_failures: list[_ExpectedFailureYaml]


@dataclass(frozen=True)
class ExpectedFailure:
    """One declaration: ``entries`` by each operator pattern that it names.

    ``checks`` and ``dtypes`` are empty where it names none, and so all.  A pattern without entries is
    one of PyTorch's own tests, whose names are not known before they are run.
    """

    entries: Mapping[str, frozenset[str]]
    checks: tuple[Check, ...]
    dtypes: tuple[str, ...]
    reason: str
    location: Location

    def covers(self, verdict: Verdict) -> bool:
        """Whether it declares what ``verdict`` is about."""
        return (
            (not self.checks or verdict.check in self.checks)
            and (not self.dtypes or verdict.dtype in self.dtypes)
            and any(self._names(pattern, verdict) for pattern in self.entries)
        )

    def may_cover(self, entry: str) -> bool:
        """Whether it names the ``entry``, or anything that is no entry of OpInfo."""
        return any(entry in named or not named for named in self.entries.values())

    def covers_program(self, operator: str, program: str) -> bool:
        """Whether it declares what the random ``program`` shows of ``operator``, an ATen operator's name."""
        base = operator.partition(".")[0]
        return (
            (not self.checks or Check.FUZZ in self.checks)
            and (not self.dtypes or any(f"torch.{dtype}" in program for dtype in self.dtypes))
            and any(
                fnmatchcase(name, pattern.removeprefix("aten::").removeprefix("nn.functional."))
                for pattern in self.entries
                for name in (operator, base, base.removesuffix("_"))
            )
        )

    def claims(self) -> Iterator[tuple[str, ExpectedFailure]]:
        """Each word of it, and what it declares by that word: all of which must not pass."""
        for pattern in self.entries:
            yield pattern, replace(self, entries={pattern: self.entries[pattern]})
        for check in self.checks:
            yield check.value, replace(self, checks=(check,))
        for dtype in self.dtypes:
            yield dtype, replace(self, dtypes=(dtype,))

    def _names(self, pattern: str, verdict: Verdict) -> bool:
        if verdict.check is Check.UPSTREAM:
            # In the name of a test, brackets hold its parameters.
            literal = pattern.replace("[", "[[]")
            return not self.entries[pattern] and fnmatchcase(verdict.entry, literal)
        return verdict.entry in self.entries[pattern]


def read_expected_failures(
    description: Path, known: Sequence[EntryFacts], named: Path | None = None
) -> tuple[ExpectedFailure, ...]:
    """The failures expected by the file beside ``description``, if there is one; or in the file ``named``.

    Raises :class:`~opsmith.errors.ExpectedFailureInvalid` or a
    :class:`~opsmith.errors.DescriptionError`, with the place.
    """
    path = named or description.with_name(FILE)
    if named is None and not path.exists():
        path = description.with_name(_OLD_FILE)
        if not path.exists():
            return ()
        warn_of_old_name(_OLD_FILE, FILE, Location(path, 1))
    document = with_new_name(read_document(path), "gaps", "expected_failures")
    declared = document.convert(_ExpectedFailuresYaml).expected_failures
    dtypes = {dtype for facts in known for dtype in facts.dtypes}
    expected = []
    for index, failure in enumerate(declared):

        def location(*steps: str | int, index: int = index) -> Location:
            return document.locate("expected_failures", index, *steps)

        for step, name in enumerate(failure.checks or ()):
            if name not in {check.value for check in Check}:
                raise _unknown("check", name, [c.value for c in Check], location("checks", step))
        for step, name in enumerate(failure.dtypes or ()):
            if name not in dtypes:
                raise _unknown("dtype", name, sorted(dtypes), location("dtypes", step))
        if not failure.reason.strip():
            raise ExpectedFailureInvalid(
                "the reason of this expected failure is empty",
                location=location("reason"),
                remedy="say why it fails, for whoever wonders whether it still has to",
            )
        entries = {}
        for step, pattern in enumerate(failure.operators):
            upstream = "::" in pattern and not pattern.startswith("aten::")
            found = frozenset() if upstream else frozenset(matching(known, pattern, {}))
            if not found and not upstream:
                names = [facts.name for facts in known]
                raise _unknown("operator", pattern, names, location("operators", step))
            entries[pattern] = found
        reason = failure.reason.strip() + (f" (pytorch #{failure.issue})" if failure.issue else "")
        expected.append(
            ExpectedFailure(
                entries,
                tuple(map(Check, failure.checks or ())),
                tuple(failure.dtypes or ()),
                reason,
                location(),
            )
        )
    return tuple(expected)


def _unknown(
    what: str, name: str, known: Sequence[str], location: Location
) -> ExpectedFailureInvalid:
    error = no_such(what, name, known)
    return ExpectedFailureInvalid(error.message, location=location, remedy=error.remedy)


def with_expected_failures(
    verdicts: Iterable[Verdict], expected: Sequence[ExpectedFailure]
) -> Iterator[Verdict]:
    """``verdicts`` with those failures marked that are expected."""
    for verdict in verdicts:
        failure = next((each for each in expected if each.covers(verdict)), None)
        if failure is None or not verdict.status.is_bad:
            yield verdict
        else:
            message = f"{failure.reason}; {verdict.message}"
            yield replace(
                verdict,
                status=Status.EXPECTED_FAILURE,
                message=message,
                reason=failure.reason,
            )


def with_unexpected_passes(
    verdicts: Sequence[Verdict], expected: Sequence[ExpectedFailure], could_run: Iterable[Key]
) -> list[Verdict]:
    """``verdicts`` with those that a declaration covers, none of which fails, marked as unexpected passes.

    A word of a declaration is judged where all that it covers was run: ``could_run`` is what could be
    run with nothing left out, by no option and no interruption.
    """
    found = {verdict.key: verdict for verdict in verdicts}
    by_entry: dict[str, list[Verdict]] = {}
    for key in could_run:
        by_entry.setdefault(key[0], []).append(Verdict(*_as_verdict(key)))
    for failure in expected:
        for word, part in failure.claims():
            covered = [
                verdict.key
                for entry, verdicts_of_entry in by_entry.items()
                if part.may_cover(entry)
                for verdict in verdicts_of_entry
                if part.covers(verdict)
            ]
            if not covered or any(key not in found for key in covered):
                continue
            # It fails somewhere, or another word has said that it does not.
            if any(
                found[key].status in {Status.EXPECTED_FAILURE, Status.UNEXPECTED_PASS}
                for key in covered
            ):
                continue
            message = (
                f"{failure.location} declares that `{word}` fails, and it does not: take it out"
            )
            for key in covered:
                # Where nothing at all could be run, the first verdict has to tell.
                if found[key].status is Status.PASSED or key == covered[0]:
                    found[key] = replace(found[key], status=Status.UNEXPECTED_PASS, message=message)
    return list(found.values())


def _as_verdict(key: Key) -> tuple[str, Check, str, Status]:
    entry, dtype, check = key
    return entry, check, dtype, Status.SKIPPED


def everything(known: Sequence[EntryFacts]) -> Iterator[Key]:
    """All that a run without options makes of OpInfo."""
    dtypes = tuple({dtype for facts in known for dtype in facts.dtypes})
    for unit in Selection(tuple(known), dtypes, OPINFO_CHECKS).units():
        for check in unit.checks:
            yield unit.entry, unit.dtype, check
