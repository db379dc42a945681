"""``OPSMITH_HOST_WINDOW=off``: every device as one whose memory the host cannot address, for tests."""

from __future__ import annotations

import os

from opsmith.errors import SettingInvalid

HOST_WINDOW = "OPSMITH_HOST_WINDOW"


def hides_host_windows() -> bool:
    """Whether the environment hides the host windows that drivers have.

    Raises :class:`~opsmith.errors.SettingInvalid`.
    """
    asked = os.environ.get(HOST_WINDOW, "")
    if asked not in {"", "on", "off"}:
        raise SettingInvalid(
            f"{HOST_WINDOW} is `{asked}`, which is neither on nor off",
            remedy="set it to off, for devices as the host cannot see into them, or unset it",
        )
    return asked == "off"
