"""The process that has ExecuTorch's runtime: ``python -m opsmith.executorch.runtime_worker TASK ANSWER``.

The runtime ends the process where something is wrong with a program or a library, so nobody loads it into
their own.  Reads one task from a file and writes the answer to another; ``worker_process`` starts it.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from opsmith.errors import LibraryRejected
from opsmith.executorch.exported_module import Comparison
from opsmith.executorch.inputs import check_inputs, shown
from opsmith.executorch.library_file import describes_itself, read_library_file
from opsmith.executorch.loading import LoadedLibrary, PlainLibrary, runtime_module
from opsmith.executorch.tasks import (
    Answer,
    Failed,
    ListOperators,
    Ran,
    RunProgram,
    RuntimeOperators,
    Stop,
    Task,
)
from opsmith.plan.executorch.kernel_keys import CallForm

# How long, and how often at most and at least, calls are timed.
_SECONDS = 0.5
_MOST_CALLS = 1000
_FEWEST_CALLS = 3


Note: TypeAlias = Callable[[Failed], None]
"""Leaves word of what is to be done next, which is the answer if the runtime ends the process meanwhile."""


def answer(task: Task, note: Note) -> Answer:
    """Does what ``task`` asks."""
    try:
        if isinstance(task, ListOperators):
            return _list_operators(task, note)
        return _run(task, note)
    except Stop as stop:
        return stop.failure


def _list_operators(task: ListOperators, note: Note) -> RuntimeOperators:
    runtime = runtime_module()
    names, delegates = runtime._get_operator_names(), runtime._get_registered_backend_names()
    brought = [sorted(_plain(Path(path), note).operators) for path in task.libraries]
    return RuntimeOperators(sorted(names), sorted(delegates), brought)


def _run(task: RunProgram, note: Note) -> Ran:
    runtime = runtime_module()
    comparison = Comparison(task)
    inputs = comparison.inputs()
    check_inputs(task.program, inputs, task.expected)
    # Kernels are bound when a method is loaded, so libraries come first.
    forms = [CallForm(operator, arguments) for operator, arguments in task.calls]
    libraries = [_load(Path(path), forms, note) for path in task.libraries]
    note(Failed("program", task.program, "loading it"))
    try:
        program = runtime._load_program(
            task.program, program_verification=runtime.Verification.InternalConsistency
        )
        method = program.load_method(task.method)
    except RuntimeError as error:
        raise Stop(Failed("program", task.program, str(error))) from None
    servers = [_server(libraries, form) for form in forms]

    def call() -> list[Any]:
        outputs: list[Any] = method.call(inputs)
        return outputs

    note(Failed("run", task.program, "running it"))
    try:
        outputs = call()
    except RuntimeError as error:
        raise Stop(Failed("run", task.program, str(error))) from None
    difference = comparison.difference(outputs)
    times, count = _times([call] if difference is None else [call, comparison.call])
    return Ran(
        servers,
        [shown(output) for output in outputs],
        difference,
        comparison.impossible,
        times[0],
        None if difference is None else times[1],
        comparison.device,
        count,
        runtime._threadpool_get_thread_count(),
    )


def _plain(path: Path, note: Note) -> PlainLibrary:
    note(Failed("library", str(path), f"loading `{path}`", "ExecuTorch's runtime said why"))
    return PlainLibrary(path)


def _load(path: Path, forms: Sequence[CallForm], note: Note) -> LoadedLibrary | PlainLibrary:
    try:
        if not describes_itself(path):
            return _plain(path, note)
        loaded = LoadedLibrary(read_library_file(path))
        loaded.register_for(forms)
    except LibraryRejected as error:
        raise Stop(Failed("library", str(path), error.message, error.remedy)) from None
    return loaded


def _server(libraries: Sequence[LoadedLibrary | PlainLibrary], form: CallForm) -> str:
    """The library that serves a call; empty for the runtime's own kernel."""
    found = (library.server(form.operator, form.key) for library in libraries)
    return next((name for name in found if name), "")


def _times(calls: Sequence[Callable[[], Any]]) -> tuple[list[float], int]:
    """The median milliseconds of each call, taken in turns, and how many of each were timed."""
    for call, _ in itertools.product(calls, range(_FEWEST_CALLS)):
        call()
    taken: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + _SECONDS
    while len(taken[0]) < _MOST_CALLS and (
        time.perf_counter() < end or len(taken[0]) < _FEWEST_CALLS
    ):
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(times) for times in taken], len(taken[0])


def _write(path: Path, found: Answer) -> None:
    path.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    asked, answered = map(Path, sys.argv[1:])
    found = answer(
        msgspec.json.decode(asked.read_bytes(), type=Task),
        lambda failed: _write(answered, failed),
    )
    _write(answered, found)
