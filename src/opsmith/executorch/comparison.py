"""The exported module that a program was made of: its inputs, and how far results are from its own."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from opsmith.executorch.tasks import Failed, RunProgram, Stop
from opsmith.runtime.owners import WRITTEN_BY_PT2E


class Comparison:
    """What is kept beside the program of ``task``, and what its user gives in the place of its inputs.

    ``impossible`` says why there is nothing to compare with, where there is not.
    """

    def __init__(self, task: RunProgram) -> None:
        self.task = task
        self.impossible = ""
        self._module: Any = None
        self._arguments: tuple[Any, ...] = ()
        self._keywords: dict[str, Any] = {}
        if task.exported is None:
            self.impossible = "no exported graph is kept beside it"
        else:
            self._load(task.exported)
        if task.inputs is not None:
            self._arguments, self._keywords = _inputs_of(task.inputs), {}

    def _load(self, path: str) -> None:
        import torch

        importlib.import_module(WRITTEN_BY_PT2E)
        try:
            exported = torch.export.load(path)
            # Its guards are checked once, not in what is timed.
            self._module = exported.module(check_guards=False)
            self._arguments, self._keywords = exported.example_inputs or ((), {})
        except Exception as error:  # whatever a file raises that this torch did not write
            self.impossible = f"its exported graph cannot be loaded: {_first_line(error)}"

    def inputs(self) -> tuple[Any, ...]:
        """What to call the program with."""
        if self._module is None and self.task.inputs is None:
            raise Stop(
                Failed(
                    "inputs",
                    self.task.program,
                    f"there are no inputs to call it with: {self.impossible}",
                    "name a file that torch.save wrote with --input, or export the program with `opsmith "
                    "executorch export`, which keeps them",
                )
            )
        return tuple(_leaves((self._arguments, self._keywords)))

    def call(self) -> Any:
        """What eager gives."""
        import torch

        with torch.no_grad():
            return self._module(*self._arguments, **self._keywords)

    def difference(self, outputs: Sequence[Any]) -> float | None:
        """How far ``outputs`` are from eager's, by :func:`largest_difference`; None without an eager."""
        if self._module is None:
            return None
        try:
            expected = self.call()
        except Exception as error:  # an operator that the CPU has no kernel for, or other inputs
            self.impossible = f"eager raises {_first_line(error)}"
            return None
        return largest_difference(outputs, _leaves(expected))


def largest_difference(outputs: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest absolute difference of any element.

    Infinite where the shapes differ, or where one is NaN and the other not.
    """
    import torch

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
        if differences.numel():
            largest = max(largest, float(differences.max()))
    return largest


def _inputs_of(path: str) -> tuple[Any, ...]:
    import torch

    try:
        value = torch.load(path, weights_only=True)
    except Exception as error:  # whatever a file raises that torch.save did not write
        raise Stop(
            Failed(
                "inputs",
                path,
                f"torch.load cannot read it: {_first_line(error)}",
                "write it with torch.save: a Tensor, or a tuple of them",
            )
        ) from None
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _leaves(value: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    leaves: list[Any] = tree_leaves(value)
    return leaves


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
