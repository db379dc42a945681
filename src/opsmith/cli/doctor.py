"""``opsmith doctor``."""

from __future__ import annotations

import typer
from rich.markup import escape
from rich.table import Table

from opsmith.cli.console import Json, out, print_json
from opsmith.cli.options import BackendArgument, NamedBackend
from opsmith.vendor.doctor.requirements import Diagnosis, diagnose


def doctor(
    backend: BackendArgument = "",
    named: NamedBackend = "",
    json: Json = False,
) -> None:
    """Check that this machine can build and load a backend, and say how to mend what is missing."""
    checks = diagnose(backend)
    ready = all(check.ok for check in checks if check.required)
    if json:
        print_json({"ok": ready, "checks": checks})
    else:
        out.print(_table(checks))
        if ready:
            out.print("everything that is needed is here")
    if not ready:
        raise typer.Exit(1)


def _table(checks: list[Diagnosis]) -> Table:
    table = Table(header_style="bold")
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    for check in checks:
        mark = "[green]ok[/]" if check.ok else "[bold red]missing[/]" if check.required else "-"
        remedy = f"\n[bold green]remedy[/]: {escape(check.remedy)}" if check.remedy else ""
        table.add_row(check.name, mark, escape(check.found) + remedy)
    return table
