"""The outcome of each graph that ``torch.compile`` made for the device, and the graph breaks of programs.

``opsmith explain --compile`` has a program write both at exit, through ``OPSMITH_COMPILE_REPORT``.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from opsmith.runtime.integrations.imported import when_imported
from opsmith.runtime.loaded import loaded_backend
from opsmith.runtime.records.exit_files import write_at_exit
from opsmith.runtime.records.library_folders import library_folders
from opsmith.schema.torch_names import Feature, module_of, set_up

REPORT_VARIABLE = "OPSMITH_COMPILE_REPORT"
"""A folder: at exit, each process that loaded a backend writes there what it compiled, as ``<pid>.json``."""


@dataclass(frozen=True)
class CompiledGraph:
    """A graph that was given to Inductor.

    ``place`` is the ``file:line`` that called its first operator, empty where that is not known.
    ``kernels`` are fused, ``called`` are the operators that the code calls, with how often; None of a
    graph whose code was in Inductor's cache.  Of one that is not compiled ``reason`` says why: all of its
    operators are called one by one.
    """

    place: str
    operators: int
    kernels: int | None = None
    called: Mapping[str, int] | None = None
    reason: str = ""


@dataclass(frozen=True)
class GraphBreak:
    """A ``place`` where Dynamo ended a graph, and its ``reason``."""

    place: str
    reason: str


class CompileReport(msgspec.Struct):
    """The report that a process writes at exit: the backend, its description, its graphs and graph breaks."""

    backend: str
    description: str
    graphs: list[CompiledGraph] = field(default_factory=list)
    breaks: list[GraphBreak] = field(default_factory=list)


compiled_graphs: list[CompiledGraph] = []
"""Those of this process, in the order in which they were asked for."""

_breaks: dict[GraphBreak, None] = {}


def start() -> None:
    """Does, in a process that has just loaded a backend, what the environment asks for."""
    if folder := os.environ.get(REPORT_VARIABLE):
        when_imported(
            module_of("graph_break_log"), lambda _: set_up(Feature.GRAPH_BREAKS, _hear_of_breaks)
        )
        write_at_exit(folder, _report)


def _report() -> CompileReport:
    loaded = loaded_backend()
    return CompileReport(loaded.name, str(loaded.description), compiled_graphs, [*_breaks])


class _Listener(logging.Handler):
    """Reads where and why Dynamo breaks a graph from what it logs."""

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        found = re.search(
            r"in user code at (?P<place>.+:\d+)\nGraph Break Reason: (?P<reason>.*)", said
        )
        if not found:
            return
        explained = re.search(r"^ *Explanation: (.*)$", said, flags=re.MULTILINE)
        calls = re.findall(r'^ *File "(.+)", line (\d+)', said, flags=re.MULTILINE)
        of_program = [":".join(call) for call in calls if not call[0].startswith(library_folders())]
        place = (of_program or [found["place"]])[-1]
        _breaks[GraphBreak(place, explained[1] if explained else found["reason"])] = None


def _hear_of_breaks() -> None:
    from opsmith.schema.torch_names import graph_break_log as logger

    logger.addHandler(_Listener())
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
