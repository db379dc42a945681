"""Graphs: what is recorded of a stream does not run, and runs as often as the graph is launched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import c_int, c_void_p

from opsmith.driver.failures import DriverFailure
from opsmith.driver.table import Status
from opsmith.vendor.driver_check.model import Broken, Needs, check
from opsmith.vendor.driver_check.subject import Subject, expect_bytes

_SIZE = 1000


@contextmanager
def _graph(subject: Subject, stream: int) -> Iterator[int]:
    """The graph recorded on ``stream``, whose capture has begun."""
    made: int | None = subject.driver.get("capture_end", c_void_p, stream)
    if not made:
        raise Broken("a graph", "`capture_end` returned OPSMITH_OK and NULL")
    yield made
    subject.driver.check("graph_destroy", made)


def _expect_captured(subject: Subject, stream: int, wanted: bool) -> None:
    if bool(subject.driver.get("stream_is_captured", c_int, stream)) is not wanted:
        raise Broken(
            f"a stream that is {'' if wanted else 'not '}captured",
            "`stream_is_captured` says otherwise",
        )


@check(
    "recorded work does not run until its graph is launched, and runs each time that it is",
    notice="a replayed graph computes nothing, or with values of the first time",
    needs=(Needs.GRAPHS,),
)
def recorded_work(subject: Subject) -> None:
    with (
        subject.stream() as stream,
        subject.block(_SIZE) as source,
        subject.block(_SIZE) as to,
    ):
        subject.fill(to, 7, _SIZE, stream)
        subject.driver.synchronize(stream)
        subject.driver.check("capture_begin", stream)
        _expect_captured(subject, stream, True)
        if subject.driver.call("stream_query", stream) is not Status.NOT_READY:
            raise Broken("OPSMITH_NOT_READY of a captured stream", "`stream_query` says otherwise")
        subject.copy_within(to, source, _SIZE, stream)
        with _graph(subject, stream) as graph:
            _expect_captured(subject, stream, False)
            subject.driver.synchronize(stream)
            expect_bytes(subject.read(to, _SIZE), bytes([7]) * _SIZE, "memory of recorded work")
            for value in (1, 2):
                subject.fill(source, value, _SIZE, stream)
                subject.driver.check("graph_launch", graph, stream)
                subject.driver.synchronize(stream)
                expect_bytes(
                    subject.read(to, _SIZE), bytes([value]) * _SIZE, f"launch {value} of a graph"
                )


@check(
    "a stream that waits for a recorded event is recorded too, and the graph keeps the order",
    notice="a graph of several streams computes with values from before",
    needs=(Needs.GRAPHS, Needs.EVENTS),
)
def recorded_streams(subject: Subject) -> None:
    driver = subject.driver
    with (
        subject.stream() as stream,
        subject.stream() as side,
        subject.event() as fork,
        subject.event() as join,
        subject.block(_SIZE) as first,
        subject.block(_SIZE) as last,
    ):
        driver.check("capture_begin", stream)
        subject.fill(first, 3, _SIZE, stream)
        driver.check("event_record", fork, stream)
        driver.check("stream_wait_event", side, fork)
        _expect_captured(subject, side, True)
        subject.copy_within(last, first, _SIZE, side)
        driver.check("event_record", join, side)
        driver.check("stream_wait_event", stream, join)
        with _graph(subject, stream) as graph:
            _expect_captured(subject, side, False)
            driver.check("graph_launch", graph, stream)
            driver.synchronize(stream)
        expect_bytes(subject.read(last, _SIZE), bytes([3]) * _SIZE, "work of a joined stream")


@check(
    "a captured stream refuses to be waited for, and works once its capture has ended",
    notice="after a capture that failed the program hangs",
    needs=(Needs.GRAPHS,),
)
def refusals_while_captured(subject: Subject) -> None:
    with subject.stream() as stream, subject.block(_SIZE) as block:
        subject.driver.check("capture_begin", stream)
        if subject.driver.call("stream_synchronize", stream) is Status.OK:
            raise Broken("a failure", "`stream_synchronize` of a captured stream returned OK")
        with suppress(DriverFailure), _graph(subject, stream):
            pass
        subject.fill(block, 5, _SIZE, stream)
        subject.driver.synchronize(stream)
        expect_bytes(subject.read(block, _SIZE), bytes([5]) * _SIZE, "a fill after a capture")
