"""A program on one device, step by step."""

from __future__ import annotations

import functools
import itertools
import operator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.conformance.comparison import SampleOutcome, run
from opsmith.conformance.fuzzing.program import (
    GETITEM,
    GRAD,
    HERE,
    SETITEM,
    SPECIAL,
    Leaf,
    Program,
    Ref,
    Step,
    refs_in,
    replaced,
)
from opsmith.runtime.python.overloads import overload_of


@dataclass
class Execution:
    """The tensors of a program on ``device``, by name, as far as it has run."""

    device: str
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program, device: str) -> Execution:
        """Before the first step."""
        execution = cls(device)
        for name, leaf in program.leaves.items():
            execution.values[name] = tensor_of(leaf, device)
        return execution

    def run(self, step: Step) -> SampleOutcome:
        """Runs ``step`` and keeps what it returns."""
        arguments = tuple(self.value(value) for value in step.arguments)
        keywords = {key: self.value(value) for key, value in step.keywords}
        outcome = run(self.device, call_of(step.operator), arguments, keywords)
        if not outcome.raised:
            self.values[step.name] = outcome.result
        return outcome

    def value(self, value: Any) -> Any:
        """An argument of the program as this device takes it."""
        if isinstance(value, Ref):
            found = self.values[value.name]
            return found if value.item is None else found[value.item]
        if isinstance(value, tuple | list):
            return type(value)(self.value(each) for each in value)
        return self.device if value is HERE else value


def tensor_of(leaf: Leaf, device: str) -> Tensor:
    """``leaf`` on ``device``."""
    times = -(-leaf.numel // max(len(leaf.values), 1))
    data = torch.tensor((leaf.values * times)[: leaf.numel], dtype=leaf.dtype)
    if not leaf.host and device != "cpu":
        data = data.to(device)
    if not leaf.is_plain:
        data = data.as_strided(leaf.size, leaf.steps, leaf.offset)
    return data.requires_grad_() if leaf.requires_grad else data


def call_of(name: str) -> Any:
    """The function that a step of the operator ``name`` calls."""
    if name in _SPECIAL:
        return _SPECIAL[name]
    return overload_of(name)


def bound(step: Step) -> dict[str, Any]:
    """The arguments of ``step``, which calls an operator, by the names of its parameters; defaults too."""
    parameters = call_of(step.operator)._schema.arguments
    given = {each.name: each.default_value for each in parameters}
    names = (each.name for each in parameters)
    return given | dict(zip(names, step.arguments, strict=False)) | dict(step.keywords)


@functools.cache
def _written(name: str) -> tuple[frozenset[int], frozenset[str]]:
    """Which arguments the operator writes, by place and by name."""
    if name in SPECIAL:
        return frozenset({0} if name == SETITEM else ()), frozenset()
    arguments = [*enumerate(call_of(name)._schema.arguments)]
    return (
        frozenset(place for place, each in arguments if each.is_write and not each.kwarg_only),
        frozenset(each.name for _, each in arguments if each.is_write and each.kwarg_only),
    )


def written_by(step: Step) -> frozenset[Ref]:
    """The tensors that ``step`` writes."""
    places, keys = _written(step.operator)
    given = [value for place, value in enumerate(step.arguments) if place in places]
    given += [value for key, value in step.keywords if key in keys]
    return frozenset(refs_in(given))


def apart(step: Step, execution: Execution) -> Step:
    """``step`` with copies in the place of all that it only reads, and contiguous ones in that of ``out``."""
    places, keys = _written(step.operator)
    read: dict[Ref, Ref] = {}
    written: dict[Ref, Ref] = {}
    for ref, kind in itertools.product({*step.refs()}, ("read", "written")):
        copy = Ref(name := f"{ref!r} {kind}")
        (read if kind == "read" else written)[ref] = copy
        value = execution.value(ref)
        execution.values[name] = (
            value.detach().clone(memory_format=torch.contiguous_format)
            if isinstance(value, Tensor)
            else value
        )
    return replace(
        step,
        arguments=tuple(
            value if place in places else replaced(value, read)
            for place, value in enumerate(step.arguments)
        ),
        keywords=tuple(
            (key, replaced(value, written if key in keys else read)) for key, value in step.keywords
        ),
    )


def _grad(result: Tensor, leaves: list[Tensor]) -> Any:
    return torch.autograd.grad([result], leaves, [torch.ones_like(result)], allow_unused=True)


_SPECIAL = {GETITEM: operator.getitem, SETITEM: operator.setitem, GRAD: _grad}
