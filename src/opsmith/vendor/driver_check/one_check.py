"""Runs one check of a driver in a process of its own, which the driver may bring down.

Started by :mod:`opsmith.vendor.driver_check.running`:
``python -m opsmith.vendor.driver_check.one_check REQUEST``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from opsmith.driver.failures import DriverFailure
from opsmith.errors import OpsmithError
from opsmith.vendor.driver_check.call_notes import CallNotes
from opsmith.vendor.driver_check.checks import CHECKS
from opsmith.vendor.driver_check.model import Broken, Check, Verdict
from opsmith.vendor.driver_check.subject import Opening, Subject


class Request(msgspec.Struct, frozen=True):
    """Which check of which driver, and the file for the notes of its calls.

    ``check`` is empty where the driver is to be opened only.
    """

    driver: Opening
    check: str
    notes: str


class Answer(msgspec.Struct, frozen=True):
    """The outcome of the check, the driver's own name and the entries that the check called."""

    verdict: Verdict
    driver: str = ""
    expected: str = ""
    happened: str = ""
    entries: tuple[str, ...] = ()


def answer_to(request: Request) -> Answer:
    """Runs the check and returns its outcome."""
    notes = CallNotes(Path(request.notes))
    try:
        subject = request.driver.subject(notes)
    except OpsmithError as error:
        place = f"{error.location}: " if error.location else ""
        happened = f"{place}{error.message}; remedy: {error.remedy}"
        return Answer(Verdict.FAILED, "", "a library with a table of this version", happened)
    name = (subject.driver.table.name or b"").decode(errors="replace")
    if not request.check:
        return Answer(Verdict.PASSED, name)
    (check,) = (each for each in CHECKS if each.name == request.check)
    return _run(check, subject, name)


def _run(check: Check, subject: Subject, name: str) -> Answer:
    try:
        for need in check.needs:
            if not subject.has(need):
                return Answer(Verdict.SKIPPED, name, "", need.value)
        check.run(subject)
    except Broken as broken:
        return Answer(Verdict.FAILED, name, broken.expected, broken.happened, subject.called)
    except DriverFailure as failure:
        return Answer(Verdict.FAILED, name, "calls that succeed", failure.happened, subject.called)
    return Answer(Verdict.PASSED, name)


def main() -> None:
    """Answers the request on the command line, on the standard output that it was given."""
    # Output that a driver prints is not part of the answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = answer_to(msgspec.json.decode(sys.argv[1], type=Request))
    answers.write(msgspec.json.encode(answer).decode())
    answers.flush()
    # Without the end of the interpreter: a driver's threads may still run.
    os._exit(0)


if __name__ == "__main__":
    main()
