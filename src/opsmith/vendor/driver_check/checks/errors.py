"""Checks of a driver's texts for failures: one for each thread."""

from __future__ import annotations

import ctypes
import threading

from opsmith.driver.failures import DriverFailure
from opsmith.driver.table import LAUNCH_FAILING_WORK, Status
from opsmith.vendor.driver_check.checks.devices import a_failure
from opsmith.vendor.driver_check.model import Broken, Needs, check
from opsmith.vendor.driver_check.subject import Subject


@check(
    "`last_error` is never NULL; after a failure it is one line of text",
    notice="exceptions do not say what went wrong, or the process ends in `last_error`",
)
def last_error(subject: Subject) -> None:
    try:
        subject.driver.last_error()
    except DriverFailure:
        raise Broken("a text, if empty", "it is NULL before any call has failed") from None
    text = a_failure(subject).text
    if not text.strip() or "\n" in text.strip():
        what = "is empty" if not text.strip() else f"has {len(text.strip().splitlines())} lines"
        raise Broken("one line of text", f"the text of a failed call {what}")


@check(
    "`last_error` is the calling thread's own",
    notice="an exception tells of another thread's mistake",
)
def last_error_of_each_thread(subject: Subject) -> None:
    mine = a_failure(subject).text
    theirs: list[str] = []
    thread = threading.Thread(target=lambda: theirs.append(subject.driver.last_error()))
    thread.start()
    thread.join()
    if theirs and mine in theirs[0]:
        raise Broken("nothing of it in another thread", f"a new thread is told {mine!r}")

    def fail_otherwise() -> None:
        try:
            subject.driver.allocate(1 << 61)
        except DriverFailure as failure:
            theirs.append(failure.text)

    thread = threading.Thread(target=fail_otherwise)
    thread.start()
    thread.join()
    now = subject.driver.last_error()
    if now != mine:
        raise Broken(f"still {mine!r}", f"a failure in another thread made it {now!r}")


@check(
    "work that fails when it runs fails the wait for it, or the query that finds it done, with a text",
    notice="a kernel's fault goes unnoticed, and the program goes on with wrong values",
    needs=(Needs.FAILING_WORK,),
)
def late_failures(subject: Subject) -> None:
    driver = subject.driver
    stream = driver.default_stream()
    for entry in ("stream_synchronize", "stream_query"):
        driver.note(LAUNCH_FAILING_WORK)
        launch = getattr(driver.library, LAUNCH_FAILING_WORK)
        launched = Status(launch(ctypes.c_void_p(stream)))
        driver.note("")
        if launched is not Status.OK:
            raise DriverFailure(LAUNCH_FAILING_WORK, launched, driver.last_error())
        while (status := driver.call(entry, stream)) is Status.NOT_READY:
            pass  # of the query
        if status not in (Status.FAILED, Status.DEVICE_LOST):
            raise Broken(
                "OPSMITH_FAILED, or OPSMITH_DEVICE_LOST",
                f"`{entry}` returned OPSMITH_{status.name} after work that failed",
            )
        if not driver.last_error().strip():
            raise Broken("one line of text", "`last_error` is empty after work that failed")
        if status is Status.DEVICE_LOST:
            return
        subject.round_trip("work that failed")
