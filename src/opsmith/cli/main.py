"""The ``opsmith`` command: its subcommands, and the one place where errors become text."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from opsmith.cli.console import err, fail, out, written_output
from opsmith.cli.deferred import Listed, group_of
from opsmith.cli.earlier import current_arguments
from opsmith.errors import OpsmithError
from opsmith.runtime.torch_import import explained_torch_import

COMMANDS = (
    Listed(
        "demo",
        "opsmith.cli.demo:demo",
        "Train a small CNN on the device and on the CPU, side by side.",
    ),
    Listed(
        "new",
        "opsmith.cli.new:new",
        "Write the repository of a new device: driver, kernels, description, tests; or bring one up to date.",
    ),
    Listed("plan", "opsmith.cli.plan:plan", "Show how every ATen operator is served on a backend."),
    Listed(
        "explain",
        "opsmith.cli.explain:explain",
        "Explain how one operator is served on a backend, and why; or what torch.compile makes of a program.",
    ),
    Listed(
        "keys",
        "opsmith.cli.keys:keys",
        "Show a Tensor's dispatch keys, in the order in which the dispatcher tries them.",
    ),
    Listed(
        "gen",
        "opsmith.cli.gen:gen",
        "Write a backend's generated C++ to a folder, without compiling it.",
    ),
    Listed(
        "build",
        "opsmith.cli.build:build",
        "Build a backend's libraries, or operators from C++ sources alone; or find them in the cache.",
    ),
    Listed(
        "package",
        "opsmith.cli.package:package",
        "Make a wheel of a backend with its built libraries, which is used without a compiler.",
    ),
    Listed(
        "doctor",
        "opsmith.cli.doctor:doctor",
        "Check that this machine can build and load a backend, and say how to mend what is missing.",
    ),
    Listed(
        "driver",
        "opsmith.cli.driver:driver",
        "A device's driver, apart from the backend that it is part of.",
    ),
    Listed(
        "stubs",
        "opsmith.cli.stubs:stubs",
        "List PyTorch's DispatchStubs and the operators that filling each would serve.",
    ),
    Listed(
        "conform",
        "opsmith.cli.conform:conform",
        "Check a device against PyTorch's own operator database, OpInfo.",
    ),
    Listed(
        "fuzz",
        "opsmith.cli.fuzz:fuzz",
        "Run random programs on a device and on the CPU, and shrink those that differ.",
    ),
    Listed(
        "upstream",
        "opsmith.cli.upstream:upstream",
        "Run PyTorch's own device-generic tests, from a checkout, or those of TorchCTS on a device.",
    ),
    Listed(
        "bench",
        "opsmith.cli.bench:bench",
        "Run benchmarks beside their peers: medians and spread, goals, and what changed since an earlier "
        "run.",
    ),
    Listed(
        "report",
        "opsmith.cli.report:report",
        "Write one HTML page of what a backend does: every operator, the tests, what changed.",
    ),
    Listed(
        "import",
        "opsmith.cli.import_:import_",
        "Turn a kernel library that torchgen, op-plugin, ExecuTorch or FlagGems describes into a manifest.",
    ),
    Listed(
        "fallbacks",
        "opsmith.cli.fallbacks:fallbacks",
        "Run a program and show what of it ran on the CPU, and which kernel to write first.",
        takes_program=True,
    ),
    Listed(
        "coverage",
        "opsmith.cli.coverage:coverage",
        "Show how much of PyTorch a backend serves; or of a program, by time, and which kernels to write "
        "next.",
        takes_program=True,
    ),
    Listed(
        "trace",
        "opsmith.cli.trace:trace",
        "Run a program and show the kernels that PyTorch's dispatcher ran on its device, with key and route.",
        takes_program=True,
    ),
    Listed(
        "ops",
        "opsmith.cli.ops:ops",
        "List the operators of a backend with what is known of each; `opsmith ops show OP` has all.",
    ),
    Listed(
        "executorch",
        "opsmith.cli.executorch:executorch",
        "Programs of ExecuTorch and the kernel libraries that serve them.",
    ),
)

app = typer.Typer(
    name="opsmith",
    cls=group_of(COMMANDS),
    help="Brings a new accelerator's operators into PyTorch from one description.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from opsmith.schema import torch_version  # takes longer than all other imports here

        out.print(f"opsmith {version('opsmith')}, torch {torch_version()}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_show_version,
            help="Show the versions of opsmith and torch, and exit.",
        ),
    ] = False,
) -> None:
    """The options of the command itself."""


def main() -> None:
    """The console script."""
    try:
        with explained_torch_import(), written_output():
            app(args=current_arguments(sys.argv[1:]))
    except OpsmithError as error:
        try:
            fail(error)
        except typer.Exit as stop:
            sys.exit(stop.exit_code)
    except KeyboardInterrupt:
        err.print("interrupted; what was built so far is kept")
        sys.exit(130)
