"""Streams: in-order queues, what waits for them, and functions of the host in between."""

from __future__ import annotations

import time
from collections.abc import Callable

from opsmith.driver.table import HOST, HostFunction, Status
from opsmith.vendor.driver_check.model import Broken, Needs, check
from opsmith.vendor.driver_check.subject import Subject, expect_bytes

# Long enough for a function that is called again to be noticed.
_MOMENT = 0.02
# Copies that are pending when they are waited for.
_ROUNDS = 16


def work_size(subject: Subject) -> int:
    """Bytes of a piece of work that takes an asynchronous device a while."""
    return min(8 << 20, subject.driver.memory()[0] // 16)


@check(
    "each device has one default stream",
    notice="work of one operator runs before that of the one before",
)
def default_streams(subject: Subject) -> None:
    for device in subject.devices:
        first, again = (subject.driver.default_stream(device) for _ in range(2))
        if not first:
            raise Broken("a stream", f"that of device {device} is NULL")
        if first != again:
            raise Broken(
                f"the same stream of device {device} each time", f"{first:#x}, and then {again:#x}"
            )


def _expect_order(subject: Subject, stream: int, what: str, device: int) -> None:
    size = work_size(subject)
    with (
        subject.block(size, device) as source,
        subject.block(size, device) as first,
        subject.block(size, device) as second,
    ):
        subject.fill(source, 1, size, stream, device)
        subject.copy_within(first, source, size, stream, device)
        subject.fill(source, 2, size, stream, device)
        subject.copy_within(second, source, size, stream, device)
        subject.fill(source, 3, size, stream, device)
        subject.driver.synchronize(stream)
        for value, block in ((1, first), (2, second), (3, source)):
            found = subject.read(block, size, device, stream)
            expect_bytes(found, bytes([value]) * size, f"fills and copies in turn on {what}")


@check(
    "the default stream does its work in order",
    notice="operators compute with values from before or after their turn",
)
def order_on_the_default_stream(subject: Subject) -> None:
    for device in subject.devices:
        stream = subject.driver.default_stream(device)
        _expect_order(subject, stream, f"the default stream of device {device}", device)


@check(
    "streams of any priority do their work in order",
    notice="programs with `torch.Stream` compute with values from before or after their turn",
)
def order_on_created_streams(subject: Subject) -> None:
    for device in subject.devices:
        for priority in (0, -1, 1):
            with subject.stream(device, priority) as stream:
                _expect_order(subject, stream, f"a stream with priority {priority}", device)


@check(
    "a stream is idle when it was waited for, and says so",
    notice="`Stream.query()` is never True, and memory is never released early",
)
def idle_after_synchronize(subject: Subject) -> None:
    size = work_size(subject)
    with subject.stream() as stream, subject.block(size) as block:
        for asked in (stream, subject.driver.default_stream()):
            subject.fill(block, 5, size, asked)
            subject.driver.synchronize(asked)
            status = subject.driver.call("stream_query", asked)
            if status is not Status.OK:
                raise Broken(
                    "OPSMITH_OK of `stream_query` after `stream_synchronize`",
                    f"it returned OPSMITH_{status.name}",
                )


def expect_done(subject: Subject, rounds: int, wait: Callable[[int], None], what: str) -> None:
    """Breaks unless so many copies into pinned memory are done when ``wait`` of their stream has returned."""
    size = work_size(subject)
    with subject.stream() as stream, subject.block(size) as block, subject.pinned(size) as pinned:
        subject.host_write(pinned, bytes(size))
        for value in range(rounds):
            subject.fill(block, value, size, stream)
            subject.driver.check("copy", pinned, HOST, block, 0, size, stream)
        wait(stream)
        found = subject.host_copy(pinned, size)
        subject.driver.synchronize(stream)
        # Here: where waiting does not wait, what is destroyed below may still be in use.
        expect_bytes(found, bytes([rounds - 1]) * size, what)


@check(
    "`stream_synchronize` returns when the work is done",
    notice="`tensor.cpu()` and `item()` give values from before",
    needs=(Needs.PINNED,),
)
def synchronize_waits(subject: Subject) -> None:
    what = "pinned memory after the stream was waited for"
    expect_done(subject, _ROUNDS, subject.driver.synchronize, what)


@check(
    "`stream_query` says OPSMITH_OK only when the work is done",
    notice="memory is handed out again while a stream still writes it: tensors change by themselves",
    needs=(Needs.PINNED,),
)
def query_tells_of_pending_work(subject: Subject) -> None:
    def wait(stream: int) -> None:
        while subject.driver.call("stream_query", stream) is Status.NOT_READY:
            time.sleep(0)

    expect_done(subject, _ROUNDS, wait, "pinned memory when `stream_query` said OPSMITH_OK")


@check(
    "a stream that is destroyed takes none of its work with it",
    notice="values are missing that were computed on a stream of the driver's own",
    needs=(Needs.EVENTS,),
)
def destroyed_streams(subject: Subject) -> None:
    size = work_size(subject)
    with subject.block(size) as block, subject.event() as event:
        subject.write(block, bytes(size))
        with subject.stream() as stream:
            subject.fill(block, 3, size, stream)
            subject.driver.check("event_record", event, stream)
        subject.driver.check("event_synchronize", event)
        found = subject.read(block, size)
    expect_bytes(found, b"\x03" * size, "memory filled on a stream that was destroyed since")


@check(
    "functions of the host run once each, in their turn, before `stream_synchronize` returns",
    notice="kernels that queue functions of the host compute too early, twice, or never",
    needs=(Needs.HOST_FUNCTION,),
)
def host_functions(subject: Subject) -> None:
    size = work_size(subject)
    called: list[int] = []
    callback = HostFunction(lambda argument: called.append(argument or 0))
    with subject.stream() as stream, subject.block(size) as block:
        for turn in range(1, 6):
            subject.fill(block, turn, size, stream)
            subject.driver.check("stream_host_function", stream, callback, turn)
        subject.driver.synchronize(stream)
        at_once = list(called)
        time.sleep(_MOMENT)
    expected = [1, 2, 3, 4, 5]
    if at_once != expected or called != expected:
        raise Broken(
            f"calls with the arguments {expected}",
            f"{at_once} when the stream was waited for, {called} later",
        )


@check(
    "functions of the host see what was queued before them, and not what comes after",
    notice="kernels that queue functions of the host compute with values from before or after their turn",
    needs=(Needs.HOST_FUNCTION, Needs.PINNED),
)
def host_functions_in_turn(subject: Subject) -> None:
    size = work_size(subject)
    seen: list[bytes] = []
    with subject.stream() as stream, subject.block(size) as block, subject.pinned(size) as pinned:
        callback = HostFunction(lambda _: seen.append(subject.host_copy(pinned, size)[-1:]))
        for turn in range(1, 6):
            subject.fill(block, turn, size, stream)
            subject.driver.check("copy", pinned, HOST, block, 0, size, stream)
            subject.driver.check("stream_host_function", stream, callback, None)
        subject.driver.synchronize(stream)
    if seen != [bytes([turn]) for turn in range(1, 6)]:
        found = [byte[0] for byte in seen]
        raise Broken("each the value of the copy before it: [1, 2, 3, 4, 5]", f"they saw {found}")
