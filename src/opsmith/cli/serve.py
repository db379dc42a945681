"""``opsmith serve``."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from opsmith.cli import options
from opsmith.cli.console import Json, err, out, print_json, shown_progress
from opsmith.cli.report import warn
from opsmith.report.gathering import Gathering, Inputs
from opsmith.report.server import Snapshots, serving


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    backend: options.BackendArgument = "",
    named: options.NamedBackend = "",
    conform: options.Conform = None,
    coverage: options.Coverage = None,
    bench: options.Bench = None,
    against: options.Against = None,
    source_link: options.SourceLink = options.LOCAL_FILE,
    table: options.Table = True,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0, help="Stop after so many seconds.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the report in a browser of this machine, live while `opsmith conform` runs."""
    with shown_progress() as progress:
        gathering = Gathering(
            backend,
            Inputs(conform, coverage, bench, against),
            source_link=source_link,
            tables=table,
            awaits_results=True,
            progress=progress,
        )
    snapshots = Snapshots(gathering)
    # What is wrong with the inputs is said before anything listens.
    document, *_ = snapshots.latest()
    warn(document)
    with serving(snapshots, port) as address:
        if json:
            print_json({"address": address, "results": str(gathering.results)})
        else:
            out.print(f"{address}  (Ctrl-C ends it)", highlight=False, soft_wrap=True)
        try:
            threading.Event().wait(seconds)
        except KeyboardInterrupt:
            err.print("ended")
