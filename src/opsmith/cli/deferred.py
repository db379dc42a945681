"""Commands whose modules are imported when they are called, so that each pays for itself alone.

The groups of :mod:`opsmith.cli.main` and :mod:`opsmith.cli.executorch` are made of them.  What is listed of a
command by ``--help`` stands in a table; everything else is its function's, or its own group's.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from opsmith.base.collector import collector_paused


@dataclass(frozen=True)
class Listed:
    """A command as its group lists it.

    ``target`` is where its function, or its Typer, is: ``module:attribute``.  ``help`` is the first
    paragraph of what its own ``--help`` says.
    ``takes_program``: what follows the program's name is the program's.
    """

    name: str
    target: str
    help: str
    takes_program: bool = False

    def command(self) -> Any:
        """The command itself, imported now."""
        module, _, attribute = self.target.partition(":")
        with collector_paused():
            found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
        else:
            alone = typer.Typer(add_completion=False)
            settings = {"allow_interspersed_args": False} if self.takes_program else None
            alone.command(context_settings=settings)(found)
            command = get_command(alone)
        command.name = self.name
        return command


class _Deferred(TyperCommand):
    """Stands for a command in its group."""

    def __init__(self, listed: Listed) -> None:
        super().__init__(listed.name, help=listed.help)
        self.listed = listed


def group_of(listed: Iterable[Listed]) -> type[TyperGroup]:
    """The class of a group with the ``listed`` commands, in this order."""

    class Deferring(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands = {each.name: _Deferred(each) for each in listed}

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            return (
                name,
                command.listed.command() if isinstance(command, _Deferred) else command,
                rest,
            )

    return Deferring


def group(listed: Iterable[Listed], help: str) -> typer.Typer:
    """A group of nothing but the ``listed`` commands."""
    made = typer.Typer(cls=group_of(listed), no_args_is_help=True, help=help)
    made.callback()(lambda: None)  # makes it a group: none of its commands is here yet
    return made
