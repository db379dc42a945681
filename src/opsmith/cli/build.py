"""``opsmith build``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from opsmith.base.cache_folder import cache_root
from opsmith.base.output_files import write_output
from opsmith.build.backend import build_backend
from opsmith.build.cpu_operators import BuiltOperators, build_cpu_operators, is_source
from opsmith.build.own_options import DEBUG, SANITIZE, run_hint
from opsmith.build.python_adapter import build_adapter
from opsmith.build.toolchain import find_compiler
from opsmith.cli import options
from opsmith.cli.console import Json, out, print_json, shown_progress
from opsmith.cli.options import flag, written_to
from opsmith.description import find_backend, has_python_kernels
from opsmith.errors import ExecutorchMissing, OpsmithError


def build(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="{NAME|FILE | sources…}",
            help="A shipped or installed backend, a backend.yaml, or C++ sources whose kernels register "
            "themselves with EXECUTORCH_LIBRARY.",
            show_default=options.DEFAULT,
        ),
    ] = None,
    named: options.NamedBackend = "",
    output: Annotated[
        Path | None, written_to("Copy the libraries of C++ sources to this folder.")
    ] = None,
    debug: Annotated[
        bool, flag("--debug", "Compile your own sources with -g and -Og, for a debugger.")
    ] = False,
    sanitize: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Compile your own sources with sanitizers: address, undefined, thread, with commas between.",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Build a backend's libraries, or operators from C++ sources alone; or find them in the cache."""
    if debug:
        os.environ[DEBUG] = "1"
    if sanitize:
        os.environ[SANITIZE] = sanitize
    what = [*(what or []), *([named] if named else [])] or [options.default_backend()]
    if all(map(is_source, what)):
        _build_operators([Path(each) for each in what], output, json)
    elif len(what) == 1 and output is None:
        _build_backend(what[0], json)
    else:
        raise OpsmithError(
            "a backend is built alone, and into the cache",
            remedy="name one backend without -o, or C++ sources only",
        )


def _build_backend(backend: str, json: bool) -> None:
    description = find_backend(backend)
    with shown_progress() as progress:
        built = build_backend(description, progress=progress)
        adapter = built.adapter
        if adapter is None and has_python_kernels(description.parent):
            adapter = build_adapter(built, progress=progress)
    if json:
        print_json(
            {
                "backend": built.name,
                "library": str(built.library),
                "driver": str(built.driver),
                "adapter": str(adapter) if adapter else None,
                "generated": str(built.generated) if built.generated else None,
                "run": _run_hint(),
            }
        )
        return
    out.print(f"library    {built.library}", highlight=False, soft_wrap=True)
    out.print(f"driver     {built.driver}", highlight=False, soft_wrap=True)
    if adapter:
        out.print(f"adapter    {adapter}", highlight=False, soft_wrap=True)
    if built.package:
        out.print(f"package    {built.package}", highlight=False, soft_wrap=True)
    else:
        out.print(f"generated  {built.generated}", highlight=False, soft_wrap=True)
    if hint := _run_hint():
        out.print(f"run        {hint} python …", highlight=False, soft_wrap=True)


def _run_hint() -> str:
    """The text that runs a program with what was built, where `opsmith.load` would not build it by itself."""
    wanted = {DEBUG, SANITIZE} & {*os.environ}
    return run_hint(find_compiler(cache_root())) if wanted else ""


def _build_operators(sources: list[Path], folder: Path | None, json: bool) -> None:
    with shown_progress() as progress:
        built = build_cpu_operators(sources, progress=progress)
    torch, executorch = built.torch, built.executorch
    if folder is not None:
        torch = _copied(torch, folder)
        if isinstance(executorch, Path):
            executorch = _copied(executorch, folder)
    if json:
        print_json(_as_json(built, torch, executorch))
        return
    for kernel in built.kernels:
        out.print(f"{kernel.operator}  `{kernel.symbol}` ({kernel.location})", highlight=False)
    out.print(f"for PyTorch     {torch}", highlight=False, soft_wrap=True)
    found = (
        f"none: {executorch.message} ({executorch.remedy})"
        if isinstance(executorch, ExecutorchMissing)
        else executorch
    )
    out.print(f"for ExecuTorch  {found}", highlight=False, soft_wrap=True, markup=False)


def _as_json(
    built: BuiltOperators, torch: Path, executorch: Path | ExecutorchMissing
) -> dict[str, object]:
    missing = executorch.message if isinstance(executorch, ExecutorchMissing) else None
    return {
        "operators": [
            {
                "out": f"{kernel.operator.partition('::')[0]}::{kernel.out_schema}",
                "functional": f"{kernel.operator.partition('::')[0]}::{kernel.functional_schema}",
                "kernel": kernel.symbol,
                "location": str(kernel.location),
            }
            for kernel in built.kernels
        ],
        "torch": str(torch),
        "executorch": None if missing else str(executorch),
        "executorch_missing": missing,
    }


def _copied(library: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / library.name
    write_output(copy, library.read_bytes())
    return copy
