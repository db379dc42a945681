"""Options and arguments that several commands have, each with one name and one text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Backend = Annotated[str, typer.Option(help="A shipped backend, or a backend.yaml.")]

# Of commands that run a program.
ProgramName = Annotated[str, typer.Argument(help="A Python file, or a module with -m.")]
Arguments = Annotated[list[str] | None, typer.Argument(help="The program's own.")]
LoadedBackend = Annotated[
    str | None, typer.Option(help="Load this backend for a program that loads none itself.")
]

# Of a report.
Conform = Annotated[
    Path | None, typer.Option(help="Results of `opsmith conform`; else the latest of the backend.")
]
Coverage = Annotated[Path | None, typer.Option(help="What `opsmith coverage -o` wrote.")]
Bench = Annotated[Path | None, typer.Option(help="What `opsmith bench -o` wrote.")]
Against = Annotated[
    Path | None, typer.Option(help="An earlier report, or its --data: shows what changed since.")
]
Table = Annotated[
    bool, typer.Option(help="Show dispatch tables, for which the backend is built and loaded once.")
]
SourceLink = Annotated[
    str,
    typer.Option(
        help="Where kernels' sources are linked to: {path}, {line}, {relative} to this folder."
    ),
]
LOCAL_FILE = "file://{path}"
