"""The ``opsmith`` command: its subcommands, and the one place where errors become text."""

from __future__ import annotations

import sys

import typer

from opsmith.cli.bench import bench
from opsmith.cli.build import build
from opsmith.cli.conform import conform
from opsmith.cli.console import err, fail
from opsmith.cli.coverage import coverage
from opsmith.cli.demo import demo
from opsmith.cli.doctor import doctor
from opsmith.cli.executorch import executorch
from opsmith.cli.explain import explain
from opsmith.cli.fallbacks import fallbacks
from opsmith.cli.gen import gen
from opsmith.cli.import_ import import_
from opsmith.cli.keys import keys
from opsmith.cli.ops import ops
from opsmith.cli.plan import plan
from opsmith.cli.report import report
from opsmith.cli.serve import serve
from opsmith.cli.stubs import stubs
from opsmith.cli.trace import trace
from opsmith.errors import OpsmithError

app = typer.Typer(
    name="opsmith",
    help="Brings a new accelerator's operators into PyTorch from one description.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo,
    plan,
    explain,
    keys,
    gen,
    build,
    doctor,
    stubs,
    conform,
    bench,
    report,
    serve,
):
    app.command()(command)
app.add_typer(ops, name="ops")
app.add_typer(executorch, name="executorch")
app.command("import")(import_)
# What follows the program's name is the program's.
for program_command in (fallbacks, coverage, trace):
    app.command(context_settings={"allow_interspersed_args": False})(program_command)


def main() -> None:
    """The console script."""
    try:
        app()
    except OpsmithError as error:
        try:
            fail(error)
        except typer.Exit as stop:
            sys.exit(stop.exit_code)
    except KeyboardInterrupt:
        err.print("interrupted; what was built so far is kept")
        sys.exit(130)
