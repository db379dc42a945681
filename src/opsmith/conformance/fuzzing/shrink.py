"""A program that differs made smaller, as long as it differs in the same class: operator and kind.

Steps are taken out first, or replaced by the tensors that they return; then arguments are left out and
numbers, shapes and layouts made plain.  What is kept is always shorter as a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from opsmith.conformance.comparison import bytes_of, is_strided
from opsmith.conformance.fuzzing.execution import Execution
from opsmith.conformance.fuzzing.judge import Difference, first_difference
from opsmith.conformance.fuzzing.program import (
    GRAD,
    SETITEM,
    SPECIAL,
    Leaf,
    Program,
    Ref,
    Step,
    names,
    replaced,
)
from opsmith.conformance.subject import Watch

_ATTEMPTS = 500
_LARGEST = 64


def shrunk(
    program: Program,
    found: Difference,
    device: str,
    watch: Watch | None = None,
    tries: Callable[[Program, Difference, Program], None] = lambda best, found, tried: None,
) -> tuple[Program, Difference]:
    """A program that differs as ``found`` says, as small as a few hundred attempts make it.

    ``tries`` is told of the smallest program so far, how it differs, and each attempt before it is run, since
    that may end the process.
    """
    best = Program(program.leaves, program.steps[: found.step + 1]).needed()
    left = _ATTEMPTS
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(best):
            if _length(candidate) >= _length(best):
                continue
            left -= 1
            if left < 0:
                return best, found
            tries(best, found, candidate)
            difference = _difference(candidate, device, watch)
            if difference is not None and _alike(difference, found):
                best, found, progress = candidate, difference, True
                break
    return best, found


def _length(program: Program) -> tuple[int, int]:
    leaves = (len(name) + len(str(leaf)) for name, leaf in program.leaves.items())
    return len(program.steps), sum(leaves) + sum(len(str(step)) for step in program.steps)


def _alike(one: Difference, other: Difference) -> bool:
    return (one.operator, one.kind) == (other.operator, other.kind)


def _difference(program: Program, device: str, watch: Watch | None) -> Difference | None:
    try:
        return first_difference(program, device, watch)
    except Exception:  # a candidate that is no program: a step names what is not there
        return None


def _smaller(program: Program) -> Iterator[Program]:
    yield from _without_steps(program)
    yield from _with_fewer_leaves(program)
    yield from _with_plainer_leaves(program)
    yield from _with_plainer_arguments(program)


# ---- steps


def _without_steps(program: Program) -> Iterator[Program]:
    cpu: Execution | None = None
    for at in reversed(range(len(program.steps) - 1)):
        step = program.steps[at]
        rest = (*program.steps[:at], *program.steps[at + 1 :])
        used = {ref for other in rest for ref in other.refs() if ref.name == step.name}
        if not used:
            yield Program(program.leaves, rest).needed()
            continue
        cpu = cpu or _executed(program)
        fresh = names(program.leaves, "a")
        leaves, by = dict(program.leaves), {}
        for ref in sorted(used, key=repr):
            leaf = _snapshot(cpu, ref)
            if leaf is not None:
                by[ref] = Ref(name := next(fresh))
                leaves[name] = leaf
        if len(by) == len(used):
            yield Program(leaves, tuple(_with(each, by) for each in rest)).needed()


def _executed(program: Program) -> Execution:
    cpu = Execution.of(program, "cpu")
    for step in program.steps[:-1]:
        cpu.run(step)
    return cpu


def _snapshot(cpu: Execution, ref: Ref) -> Leaf | None:
    """The tensor that ``ref`` is in the end, as a leaf."""
    try:
        tensor = cpu.value(ref)
    except (KeyError, IndexError, TypeError):
        return None
    if (
        not isinstance(tensor, Tensor)
        or not is_strided(tensor)
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        return None
    data = bytes_of(tensor.detach())
    if data.numel() > _LARGEST * tensor.element_size() or data.numel() % tensor.element_size():
        return None
    numbers = tuple(data.view(tensor.dtype).tolist()) or (0,)
    stride = None if tensor.is_contiguous() else tuple(tensor.stride())
    offset = int(tensor.storage_offset())
    return Leaf(tensor.dtype, numbers, tuple(tensor.shape), stride, offset, tensor.requires_grad)


def _with(step: Step, by: dict[Ref, Any]) -> Step:
    return replace(
        step, arguments=replaced(step.arguments, by), keywords=replaced(step.keywords, by)
    )


# ---- leaves


def _with_fewer_leaves(program: Program) -> Iterator[Program]:
    """One leaf in the place of two."""
    for gone in reversed([*program.leaves]):
        for kept in program.leaves:
            if kept != gone:
                steps = tuple(_with(step, {Ref(gone): Ref(kept)}) for step in program.steps)
                yield Program(program.leaves, steps).needed()


def _with_plainer_leaves(program: Program) -> Iterator[Program]:
    for name, leaf in program.leaves.items():
        for plainer in _plainer(leaf):
            yield Program({**program.leaves, name: plainer}, program.steps)


def _plainer(leaf: Leaf) -> Iterator[Leaf]:
    if leaf.requires_grad:
        yield replace(leaf, requires_grad=False)
    if leaf.offset:
        yield replace(leaf, offset=0)
    if leaf.stride is not None:
        yield replace(leaf, stride=None)
    for dim, size in enumerate(leaf.size):
        without = None if leaf.stride is None else leaf.stride[:dim] + leaf.stride[dim + 1 :]
        yield replace(leaf, size=leaf.size[:dim] + leaf.size[dim + 1 :], stride=without)
        for smaller in {1, size // 2, size - 1} - {size, -1}:
            yield replace(leaf, size=(*leaf.size[:dim], smaller, *leaf.size[dim + 1 :]))
    if len(leaf.values) > 1:
        for value in dict.fromkeys(leaf.values):
            yield replace(leaf, values=(value,))
        yield replace(leaf, values=leaf.values[: len(leaf.values) // 2])
        for at in range(len(leaf.values)):
            yield replace(leaf, values=leaf.values[:at] + leaf.values[at + 1 :])
    if leaf.dtype.is_floating_point and leaf.dtype is not torch.float32:
        yield replace(leaf, dtype=torch.float32)
    elif leaf.values:
        yield replace(leaf, values=(type(leaf.values[0])(1),))


# ---- arguments


def _with_plainer_arguments(program: Program) -> Iterator[Program]:
    for at, step in enumerate(program.steps):
        for plainer in _plainer_step(step):
            steps = (*program.steps[:at], plainer, *program.steps[at + 1 :])
            yield Program(program.leaves, steps).needed()


def _plainer_step(step: Step) -> Iterator[Step]:
    if step.operator in SPECIAL:
        yield from _plainer_special(step)
        return
    for at in range(len(step.keywords)):
        yield replace(step, keywords=step.keywords[:at] + step.keywords[at + 1 :])
    if step.arguments:
        yield replace(step, arguments=step.arguments[:-1])
    for at, value in enumerate(step.arguments):
        for plainer in _plainer_value(value):
            yield replace(
                step, arguments=(*step.arguments[:at], plainer, *step.arguments[at + 1 :])
            )
    for at, (key, value) in enumerate(step.keywords):
        for plainer in _plainer_value(value):
            keywords = (*step.keywords[:at], (key, plainer), *step.keywords[at + 1 :])
            yield replace(step, keywords=keywords)


def _plainer_special(step: Step) -> Iterator[Step]:
    """Fewer indices, or fewer tensors to give a gradient to."""
    first, second, *rest = step.arguments
    if isinstance(second, tuple | list):
        for at in range(len(second)):
            shorter = type(second)([*second[:at], *second[at + 1 :]])
            if shorter or step.operator != GRAD:
                yield replace(step, arguments=(first, shorter, *rest))
    if step.operator == SETITEM and not isinstance(rest[0], Ref):
        yield replace(step, arguments=(first, second, 1))


def _plainer_value(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for at in range(len(value)):
            yield type(value)([*value[:at], *value[at + 1 :]])
    elif isinstance(value, int | float | complex) and not isinstance(value, bool):
        yield from (0, 1)
    elif isinstance(value, slice):
        yield slice(None)
    if value is not None and not isinstance(value, Ref):
        yield None
