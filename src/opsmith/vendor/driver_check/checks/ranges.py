"""Ranges of a program: they nest, and each thread has its own."""

from __future__ import annotations

import threading

from opsmith.driver.failures import DriverFailure
from opsmith.vendor.driver_check.model import Broken, Needs, check
from opsmith.vendor.driver_check.subject import Subject


@check(
    "ranges nest, and each thread opens and closes its own",
    notice="torch.<device>.nvtx raises in the middle of a training step",
    needs=(Needs.RANGES,),
)
def nested_ranges(subject: Subject) -> None:
    failures: list[DriverFailure] = []

    def nest() -> None:
        try:
            for depth in range(3):
                subject.driver.check("range_push", f"range {depth}, µs".encode())
            for _ in range(3):
                subject.driver.check("range_pop")
        except DriverFailure as error:
            failures.append(error)

    subject.driver.check("range_push", b"of this thread")
    threads = [threading.Thread(target=nest) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    subject.driver.check("range_pop")
    if failures:
        raise Broken("ranges that open and close", failures[0].happened)
