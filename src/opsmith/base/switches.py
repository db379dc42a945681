"""Settings of the environment that are ``on`` or ``off``."""

from __future__ import annotations

import os

from opsmith.errors import SettingInvalid


def is_switched_off(variable: str, remedy: str) -> bool:
    """Whether the environment's ``variable`` is ``off``; ``on``, empty and unset are the same.

    Raises :class:`~opsmith.errors.SettingInvalid`, with ``remedy``, for another value.
    """
    setting = os.environ.get(variable, "")
    if setting not in {"", "on", "off"}:
        raise SettingInvalid(
            f"{variable} is `{setting}`, which is neither on nor off", remedy=remedy
        )
    return setting == "off"
