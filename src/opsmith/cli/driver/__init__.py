"""``opsmith driver``: a device's driver, apart from the backend that it is part of."""

from __future__ import annotations

from opsmith.cli.deferred import Listed, group

COMMANDS = (
    Listed(
        "check",
        "opsmith.cli.driver.check:check",
        "Check a driver against its contract, function by function, and say what PyTorch's users would "
        "notice.",
    ),
)

driver = group(COMMANDS, "A device's driver, apart from the backend that it is part of.")
