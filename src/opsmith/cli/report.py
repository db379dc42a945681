"""``opsmith report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from opsmith.cli.console import Json, err, out, print_json, shown_progress, write_json
from opsmith.output_files import check_writable, write_output
from opsmith.report.gathering import Gathering, Inputs
from opsmith.report.page import render
from opsmith.report.report_data import ReportData

Backend = Annotated[str, typer.Option(help="A shipped backend, or a backend.yaml.")]
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


def warn(document: ReportData) -> None:
    """Says on standard error what of the inputs does not fit together."""
    for warning in document.warnings:
        err.print(f"[bold yellow]warning[/]: {escape(warning)}", soft_wrap=True, highlight=False)


def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
    backend: Backend = "sim",
    conform: Conform = None,
    coverage: Coverage = None,
    bench: Bench = None,
    against: Against = None,
    data: Annotated[
        Path | None, typer.Option(help="Write the report's data as JSON too, for --against.")
    ] = None,
    source_link: SourceLink = LOCAL_FILE,
    table: Table = True,
    json: Json = False,
) -> None:
    """Write one HTML page of what a backend does: every operator, the tests, what changed."""
    check_writable(output)
    if data is not None:
        check_writable(data)
    with shown_progress() as progress:
        document = Gathering(
            backend,
            Inputs(conform, coverage, bench, against),
            source_link=source_link,
            tables=table,
            progress=progress,
        ).document()
    page = render(document).encode()
    write_output(output, page)
    if data is not None:
        write_json(data, document)
    warn(document)
    count = len(document.operators.name)
    if json:
        print_json(
            {
                "page": str(output),
                "data": str(data) if data else None,
                "bytes": len(page),
                "backend": document.backend,
                "torch": document.torch,
                "operators": count,
                "conformance": document.conformance.source if document.conformance else None,
                "scores": document.conformance.scores if document.conformance else [],
                "trend": document.trend,
                "warnings": document.warnings,
            }
        )
        return
    tested = document.conformance
    out.print(
        f"{output}: {count:,} operators of {escape(document.backend)}, "
        + (f"{_entries(len(tested.entries))}, " if tested else "")
        + f"{len(page) / 1e6:.1f} MB",
        highlight=False,
        soft_wrap=True,
    )
    if tested is None:
        out.print(
            f"no conformance results yet: opsmith conform --backend {escape(backend)}",
            style="dim",
            soft_wrap=True,
        )


def _entries(count: int) -> str:
    return "1 entry of OpInfo" if count == 1 else f"{count:,} entries of OpInfo"
