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

CHECKS: tuple[Check, ...] = (
    *devices.CHECKS,
    *errors.CHECKS,
    *memory.CHECKS,
    *copies.CHECKS,
    *streams.CHECKS,
    *events.CHECKS,
    *host_memory.CHECKS,
    *ranges.CHECKS,
    *sharing.CHECKS,
    *graphs.CHECKS,
    *threads.CHECKS,
    *leaks.CHECKS,
)
