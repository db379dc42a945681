"""Events: marks in a stream, on the device and for the host."""

from __future__ import annotations

import time

from opsmith.driver.table import Status
from opsmith.vendor.driver_check.checks.streams import expect_done, work_size
from opsmith.vendor.driver_check.model import Broken, Needs, check
from opsmith.vendor.driver_check.subject import Subject, expect_bytes

_PAUSE = 0.02
_ROUNDS = 12


@check(
    "an event that was not recorded has happened",
    notice="`Event().query()` is False, and `Event().synchronize()` waits for ever",
    needs=(Needs.EVENTS,),
)
def events_not_recorded(subject: Subject) -> None:
    with subject.event() as event:
        status = subject.driver.call("event_query", event)
        if status is not Status.OK:
            raise Broken("OPSMITH_OK of `event_query`", f"it returned OPSMITH_{status.name}")
        subject.driver.check("event_synchronize", event)
        stream = subject.driver.default_stream()
        subject.driver.check("stream_wait_event", stream, event)
        subject.driver.synchronize(stream)


@check(
    "an event has happened when what was queued before it is done",
    notice="`Event.synchronize()` returns too early, and data loaders give wrong batches",
    needs=(Needs.EVENTS, Needs.PINNED),
)
def events_wait_for_work(subject: Subject) -> None:
    for way in ("event_synchronize", "event_query"):
        with subject.event() as event:

            def wait(stream: int, way: str = way, event: int = event) -> None:
                subject.driver.check("event_record", event, stream)
                while subject.driver.call(way, event) is Status.NOT_READY:
                    time.sleep(0)

            expect_done(subject, _ROUNDS, wait, f"pinned memory when `{way}` said OPSMITH_OK")


@check(
    "a stream that waits for an event of another goes on after what that one had queued",
    notice="`Stream.wait_stream()` and copies between streams give values from before",
    needs=(Needs.EVENTS,),
)
def streams_wait_for_events(subject: Subject) -> None:
    for waiting in subject.devices[:2]:
        _expect_waiting(subject, waiting)


def _expect_waiting(subject: Subject, waiting: int, destroyed: bool = False) -> None:
    size = work_size(subject)
    driver = subject.driver
    with (
        subject.stream(0) as first,
        subject.stream(waiting) as second,
        subject.block(size, 0) as source,
        subject.block(size, waiting) as to,
    ):
        subject.fill(source, 0, size, first)
        driver.synchronize(first)
        event = driver.event()
        for value in range(_ROUNDS):
            subject.fill(source, value + 1, size, first)
        driver.check("event_record", event, first)
        driver.check("stream_wait_event", second, event)
        driver.check("copy", to, waiting, source, 0, size, second)
        if destroyed:
            driver.check("event_destroy", event)
        driver.synchronize(second)
        found = subject.read(to, size, waiting)
        driver.synchronize(first)
        if not destroyed:
            driver.check("event_destroy", event)
    what = f"a copy on a stream of device {waiting} that waited for an event of device 0"
    expect_bytes(found, bytes([_ROUNDS]) * size, what)


@check(
    "an event that is destroyed while a stream waits for it is waited for all the same",
    notice="the program crashes or hangs where a `torch.Event` goes out of scope",
    needs=(Needs.EVENTS,),
)
def events_destroyed_early(subject: Subject) -> None:
    _expect_waiting(subject, 0, destroyed=True)


@check(
    "an event that is recorded again stands for the later record",
    notice="`Event.record()` in a loop waits for the first round only",
    needs=(Needs.EVENTS,),
)
def events_recorded_again(subject: Subject) -> None:
    size = work_size(subject)
    driver = subject.driver
    with (
        subject.stream() as first,
        subject.stream() as second,
        subject.block(size) as source,
        subject.block(size) as to,
        subject.event() as event,
    ):
        subject.fill(source, 0, size, first)
        driver.check("event_record", event, first)
        driver.synchronize(first)
        for value in range(_ROUNDS):
            subject.fill(source, value + 1, size, first)
        driver.check("event_record", event, first)
        driver.check("stream_wait_event", second, event)
        subject.copy_within(to, source, size, second)
        driver.synchronize(second)
        found = subject.read(to, size)
        driver.synchronize(first)
    expect_bytes(found, bytes([_ROUNDS]) * size, "a copy that waited for an event's second record")


@check(
    "the time between two events is that between their work, in milliseconds",
    notice="`start.elapsed_time(end)` is negative or in another unit",
    needs=(Needs.EVENTS,),
)
def elapsed_time(subject: Subject) -> None:
    driver = subject.driver
    with subject.stream() as stream, subject.event() as start, subject.event() as end:
        began = time.perf_counter()
        driver.check("event_record", start, stream)
        driver.check("event_synchronize", start)
        time.sleep(_PAUSE)
        driver.check("event_record", end, stream)
        driver.check("event_synchronize", end)
        whole = (time.perf_counter() - began) * 1000
        found = driver.elapsed(start, end)
    # The pause lies between the two, and both lie in what the host measured. Clocks differ a little.
    least = _PAUSE * 1000 * 0.9
    if not least <= found <= whole * 1.1 + 1:
        raise Broken(
            f"{least:.0f} to {whole:.0f} ms between events that the host recorded that far apart",
            f"`event_elapsed` gave {found:g}",
        )
