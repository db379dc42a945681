"""``opsmith explain --compile``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import typer
from rich.markup import escape

from opsmith.base.cache_folder import cache_root
from opsmith.cli.console import many, out, print_json
from opsmith.cli.unrecorded import end_unrecorded
from opsmith.observe.programs.compiled import CompiledProgram, compile_program
from opsmith.observe.programs.process import Program
from opsmith.plan import plan_backend
from opsmith.runtime.compile.compiled_graphs import CompiledGraph


def explain_compiled(program: Program, backend: str | None, json: bool) -> NoReturn:
    """Runs ``program``, shows what became of its graphs, and exits with its status."""
    found = compile_program(program, backend=backend)
    if found.description is None:
        end_unrecorded(program, "explain --compile", found.status)
    compiling = plan_backend(found.description, cache_root()).compiling
    if json:
        print_json(
            {
                "status": found.status,
                "backend": found.backend,
                "inductor": compiling.inductor.value,
                "why": compiling.reason,
                "graphs": found.graphs,
                "breaks": found.breaks,
            }
        )
    else:
        _print(program, found, compiling.inductor.value, compiling.reason)
    raise typer.Exit(found.status)


def _print(program: Program, found: CompiledProgram, inductor: str, why: str) -> None:
    breaks = many(len(found.breaks), "graph break") if found.breaks else "no graph breaks"
    graphs = many(len(found.graphs), "graph")
    _line(f"{program.name} ran on {found.backend}: {graphs}, {breaks}")
    _line(f"inductor: {inductor}, since {why}")
    for graph in found.graphs:
        _line(
            f"{graph.place or '(unknown place)'}  {many(graph.operators, 'operator')}: {_became(graph)}"
        )
    for each in found.breaks:
        _line(f"{each.place}  graph break: {each.reason}")


def _became(graph: CompiledGraph) -> str:
    if graph.kernels is None:
        return "compiled earlier"
    calls = f"calls {_counted(graph.called)}" if graph.called else ""
    if graph.reason:
        return f"not compiled: {graph.reason}; {calls or 'calls nothing'}"
    kernels = many(graph.kernels, "fused kernel")
    return "; ".join(filter(None, [kernels, calls]))


def _counted(called: Mapping[str, int] | None) -> str:
    return ", ".join(
        f"{name} {times:,} times" if times > 1 else name for name, times in (called or {}).items()
    )


def _line(text: str) -> None:
    out.print(escape(text), soft_wrap=True, highlight=False)
