"""The checks of a driver, in the order in which a report shows them; a file for each part of the contract."""

from opsmith.vendor.driver_check.checks import (
    copies,
    devices,
    errors,
    events,
    graphs,
    host_memory,
    leaks,
    memory,
    ranges,
    sharing,
    streams,
    threads,
)
from opsmith.vendor.driver_check.model import Check

_PARTS = (
    devices,
    errors,
    memory,
    copies,
    streams,
    events,
    host_memory,
    ranges,
    sharing,
    graphs,
    threads,
    leaks,
)

CHECKS: tuple[Check, ...] = tuple(
    each for part in _PARTS for each in vars(part).values() if isinstance(each, Check)
)
