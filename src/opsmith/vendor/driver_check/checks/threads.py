"""Many threads at once, as PyTorch has them: the user's, autograd's, the data loader's."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from opsmith.vendor.driver_check.model import Broken, check
from opsmith.vendor.driver_check.subject import Subject, expect_bytes

_THREADS = 8
_ROUNDS = 40


@check(
    "eight threads work at once, each with its own stream and memory",
    notice="training with a data loader or with autograd's threads gives wrong values, crashes or hangs",
)
def threads_at_once(subject: Subject) -> None:
    devices = len(subject.devices)

    def work(thread: int) -> None:
        chance = random.Random(thread)
        device = thread % devices
        with subject.stream(device) as stream:
            for turn in range(_ROUNDS):
                size = chance.choice((1, 100, 4096, 70_000, 1 << 20))
                data = chance.randbytes(size)
                what = f"round {turn} of thread {thread} of {_THREADS}"
                with subject.block(size, device) as first, subject.block(size, device) as second:
                    subject.write(first, data, device, stream)
                    subject.copy_within(second, first, size, stream, device)
                    subject.fill(first, thread, size, stream, device)
                    expect_bytes(subject.read(second, size, device, stream), data, what)
                    found = subject.read(first, size, device, stream)
                    expect_bytes(found, bytes([thread]) * size, what)

    _run([lambda thread=thread: work(thread) for thread in range(_THREADS)])  # type: ignore[misc]


@check(
    "memory and streams of one thread serve another",
    notice="a tensor that a thread made cannot be used or freed in another",
)
def threads_share(subject: Subject) -> None:
    data = subject.data(5000)
    made: list[tuple[int, int]] = []
    found: list[bytes] = []

    def make() -> None:
        stream, block = subject.driver.stream(), subject.allocated(len(data))
        made.append((stream, block))
        subject.write(block, data, stream=stream)

    def release() -> None:
        stream, block = made[0]
        subject.driver.check("stream_destroy", stream)
        subject.driver.release(block)

    _run([make])
    _run([lambda: found.append(subject.read(made[0][1], len(data), stream=made[0][0]))])
    _run([release])
    expect_bytes(found[0], data, "memory that another thread allocated and wrote")


def _run(works: list[Callable[[], None]]) -> None:
    """Runs each in a thread; breaks as the first of them did."""
    raised: list[Exception] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in raised:
        if isinstance(error, Broken):
            raise error
    if raised:
        raise raised[0]
