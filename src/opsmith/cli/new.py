"""``opsmith new``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from opsmith.cli.console import Json, many, out, print_json
from opsmith.cli.options import flag
from opsmith.vendor.scaffold import (
    Choices,
    DriverLanguage,
    KernelLanguage,
    Upgrade,
    apply_upgrade,
    chosen,
    find_upgrade,
    write_project,
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FOLDER",
        help="The new device, such as mychip; with --upgrade the folder of a project.",
        show_default=False,
    ),
]
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def new(
    name: Name = "",
    driver: Annotated[
        DriverLanguage | None,
        typer.Option(
            help="What the driver is written in.",
            show_default="c; kernels in opencl have one that comes with opsmith",
        ),
    ] = None,
    kernels: Annotated[
        KernelLanguage | None,
        typer.Option(
            help="What the kernels are written in.",
            show_default="python for a driver in python, else cpp",
        ),
    ] = None,
    executorch: Annotated[
        bool, flag("--executorch", "Kernels that serve programs of ExecuTorch too.")
    ] = False,
    upgrade: Annotated[
        bool, flag("--upgrade", "Show what this opsmith would write differently; ./ by default.")
    ] = False,
    apply: Annotated[
        bool, flag("--apply", "With --upgrade: change the files that you have not edited.")
    ] = False,
    json: Json = False,
) -> None:
    """Write the repository of a new device: driver, kernels, description, tests; or bring one up to date.

    `pip install ".[test]"` there and `opsmith build NAME` give PyTorch the device, and `pytest` tests it.
    """
    if upgrade:
        if executorch or kernels or driver:
            raise typer.BadParameter("--upgrade keeps the project's own choices")
        _upgrade(Path(name or "."), apply, json)
    elif apply:
        raise typer.BadParameter("--apply goes with --upgrade")
    elif not name:
        raise typer.BadParameter("name the device: opsmith new mychip")
    else:
        _new(chosen(name, driver, kernels, executorch), json)


def _new(choices: Choices, json: bool) -> None:
    folder = write_project(choices, Path())
    files = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    if json:
        print_json({"folder": str(folder.resolve()), "files": files})
        return
    for file in files:
        out.print(f"{folder}/{file}", highlight=False, markup=False, soft_wrap=True)
    steps = f"cd {folder}", 'pip install ".[test]"', f"opsmith build {choices.name}", "pytest"
    out.print(f"next: {' && '.join(steps)}", highlight=False, markup=False, soft_wrap=True)


def _upgrade(folder: Path, apply: bool, json: bool) -> None:
    found = find_upgrade(folder)
    if apply:
        apply_upgrade(found)
    if json:
        print_json(
            {
                "folder": str(folder.resolve()),
                "wrote": found.wrote,
                "now": found.now,
                "applied": apply,
                "changes": found.changes,
            }
        )
    else:
        _print(found, apply)


def _print(upgrade: Upgrade, applied: bool) -> None:
    out.print(f"written by opsmith {upgrade.wrote}, this is opsmith {upgrade.now}", highlight=False)
    for change in upgrade.changes:
        said = {
            (False, False): "would be brought up to date",
            (False, True): "is up to date now",
            (True, False): "is edited, and would be left alone; the templates differ by",
            (True, True): "is edited, and was left alone; the templates differ by",
        }[change.edited, applied]
        out.print(f"\n[bold]{escape(change.path)}[/] {said}", highlight=False, soft_wrap=True)
        for line in change.diff.splitlines():
            out.print(escape(line), style=_COLOURS.get(line[:1]), highlight=False, soft_wrap=True)
    edited = sum(change.edited for change in upgrade.changes)
    if not upgrade.changes:
        out.print("nothing would be written differently")
    elif applied and edited:
        out.print(f"\nto take over by hand: {many(edited, 'file')}, shown above and not again")
    elif not applied and edited < len(upgrade.changes):
        out.print(
            f"\nopsmith new --upgrade --apply changes {many(len(upgrade.changes) - edited, 'file')}",
            highlight=False,
        )
