"""``opsmith build``."""

from __future__ import annotations

from typing import Annotated

import typer

from opsmith.build.backend import build_backend
from opsmith.cli.console import Json, out, print_json, shown_progress
from opsmith.description import find_backend


def build(
    backend: Annotated[str, typer.Argument(help="A shipped backend, or a backend.yaml.")],
    json: Json = False,
) -> None:
    """Build a backend's libraries, or find them in the cache."""
    with shown_progress() as progress:
        built = build_backend(find_backend(backend), progress=progress)
    if json:
        print_json(
            {
                "backend": built.name,
                "library": str(built.library),
                "driver": str(built.driver),
                "generated": str(built.generated),
            }
        )
        return
    out.print(f"library    {built.library}", highlight=False, soft_wrap=True)
    out.print(f"driver     {built.driver}", highlight=False, soft_wrap=True)
    out.print(f"generated  {built.generated}", highlight=False, soft_wrap=True)
