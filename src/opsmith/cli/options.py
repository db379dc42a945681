"""Options and arguments that several commands have, each with one name and one text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from opsmith.base.output_files import check_writable
from opsmith.cli.console import err

# Where a folder has its description, and where the repository has it that `opsmith new` writes.
_HERE = ("backend.yaml", "src/*/backend.yaml")


def chosen_backend(context: typer.Context, given: str) -> str:
    """The backend that a command is about: the one ``given``, or else that of the folder, or else sim.

    Of commands that take it as an argument, ``--backend`` names it too.
    """
    named = context.params.get("named") or ""
    if given and named:
        raise typer.BadParameter(f"the backend is named twice: {given} and --backend {named}")
    return str(given or named) or default_backend()


def given_backend(context: typer.Context, backend: str) -> str | None:
    """The backend that the command line names; None where it names none."""
    source = context.get_parameter_source("backend")
    return None if source is None or source.name == "DEFAULT" else backend


def default_backend() -> str:
    """The one description of the folder, which stderr is told of, or sim where there is none."""
    found = _backends_here()
    if len(found) > 1:
        raise typer.BadParameter(f"name one of the folder's backends: {', '.join(found)}")
    if found:
        err.print(f"backend: ./{found[0]}", style="dim", highlight=False)
    return (found or ["sim"])[0]


def likely_backend() -> str:
    """The backend that an example in a remedy names: the folder's, or sim."""
    return (_backends_here() or ["sim"])[0]


def _backends_here() -> list[str]:
    """The descriptions of the folder, or else of the repository of which it is the root."""
    for pattern in _HERE:
        if found := sorted(str(path) for path in Path().glob(pattern)):
            return found
    return []


def flag(name: str, help: str) -> Any:
    """A flag without its opposite, ``--no-…``."""
    return typer.Option(name, help=help)


def written_to(help: str, **settings: Any) -> Any:
    """The file or the folder that a command writes."""
    return typer.Option("--output", "-o", help=help, **settings)


def writable(path: Path | None) -> Path | None:
    """The file that a long run will write, or the error that it cannot be, before the run."""
    if path is not None:
        check_writable(path)
    return path


_WHICH = "A shipped backend, or a backend.yaml."
DEFAULT = "the folder's, or sim"
Backend = Annotated[
    str,
    typer.Option(metavar="NAME|FILE", callback=chosen_backend, show_default=DEFAULT, help=_WHICH),
]
BackendArgument = Annotated[
    str,
    typer.Argument(metavar="NAME|FILE", callback=chosen_backend, show_default=DEFAULT, help=_WHICH),
]
# Beside the argument, so that all commands take the backend in one way.
NamedBackend = Annotated[
    str, typer.Option("--backend", metavar="NAME|FILE", is_eager=True, hidden=True)
]

# Of commands that say more of a backend that is loaded.
Table = Annotated[
    bool, typer.Option(help="Show dispatch tables, for which a backend that is built is loaded.")
]
Build = Annotated[
    bool,
    flag("--build", "Build and load the backend for that, which runs what its description says."),
]

# Of commands that run a program.
ProgramName = Annotated[str, typer.Argument(help="A Python file, or a module with -m.")]
Arguments = Annotated[list[str] | None, typer.Argument(help="The program's own.")]
LoadedBackend = Annotated[
    str | None, typer.Option(help="Load this backend for a program that loads none itself.")
]

# Of runs of tests.
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Workers; as many as cores.")]
Timeout = Annotated[float, typer.Option(help="Seconds that one check may take.")]
Resume = Annotated[bool, flag("--resume", "Go on where the last run was interrupted.")]
Seed = Annotated[int, typer.Option(help="Draws the inputs.")]
Kernels = Annotated[
    Path | None, typer.Option(help="A Python file that registers kernels on the device.")
]
ExpectedFailures = Annotated[
    Path | None,
    typer.Option(help="Known failures, in the place of expected_failures.yaml beside it."),
]
Results = Annotated[Path | None, written_to("Write the results there, as JSON.", callback=writable)]
JUnit = Annotated[
    Path | None, typer.Option(callback=writable, help="Write the results there, as JUnit XML.")
]

# Of programs of ExecuTorch, and kernel libraries for it.
Program = Annotated[Path, typer.Argument(help="The program, a .pte.")]
Libraries = Annotated[
    list[Path] | None,
    typer.Option("--library", help="A kernel library, or the folder with it; repeatable."),
]
RuntimeKernels = Annotated[
    bool,
    typer.Option(help="Count on ExecuTorch's own kernels, which a runner in C++ need not have."),
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
SourceLink = Annotated[
    str,
    typer.Option(
        help="Where kernels' sources are linked to: {path}, {line}, {relative} to this folder."
    ),
]
LOCAL_FILE = "file://{path}"
