"""The graphs that ``torch.compile`` made of a program: what each became, and where they were broken.

Runs the program as a process of its own, which writes these when it ends.  ``opsmith explain --compile``
prints what is found here.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsmith.observe.programs.process import Program
from opsmith.runtime.compile.compiled_graphs import (
    REPORT_VARIABLE,
    CompiledGraph,
    CompileReport,
    GraphBreak,
)


@dataclass(frozen=True)
class CompiledProgram:
    """How a program ended, and the graphs of its processes.

    ``status`` is its exit status, 128 and the signal's number where a signal ended it.  ``description`` is
    the loaded backend's ``backend.yaml``; None, where the program loaded no backend.
    """

    status: int
    backend: str
    description: str | None
    graphs: tuple[CompiledGraph, ...]
    breaks: tuple[GraphBreak, ...]


def compile_program(program: Program, *, backend: str | None) -> CompiledProgram:
    """Runs ``program`` to its end, with nothing out of Inductor's cache, and gathers its graphs.

    ``backend`` is loaded for it, if given.  Raises :class:`~opsmith.errors.FileMissing`.
    """
    status, reports = program.run_reporting(
        REPORT_VARIABLE,
        CompileReport,
        backend=backend,
        environment={"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"},
    )
    return CompiledProgram(
        status,
        reports[0].backend if reports else "",
        reports[0].description if reports else None,
        tuple(graph for report in reports for graph in report.graphs),
        tuple(each for report in reports for each in report.breaks),
    )
