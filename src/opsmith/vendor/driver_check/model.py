"""A check of a driver, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from opsmith.errors import OpsmithError

if TYPE_CHECKING:
    from opsmith.vendor.driver_check.subject import Subject


class Needs(Enum):
    """A need of a check that the contract leaves to drivers, and the reason to skip the check without it."""

    EVENTS = "the driver has no events: waiting for one waits for its whole stream"
    PINNED = "the driver has no pinned memory: pin_memory() raises, and copies wait"
    HOST_FUNCTION = (
        "the driver has no `stream_host_function`: host-side kernels wait for the stream"
    )
    HOST_WINDOW = "the driver has no host window: the CPU works on copies"
    RANGES = "the driver has no ranges: those of a program are shown to nobody"
    SHARING = "the driver exports no memory: tensors cannot be sent to other processes"
    GRAPHS = "the driver records no work: capturing a graph raises"
    FAILING_WORK = "the driver exports no `opsmith_launch_failing_work`"
    TWO_DEVICES = "there is one device"


class Broken(OpsmithError):
    """The contract is broken: what was ``expected``, and what ``happened``."""

    def __init__(self, expected: str, happened: str) -> None:
        super().__init__(f"expected {expected}; {happened}")
        self.expected = expected
        self.happened = happened


@dataclass(frozen=True)
class Check:
    """One promise of the contract, and how it is put to the test.

    ``notice`` is what a user of PyTorch would notice of a driver that breaks it.  ``run`` raises
    :class:`Broken`.
    """

    name: str
    promise: str
    notice: str
    run: Callable[[Subject], None]
    needs: tuple[Needs, ...] = ()


class Verdict(str, Enum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check; ``happened`` of one that was skipped is the reason.

    ``entries`` are those of the driver that it called.
    """

    name: str
    promise: str
    verdict: Verdict
    expected: str = ""
    happened: str = ""
    notice: str = ""
    seconds: float = 0.0
    entries: tuple[str, ...] = ()


# Entries that say nothing of what a check is about.
_ASKED_BY_ALL = frozenset({"device_count", "device_properties", "device_memory", "last_error"})


class Report(msgspec.Struct, frozen=True):
    """The results of all checks of a driver."""

    driver: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(finding.verdict is not Verdict.FAILED for finding in self.findings)

    def causes(self) -> list[tuple[Finding, list[Finding]]]:
        """The failures, each with those that may follow from it: their checks call the same and more.

        Those that call the fewest entries stand first.
        """
        failed = [each for each in self.findings if each.verdict is Verdict.FAILED]
        found: list[tuple[Finding, list[Finding]]] = []
        for finding in sorted(failed, key=lambda each: len(each.entries)):
            called = set(finding.entries)
            for cause, following in found:
                telling = set(cause.entries) - _ASKED_BY_ALL
                if telling and telling < called:
                    following.append(finding)
                    break
            else:
                found.append((finding, []))
        return found

    def count(self, verdict: Verdict) -> int:
        """How many checks ended so."""
        return sum(finding.verdict is verdict for finding in self.findings)


def check(
    promise: str, *, notice: str, needs: tuple[Needs, ...] = ()
) -> Callable[[Callable[[Subject], None]], Check]:
    """Decorates a function that puts ``promise`` to the test: it becomes the check of that name."""

    def decorate(run: Callable[[Subject], None]) -> Check:
        return Check(run.__name__.replace("_", " "), promise, notice, run, needs)

    return decorate
