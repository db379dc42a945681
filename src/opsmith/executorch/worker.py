"""The process that has ExecuTorch's runtime in it: ``python -m opsmith.executorch.worker TASK ANSWER``.

The runtime ends the process where something is wrong with a program or a library, so nobody loads it into
their own.  Reads one task from a file and writes the answer to another; ``process`` starts it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    pass

_SECONDS = 0.5
_MOST_CALLS = 1000
_WARM_UP = 3


class ListOperators(msgspec.Struct, frozen=True, tag=True):
    """Asks which operators the runtime has kernels for."""


class Operators(msgspec.Struct, frozen=True, tag=True):
    names: list[str]


class LoadedLibrary(msgspec.Struct, frozen=True):
    """A library to load, and which of its kernels to register under which keys."""

    path: str
    registrations: list[tuple[int, str]]


class RunProgram(msgspec.Struct, frozen=True, tag=True):
    """Asks to run ``method`` of a program.

    ``inputs`` is a file of ``torch.save``, ``exported`` one of ``torch.export.save`` with what to compare
    with, its own inputs for where there are no others, and ``backend`` what must be loaded for it.
    ``calls`` are the operators and keys of which to say who serves them.
    """

    program: str
    method: str
    libraries: list[LoadedLibrary]
    calls: list[tuple[str, str]]
    inputs: str | None
    exported: str | None
    timed: bool


class Ran(msgspec.Struct, frozen=True, tag=True):
    """What a program gave; ``servers`` are the libraries of the calls, None where no kernel is."""

    servers: list[str | None]
    outputs: list[str]
    difference: float | None
    ms: float | None
    eager_ms: float | None
    calls: int
    threads: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """What could not be done: ``stage`` is ``library``, ``inputs``, ``program``, ``run`` or ``eager``."""

    stage: str
    subject: str
    reason: str


Task = ListOperators | RunProgram
Answer = Operators | Ran | Failed


@dataclass(frozen=True)
class _Stop(Exception):
    failure: Failed


def answer(task: Task) -> Answer:
    """Does what ``task`` asks."""
    warnings.simplefilter("ignore")
    try:
        return _list_operators() if isinstance(task, ListOperators) else _run(task)
    except _Stop as stop:
        return stop.failure


def _list_operators() -> Operators:
    from executorch.extension.pybindings import portable_lib

    return Operators(sorted(portable_lib._get_operator_names()))


def _run(task: RunProgram) -> Ran:
    from executorch.extension.pybindings import portable_lib

    loaded = [_load(library) for library in task.libraries]
    eager, given = _eager(task)
    inputs = _inputs(task, given)
    try:
        program = portable_lib._load_program(task.program, program_verification=_verification())
        method = program.load_method(task.method)
    except RuntimeError as error:
        raise _Stop(Failed("program", task.program, str(error))) from None
    servers = [_server(loaded, operator, key) for operator, key in task.calls]

    def call() -> list[Any]:
        outputs: list[Any] = method.call(inputs)
        return outputs

    try:
        outputs = call()
    except RuntimeError as error:
        raise _Stop(Failed("run", task.program, str(error))) from None
    difference = None if eager is None else _difference(outputs, eager())
    ms, eager_ms, calls = (
        _times([call, *([eager] if eager else [])]) if task.timed else (None, None, 0)
    )
    return Ran(
        servers,
        [_shown(output) for output in outputs],
        difference,
        ms,
        eager_ms,
        calls,
        portable_lib._threadpool_get_thread_count(),
    )


def _verification() -> Any:
    from executorch.extension.pybindings import portable_lib

    return portable_lib.Verification.InternalConsistency


# ---- libraries


def _load(library: LoadedLibrary) -> ctypes.CDLL:
    try:
        loaded = ctypes.CDLL(library.path, mode=os.RTLD_NOW)
    except OSError as error:
        raise _Stop(Failed("library", library.path, str(error))) from None
    loaded.opsmith_executorch_error.restype = ctypes.c_char_p
    loaded.opsmith_executorch_register.restype = ctypes.c_char_p
    loaded.opsmith_executorch_register.argtypes = [ctypes.c_size_t, ctypes.c_char_p]
    loaded.opsmith_executorch_server.restype = ctypes.c_char_p
    if reason := loaded.opsmith_executorch_error():
        raise _Stop(Failed("library", library.path, reason.decode()))
    for kernel, key in library.registrations:
        if reason := loaded.opsmith_executorch_register(kernel, key.encode()):
            raise _Stop(Failed("library", library.path, reason.decode()))
    return loaded


def _server(libraries: Sequence[ctypes.CDLL], operator: str, key: str) -> str | None:
    """The library that serves a call; empty for the runtime's own kernel, None where there is none."""
    names = operator.encode(), key.encode()
    found = [library.opsmith_executorch_server(*names) for library in libraries]
    served = [name.decode() for name in found if name is not None]
    return next((name for name in served if name), served[0] if served else None)


# ---- inputs and what to compare with


def _eager(task: RunProgram) -> tuple[Callable[[], Any] | None, tuple[Any, ...] | None]:
    """Calls the exported module; and its example inputs."""
    import torch

    if task.exported is None:
        return None, None
    try:
        exported = torch.export.load(task.exported)
        module = exported.module()
        arguments, keywords = exported.example_inputs or ((), {})
    except Exception as error:  # whatever a file may raise that torch.export.save did not write
        raise _Stop(Failed("eager", task.exported, f"{type(error).__name__}: {error}")) from None
    given = tuple(torch.utils._pytree.tree_leaves((arguments, keywords)))
    if task.inputs is not None:
        arguments, keywords = _file_inputs(task.inputs), {}

    def call() -> Any:
        with torch.no_grad():
            return module(*arguments, **keywords)

    return call, given


def _inputs(task: RunProgram, given: tuple[Any, ...] | None) -> tuple[Any, ...]:
    if task.inputs is not None:
        return tuple(_leaves(_file_inputs(task.inputs)))
    if given is None:
        raise _Stop(Failed("inputs", task.program, "there are none"))
    return given


def _leaves(value: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    leaves: list[Any] = tree_leaves(value)
    return leaves


def _file_inputs(path: str) -> tuple[Any, ...]:
    import torch

    try:
        value = torch.load(path, weights_only=True)
    except Exception as error:  # whatever a file may raise that torch.save did not write
        reason = str(error).strip().splitlines()
        raise _Stop(Failed("inputs", path, reason[0] if reason else type(error).__name__)) from None
    return tuple(value) if isinstance(value, list | tuple) else (value,)


# ---- results


def _difference(outputs: Sequence[Any], eager: Any) -> float:
    """The largest absolute difference of any element; infinite where one is NaN and the other not."""
    import torch

    expected = _leaves(eager)
    if len(outputs) != len(expected):
        return float("inf")
    largest = 0.0
    for mine, theirs in zip(outputs, expected, strict=True):
        a = torch.as_tensor(mine).detach().to(torch.complex128)
        b = torch.as_tensor(theirs).detach().to(torch.complex128)
        if a.shape != b.shape:
            return float("inf")
        same = (a == b) | (a.isnan() & b.isnan())
        differences = torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=float("inf"))
        largest = max(
            [largest, *differences.flatten().max(dim=0, keepdim=True).values.tolist()]
            if differences.numel()
            else [largest]
        )
    return largest


def _times(calls: Sequence[Callable[[], Any]]) -> tuple[float, float | None, int]:
    """The median milliseconds of each of one or two calls, taken in turns; and how many were timed."""
    for call, _ in itertools.product(calls, range(_WARM_UP)):
        call()
    taken: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + _SECONDS
    while len(taken[0]) < _MOST_CALLS and (time.perf_counter() < end or len(taken[0]) < _WARM_UP):
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
    medians = [statistics.median(times) for times in taken]
    return medians[0], medians[1] if len(medians) > 1 else None, len(taken[0])


def _shown(output: Any) -> str:
    import torch

    if isinstance(output, torch.Tensor):
        return f"{str(output.dtype).removeprefix('torch.')}{list(output.shape)}"
    return repr(output)


if __name__ == "__main__":
    asked, answered = map(Path, sys.argv[1:])
    found = answer(msgspec.json.decode(asked.read_bytes(), type=Task))
    answered.write_bytes(msgspec.json.encode(found))
