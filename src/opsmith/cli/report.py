"""``opsmith report``."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from opsmith.base.output_files import check_writable, write_output
from opsmith.cli import options
from opsmith.cli.console import Json, err, out, print_json, shown_progress, write_json
from opsmith.cli.opened import say_loaded
from opsmith.cli.options import flag, written_to
from opsmith.observe.report.gathering import Inputs, gathered
from opsmith.observe.report.page import render
from opsmith.observe.report.report_data import ReportData
from opsmith.observe.report.verdict_table import as_markdown, verdict_table


def warn(document: ReportData) -> None:
    """Says on standard error what of the inputs does not fit together."""
    for warning in document.warnings:
        err.print(f"[bold yellow]warning[/]: {escape(warning)}", soft_wrap=True, highlight=False)


def report(
    output: Annotated[Path, written_to("The page.")] = Path("report.html"),
    backend: options.BackendArgument = "",
    named: options.NamedBackend = "",
    conform: options.Conform = None,
    coverage: options.Coverage = None,
    bench: options.Bench = None,
    against: options.Against = None,
    data: Annotated[
        Path | None, typer.Option(help="Write the report's data as JSON too, for --against.")
    ] = None,
    verdicts: Annotated[
        Path | None,
        typer.Option(
            help="Write each operator's verdict too: a table if FILE ends in .md, else JSON."
        ),
    ] = None,
    source_link: options.SourceLink = options.LOCAL_FILE,
    table: options.Table = True,
    build: options.Build = False,
    open_page: Annotated[bool, flag("--open", "Open the page in this machine's browser.")] = False,
    json: Json = False,
) -> None:
    """Write one HTML page of what a backend does: every operator, the tests, what changed."""
    for path in (output, data, verdicts):
        if path is not None:
            check_writable(path)
    with shown_progress() as progress:
        document = gathered(
            backend,
            Inputs(conform, coverage, bench, against),
            source_link=source_link,
            tables=table,
            build=build,
            progress=progress,
        )
    page = render(document).encode()
    write_output(output, page)
    if data is not None:
        write_json(data, document)
    if verdicts is not None:
        _write_verdicts(verdicts, document)
    if document.loaded:
        say_loaded(document.loaded)
    warn(document)
    if json:
        print_json(_summary(document, output, data, len(page)))
    else:
        _print(document, output, len(page), backend)
    if open_page and not webbrowser.open(output.absolute().as_uri()):
        err.print("no browser was found; open the page by hand", style="dim")


def _write_verdicts(path: Path, document: ReportData) -> None:
    table = verdict_table(document)
    if path.suffix == ".md":
        write_output(path, as_markdown(table).encode())
    else:
        write_json(path, table)


def _summary(document: ReportData, page: Path, data: Path | None, size: int) -> dict[str, object]:
    tested = document.conformance
    return {
        "page": str(page),
        "data": str(data) if data else None,
        "bytes": size,
        "backend": document.backend,
        "build": document.build,
        "torch": document.torch,
        "operators": len(document.operators.name),
        "conformance": tested.source if tested else None,
        "scores": tested.scores if tested else [],
        "trend": document.trend,
        "warnings": document.warnings,
    }


def _print(document: ReportData, page: Path, size: int, backend: str) -> None:
    tested = document.conformance
    out.print(
        f"{page}: {len(document.operators.name):,} operators of {escape(document.backend)}, "
        + (f"{_entries(len(tested.entries))}, " if tested else "")
        + f"{size / 1e6:.1f} MB",
        highlight=False,
        soft_wrap=True,
    )
    if tested is None:
        out.print(
            f"no conformance results of this build yet: opsmith conform --backend {escape(backend)}",
            style="dim",
            soft_wrap=True,
        )


def _entries(count: int) -> str:
    return "1 entry of OpInfo" if count == 1 else f"{count:,} entries of OpInfo"
