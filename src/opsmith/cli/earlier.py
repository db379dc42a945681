"""Calls that earlier versions took, read as what has replaced them."""

from __future__ import annotations

from collections.abc import Sequence

from opsmith.cli.console import err

# Options of `conform` that have become commands, and how each takes the option's value.
_COMMANDS = {
    "--fuzz": "fuzz --programs",
    "--upstream": "upstream",
    "--torchcts": "upstream torchcts",
}


def current_arguments(arguments: Sequence[str]) -> list[str]:
    """The command line ``arguments`` as this version has it, after a warning where that differs."""
    if not arguments or arguments[0] != "conform":
        return list(arguments)
    rest = [word for argument in arguments[1:] for word in _split(argument)]
    if "--gaps" in rest:
        _warn("--gaps is called --expected-failures")
        rest = ["--expected-failures" if word == "--gaps" else word for word in rest]
    for option, command in _COMMANDS.items():
        if option in rest:
            _warn(f"`opsmith conform {option}` is called `opsmith {command}`")
            at = rest.index(option)
            value = [] if option == "--torchcts" else rest[at + 1 : at + 2]
            return [*command.split(), *value, *rest[:at], *rest[at + 1 + len(value) :]]
    return ["conform", *rest]


def _split(argument: str) -> list[str]:
    option, equals, value = argument.partition("=")
    return [option, value] if equals and option in {*_COMMANDS, "--gaps"} else [argument]


def _warn(change: str) -> None:
    err.print(
        f"[yellow]warning[/]: {change} now, and the next version of opsmith no longer takes the old form",
        soft_wrap=True,
    )
