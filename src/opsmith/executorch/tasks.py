"""Requests to the process that has ExecuTorch's runtime in it, and its answers."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from opsmith.plan.executorch.kernel_keys import Argument


class ListOperators(msgspec.Struct, frozen=True, tag=True):
    """Asks which operators the runtime has kernels for, and which delegates.

    ``libraries`` are files that register their kernels themselves, whose operators are asked for as well.
    """

    libraries: list[str] = []


class RuntimeOperators(msgspec.Struct, frozen=True, tag=True):
    """Their names, and those of the delegates that are in it; ``brought`` are those of each library."""

    names: list[str]
    delegates: list[str]
    brought: list[list[str]] = []


class Expected(msgspec.Struct, frozen=True):
    """A Tensor that a program takes; ``sizes`` are bounds where it is ``dynamic``."""

    dtype: str
    dim_order: tuple[int, ...]
    sizes: tuple[int, ...]
    dynamic: bool


class RunProgram(msgspec.Struct, frozen=True, tag=True):
    """Asks to run ``method`` of a program.

    ``inputs`` is a file of ``torch.save``, ``exported`` one of ``torch.export.save`` with what to compare
    with, and its own inputs for where there are no others; ``expected`` is what the program takes, None
    for what is no Tensor.  ``calls`` are the operators with their arguments, of which to say who serves
    them.
    """

    program: str
    method: str
    libraries: list[str]
    calls: list[tuple[str, tuple[Argument, ...]]]
    expected: list[Expected | None]
    inputs: str | None
    exported: str | None


class Ran(msgspec.Struct, frozen=True, tag=True):
    """The results of a program.

    ``servers`` are the libraries of the calls, empty for the runtime's own kernel.  ``ms`` and ``eager_ms``
    are medians of ``calls`` calls; eager ran on ``eager_device``.
    """

    servers: list[str]
    outputs: list[str]
    difference: float | None
    not_compared: str
    ms: float
    eager_ms: float | None
    eager_device: str
    calls: int
    threads: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A failure: ``stage`` is ``library``, ``inputs``, ``program`` or ``run``."""

    stage: str
    subject: str
    reason: str
    remedy: str = ""


Task: TypeAlias = ListOperators | RunProgram
Answer: TypeAlias = RuntimeOperators | Ran | Failed


class Stop(Exception):
    """Ends a task with what could not be done."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.reason)
        self.failure = failure
