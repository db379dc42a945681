"""Failures of a driver's calls: the statuses of ``opsmith_driver.h`` as exceptions.

A driver in Python raises them; :class:`~opsmith.driver.opened.OpenedDriver` raises
:class:`DriverFailure` for what any driver returns.
"""

from __future__ import annotations

from typing import ClassVar

from opsmith.driver.table import Status
from opsmith.errors import OpsmithError


class DeviceError(OpsmithError):
    """A call of the driver failed, and the device still works; PyTorch raises ``torch.AcceleratorError``."""

    status: ClassVar[Status] = Status.FAILED


class OutOfMemory(DeviceError):
    """The device has no room; PyTorch raises ``torch.OutOfMemoryError``."""

    status = Status.OUT_OF_MEMORY


class InvalidArgument(DeviceError):
    """The caller's mistake: an address, a size or a device that does not exist."""

    status = Status.INVALID_ARGUMENT


class DeviceLost(DeviceError):
    """The device is gone, and every later call on it fails alike."""

    status = Status.DEVICE_LOST


class DriverFailure(OpsmithError):
    """An entry that did not return ``OPSMITH_OK``: ``status``, and ``text`` of ``last_error()``."""

    def __init__(self, entry: str, status: Status, text: str) -> None:
        super().__init__(f"{status.name}: {text}")
        self.entry = entry
        self.status = status
        self.text = text

    @property
    def happened(self) -> str:
        """The status that the entry returned and its text, in one line."""
        return f"`{self.entry}` returned OPSMITH_{self.status.name}: {self.text}"


class StatusUnknown(OpsmithError):
    """An entry that returned a number which is no ``opsmith_status``."""

    def __init__(self, entry: str, number: int) -> None:
        super().__init__(
            f"`{entry}` returned {number}, which is no status",
            remedy="return one of opsmith_status (opsmith_driver.h)",
        )
        self.entry = entry
        self.number = number
