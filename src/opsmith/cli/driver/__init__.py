"""``opsmith driver``: a device's driver, apart from the backend that it is part of."""

from __future__ import annotations

import typer

from opsmith.cli.deferred import Listed, group_of

COMMANDS = (
    Listed(
        "check",
        "opsmith.cli.driver.check:check",
        "Check a driver against its contract, function by function, and say what PyTorch's users would "
        "notice.",
    ),
)

driver = typer.Typer(
    cls=group_of(COMMANDS),
    no_args_is_help=True,
    help="A device's driver, apart from the backend that it is part of.",
)


@driver.callback()
def _commands() -> None:
    """Makes it a group: none of its commands is here yet."""
