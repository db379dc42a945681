"""The contract with a device, from Python: drivers written as a class, and any driver's table called.

``opsmith.driver.Driver`` is the base class of a driver in Python (docs/describe/python-drivers.md).
"""

from opsmith.driver.addresses import AddressRange
from opsmith.driver.failures import (
    DeviceError,
    DeviceLost,
    DriverFailure,
    InvalidArgument,
    OutOfMemory,
    StatusUnknown,
)
from opsmith.driver.host_memory import host_bytes
from opsmith.driver.opened import OpenedDriver
from opsmith.driver.python_driver import DeviceProperties, Driver, Event, MemoryHandle, Stream
from opsmith.driver.table import HOST, Status

__all__ = [
    "HOST",
    "AddressRange",
    "DeviceError",
    "DeviceLost",
    "DeviceProperties",
    "Driver",
    "DriverFailure",
    "Event",
    "InvalidArgument",
    "MemoryHandle",
    "OpenedDriver",
    "OutOfMemory",
    "Status",
    "StatusUnknown",
    "Stream",
    "host_bytes",
]
