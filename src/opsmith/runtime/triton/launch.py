"""A ``@triton.jit`` function on pointers, launched as a manifest's entry says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsmith.description import function_of, parameters_of
from opsmith.errors import KernelRejected
from opsmith.plan import Entry
from opsmith.runtime.python.memory_operands import copy_back, place_operands


class FunctionLauncher:
    """Calls of an out operator by one launch of ``function``.

    A parameter is an argument of the operator, one of the entry's ``arguments`` or of its ``options``; a
    Tensor arrives as its pointer.  Tensors whose strides no argument asks for are contiguous: others are
    copied, and copied back where the function writes to them.  Those of a pointwise operator have the shape
    of ``out``.
    """

    def __init__(self, entry: Entry, schema: str, function: Any, parameters: Sequence[str]) -> None:
        assert entry.call is not None
        kernel, self._is_pointwise = entry.call.kernel, entry.call.pointwise
        launch = kernel.launch
        assert launch is not None
        given = parameters_of(schema)
        self._keywords = given.keywords
        names = given.names
        self._options = dict(launch.options)
        arguments = dict(launch.arguments)
        integers = {key: each for key, each in launch.options if type(each) is int}
        scope = (*names, *integers)
        self._integers = tuple(integers.values())
        self._axes = len(launch.grid)
        self._computed = function_of((*launch.grid, *arguments.values()), scope)
        # In a call's values: the operator's arguments, the grid, and what is computed of them.
        every = [*names, *[""] * self._axes, *arguments]
        places = {name: place for place, name in enumerate(every)}
        placed = [
            (parameter, places.get(parameter))
            for parameter in parameters
            if parameter not in self._options
        ]
        missing = [parameter for parameter, place in placed if place is None]
        if missing:
            raise KernelRejected(
                f"nothing says what `{missing[0]}` of `{kernel.symbol}` is: an argument of "
                f"`{kernel.operator}` is called {', '.join(names)}",
                location=kernel.location,
                remedy=f"add `arguments: {{{missing[0]}: numel(out)}}`, or `options` for a constexpr",
            )
        self._order = [place for _, place in placed if place is not None]
        text = " ".join(arguments.values())
        self._strided = [index for index, name in enumerate(names) if f"stride({name}" in text]
        self._outs = range(len(names) - len(given.outs), len(names))
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        values = [*args, *(kwargs[name] for name in self._keywords)]
        written = place_operands(
            values, self._outs, is_pointwise=self._is_pointwise, strided=self._strided
        )
        every = (*values, *self._computed(*values, *self._integers))
        grid = every[len(values) : len(values) + self._axes]
        if 0 in grid:
            return
        self._function[grid](*[every[place] for place in self._order], **self._options)
        copy_back(written)
