"""Runs the checks of a driver, each in a process of its own: one that crashes or hangs fails alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from opsmith.description import PythonDriver
from opsmith.errors import FilterInvalid, nearest
from opsmith.vendor.driver_check.call_notes import CallNotes
from opsmith.vendor.driver_check.checks import CHECKS
from opsmith.vendor.driver_check.model import Check, Finding, Report, Verdict
from opsmith.vendor.driver_check.one_check import Answer, Request
from opsmith.vendor.driver_check.subject import Opening

_ONE_CHECK = "opsmith.vendor.driver_check.one_check"
OPENING = Check(
    "library",
    "the library opens, and `opsmith_get_driver` gives a table of this version of opsmith_driver.h",
    "opsmith.load() raises DriverInvalid",
    lambda subject: None,
)


@dataclass(frozen=True)
class Target:
    """The driver to check: its library, the class behind it if there is one, and what it is to hide.

    ``folder`` is where modules of Python are looked for first.
    """

    library: Path
    host_window: bool = True
    python: PythonDriver | None = None
    folder: Path | None = None


def chosen_checks(names: Sequence[str]) -> tuple[Check, ...]:
    """The checks with these names, all of them for none.  Raises :class:`FilterInvalid`."""
    known = {check.name: check for check in CHECKS}
    for name in names:
        if name not in known:
            raise FilterInvalid(
                f"there is no check `{name}`{nearest(name, known)}",
                remedy="see them: opsmith driver check --list",
            )
    return tuple(check for check in CHECKS if not names or check.name in names)


def check_driver(
    target: Target,
    checks: Sequence[Check] = CHECKS,
    *,
    seconds: float = 60,
    on_finding: Callable[[Finding], None] = lambda finding: None,
) -> Report:
    """The results of ``checks``, each within ``seconds``; ``on_finding`` is told of each.

    Where the driver cannot be opened, or its table is not whole, nothing else is tried.
    """
    opening, answer = _run(OPENING, target, seconds)
    findings = [opening]
    on_finding(opening)
    for check in checks:
        if any(each.verdict is Verdict.FAILED and each.name in _FIRST for each in findings):
            reason = "the driver has no table that can be called"
            finding = _finding(check, Answer(Verdict.SKIPPED, happened=reason), 0.0)
        else:
            finding, _ = _run(check, target, seconds)
        findings.append(finding)
        on_finding(finding)
    return Report(answer.driver or target.library.name, tuple(findings))


# Without these, calls would go nowhere.
_FIRST = frozenset({OPENING.name, "entries"})


def check_one(check: Check, target: Target, *, seconds: float = 60) -> Finding:
    """The result of one check within ``seconds``."""
    return _run(check, target, seconds)[0]


def _run(check: Check, target: Target, seconds: float) -> tuple[Finding, Answer]:
    with tempfile.NamedTemporaryFile(prefix="opsmith-driver-check-") as notes:
        notes.write(bytes(CallNotes.SIZE))
        notes.flush()
        began = time.perf_counter()
        answer = _answer(check, target, seconds, Path(notes.name))
    return _finding(check, answer, time.perf_counter() - began), answer


def _answer(check: Check, target: Target, seconds: float, notes: Path) -> Answer:
    driver = Opening(
        str(target.library),
        target.host_window,
        str(target.python.source) if target.python else "",
        target.python.name if target.python else "",
    )
    request = Request(driver, "" if check is OPENING else check.name, str(notes))
    command = [sys.executable, "-m", _ONE_CHECK, msgspec.json.encode(request).decode()]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(target.folder),
        start_new_session=True,
    )
    try:
        said, complained = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return _ended(_hung(notes, seconds), notes)
    finally:
        if process.returncode is None:
            _end(process)
    if process.returncode == 0:
        with contextlib.suppress(msgspec.DecodeError):  # the driver ended the process
            return msgspec.json.decode(said, type=Answer)
    return _ended(_crashed(process.returncode, notes, complained), notes)


def _environment(folder: Path | None) -> dict[str, str]:
    paths = [str(folder)] if folder else []
    paths += [path for path in [os.environ.get("PYTHONPATH")] if path]
    return {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process with all that it started, and waits for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _hung(notes: Path, seconds: float) -> str:
    entered = CallNotes.read(notes)
    where = f"{_names(entered)} did not return" if entered else "it did not end"
    return f"{where} within {seconds:g} s"


def _crashed(status: int, notes: Path, complained: bytes) -> str:
    entered = CallNotes.read(notes)
    where = f" in {_names(entered)}" if entered else ""
    if status < 0:
        return f"the process was ended by signal {signal.Signals(-status).name}{where}"
    lines = complained.decode(errors="replace").strip().splitlines()
    return f"the process ended with status {status}{where}" + (f": {lines[-1]}" if lines else "")


def _names(entered: Sequence[str]) -> str:
    return ", ".join(name if " " in name else f"`{name}`" for name in entered)


def _ended(happened: str, notes: Path) -> Answer:
    entries = tuple(name for name in CallNotes.read(notes) if " " not in name)
    return Answer(Verdict.FAILED, "", "calls that return", happened, entries)


def _finding(check: Check, answer: Answer, seconds: float) -> Finding:
    return Finding(
        name=check.name,
        promise=check.promise,
        verdict=answer.verdict,
        expected=answer.expected,
        happened=answer.happened,
        notice=check.notice if answer.verdict is Verdict.FAILED else "",
        seconds=round(seconds, 3),
        entries=answer.entries,
    )
