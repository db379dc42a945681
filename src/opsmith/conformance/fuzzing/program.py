"""A random program as a value: the tensors that it begins with, its steps, and its text in Python.

It says nothing of devices: :mod:`execution` runs it on one.  Whoever reads the text can run it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

GETITEM, SETITEM, GRAD = "getitem", "setitem", "grad"
"""The steps that are no operators of ATen: ``s = a[i]``, ``a[i] = b`` and ``torch.autograd.grad``."""

SPECIAL = {GETITEM, SETITEM, GRAD}


class _Here:
    """Stands for the device on which the program runs."""

    def __repr__(self) -> str:
        return "device"


HERE = _Here()


@dataclass(frozen=True)
class Ref:
    """A tensor of the program: a leaf, or what a step returned; ``item`` of it, where it is a tuple."""

    name: str
    item: int | None = None

    def __repr__(self) -> str:
        return self.name if self.item is None else f"{self.name}[{self.item}]"


@dataclass(frozen=True)
class Leaf:
    """A tensor that the program begins with.

    Its storage holds ``values``, over and over, up to the last element that ``size``, ``stride`` (contiguous
    if None) and ``offset`` reach.  ``host``: it stays on the CPU.
    """

    dtype: torch.dtype
    values: tuple[Any, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...] | None = None
    offset: int = 0
    requires_grad: bool = False
    host: bool = False

    @property
    def numel(self) -> int:
        """How many elements its storage has."""
        if 0 in self.size:
            return self.offset
        if self.stride is None:
            return self.offset + math.prod(self.size)
        steps = zip(self.size, self.stride, strict=True)
        return self.offset + 1 + sum((size - 1) * stride for size, stride in steps)

    @property
    def is_plain(self) -> bool:
        """Whether it is all of a storage, in one dimension."""
        return self.stride is None and self.offset == 0 and len(self.size) == 1

    @property
    def steps(self) -> tuple[int, ...]:
        """The strides."""
        if self.stride is not None:
            return self.stride
        strides, step = [], 1
        for size in reversed(self.size):
            strides.append(step)
            step *= max(size, 1)
        return tuple(reversed(strides))

    def __str__(self) -> str:
        device = "" if self.host else ", device=device"
        text = f"torch.tensor({self._data()}, dtype={self.dtype}{device})"
        if not self.is_plain:
            offset = f", {self.offset}" if self.offset else ""
            text += f".as_strided({self.size}, {self.steps}{offset})"
        return text + (".requires_grad_()" if self.requires_grad else "")

    def _data(self) -> str:
        values = self.values[: self.numel]
        if len(values) == self.numel:
            return shown(list(values))
        times, rest = divmod(self.numel, len(values))
        more = f" + {shown(list(values[:rest]))}" if rest else ""
        return f"{shown(list(values))} * {times}{more}"


@dataclass(frozen=True)
class Step:
    """One call, whose result is ``name``: of an ATen operator (``add.Tensor``) or of a special kind."""

    name: str
    operator: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()

    def refs(self) -> Iterator[Ref]:
        """The references of the step to the program's tensors."""
        yield from refs_in((self.arguments, self.keywords))

    def __str__(self) -> str:
        parts = [shown(value) for value in self.arguments]
        parts += [f"{key}={shown(value)}" for key, value in self.keywords]
        if self.operator == GETITEM:
            return f"{self.name} = {parts[0]}[{_index(self.arguments[1])}]"
        if self.operator == SETITEM:
            return f"{parts[0]}[{_index(self.arguments[1])}] = {parts[2]}"
        if self.operator == GRAD:
            result, leaves = parts
            cotangent = f"[torch.ones_like({result})]"
            return f"{self.name} = torch.autograd.grad([{result}], {leaves}, {cotangent}, allow_unused=True)"
        name = self.operator if "." in self.operator else f"{self.operator}.default"
        return f"{self.name} = torch.ops.aten.{name}({', '.join(parts)})"


@dataclass(frozen=True)
class Program:
    """``leaves`` by name, and the steps in order."""

    leaves: Mapping[str, Leaf]
    steps: tuple[Step, ...]

    def needed(self) -> Program:
        """Without the leaves that no step names."""
        named = {ref.name for step in self.steps for ref in step.refs()}
        return Program(
            {name: leaf for name, leaf in self.leaves.items() if name in named}, self.steps
        )

    def text(self, backend: str, device: str, comment: str) -> str:
        """A Python program that prints what its last step does on the CPU and on ``device``."""
        *before, last = map(str, self.steps)
        name, shows = self.steps[-1].name, [*dict.fromkeys(self.steps[-1].refs())]
        raises = [f"print(device, *map(shown, ({', '.join(map(repr, shows))},)))"] if shows else []
        result = [] if self.steps[-1].operator == SETITEM else [f"print(device, shown({name}))"]
        return "\n".join(
            [
                *(f"# {line}" for line in comment.splitlines()),
                "import torch",
                "from math import inf, nan",
                "import opsmith",
                "",
                f'opsmith.load("{backend}")',
                "",
                "",
                "def shown(value):",
                "    if not isinstance(value, torch.Tensor):",
                "        return [*map(shown, value)] if isinstance(value, (list, tuple)) else value",
                "    return value.cpu(), value.dtype, value.stride(), value.requires_grad, value._version",
                "",
                "",
                f'for device in "cpu", "{device}":',
                *(f"    {name} = {leaf}" for name, leaf in self.leaves.items()),
                *(f"    {step}" for step in before),
                "    try:",
                f"        {last}",
                *(f"        {line}" for line in result),
                "    except Exception as error:",
                "        print(device, repr(error))",
                *(f"    {line}" for line in raises),
                "",
            ]
        )  # fmt: skip


def refs_in(value: Any) -> Iterator[Ref]:
    """The tensors that an argument names."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from refs_in(each)
    elif isinstance(value, slice):
        yield from refs_in((value.start, value.stop, value.step))


def replaced(value: Any, by: Mapping[Any, Any]) -> Any:
    """``value`` with other tensors in the place of those that are keys of ``by``."""
    if isinstance(value, Ref):
        return by.get(value, value)
    if isinstance(value, tuple | list):
        return type(value)(replaced(each, by) for each in value)
    return value


def shown(value: Any) -> str:
    """``value`` as Python text."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, complex):
        return f"complex({shown(value.real)}, {shown(value.imag)})"
    return repr(value)


def _index(index: Any) -> str:
    return (
        ", ".join(map(_index_item, index))
        if isinstance(index, tuple) and index
        else _index_item(index)
    )


def _index_item(item: Any) -> str:
    if isinstance(item, slice):
        parts = [item.start, item.stop] + ([] if item.step is None else [item.step])
        return ":".join("" if part is None else shown(part) for part in parts)
    return "..." if item is Ellipsis else shown(item)


def names(taken: Iterable[str], prefix: str) -> Iterator[str]:
    """``a0``, ``a1`` … for the prefix ``a``, without those that are taken."""
    used = set(taken)
    index = 0
    while True:
        if (name := f"{prefix}{index}") not in used:
            yield name
        index += 1
