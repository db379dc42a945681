"""``OPSMITH_HOST_WINDOW=off``: every device as one whose memory the host cannot address, for tests."""

from __future__ import annotations

from opsmith.base.switches import is_switched_off

HOST_WINDOW = "OPSMITH_HOST_WINDOW"


def hides_host_windows() -> bool:
    """Whether the environment hides the host windows that drivers have.

    Raises :class:`~opsmith.errors.SettingInvalid`.
    """
    return is_switched_off(
        HOST_WINDOW,
        "set it to off, for devices as the host cannot see into them, or unset it",
    )
