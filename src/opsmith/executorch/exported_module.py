"""The exported module that a program was made of: its inputs, and how far results are from its own."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from opsmith.executorch.own_operators import backend_of
from opsmith.executorch.tasks import Failed, RunProgram, Stop
from opsmith.runtime.defining_modules import WRITTEN_BY_PT2E
from opsmith.runtime.load import load


class Comparison:
    """The exported graph beside the program of ``task``, with its example inputs or the user's.

    Eager is that of ``device``: the CPU's or, for a graph with operators of a backend's own, the backend's.
    ``impossible`` says why there is nothing to compare with, where there is not.
    """

    def __init__(self, task: RunProgram) -> None:
        self.task = task
        self.impossible = ""
        self._module: Any = None
        self.device = "cpu"
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
        from torch.export.passes import move_to_device_pass

        importlib.import_module(WRITTEN_BY_PT2E)
        try:
            if description := backend_of(Path(path)):
                self.device = load(str(description)).name
            exported = torch.export.load(path)
            self._arguments, self._keywords = exported.example_inputs or ((), {})
            if self.device != "cpu":
                exported = move_to_device_pass(exported, self.device)
            # Its guards are checked once, not in what is timed.
            self._module = exported.module(check_guards=False)
        except Exception as error:  # whatever a file raises that this torch did not write
            self.impossible = f"its exported graph cannot be loaded: {_first_line(error)}"

    def inputs(self) -> tuple[Any, ...]:
        """The inputs to call the program with."""
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
        """The result of the graph in eager mode."""
        import torch

        with torch.no_grad():
            arguments, keywords = self._placed
            return self._module(*arguments, **keywords)

    @cached_property
    def _placed(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs where the module is: moving them is no part of what is timed."""
        import torch

        from opsmith.schema.torch_names import tree_map_only

        placed: tuple[tuple[Any, ...], dict[str, Any]] = tree_map_only(
            torch.Tensor, lambda tensor: tensor.to(self.device), (self._arguments, self._keywords)
        )
        return placed

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
        a, b = (
            torch.as_tensor(each).detach().cpu().to(torch.complex128) for each in (mine, theirs)
        )
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
    from opsmith.schema.torch_names import tree_leaves

    leaves: list[Any] = tree_leaves(value)
    return leaves


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
