"""Calls with one argument that may be wrong, made of calls that are right.

Each changes one thing: a dtype, a shape, a dim order, a number, an index, what is optional, or the memory
for a result.  Whether that is a mistake is for the runtime's own kernels and for ATen to say.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from aten_calls import OperatorCall, inputs_of, schema_of
from direct_calls import BOUND, STATIC, DirectCall, Out, Outs
from executorch_calls import dim_order
from torch import Tensor
from torch.utils._pytree import tree_leaves

DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64, torch.bool, torch.bfloat16, torch.complex64, torch.uint16,
)  # fmt: skip
EXTREMES = (1 << 31, 1 << 32, 1 << 33, 1 << 61, 1 << 62, (1 << 63) - 1, -(1 << 63))
"""Integers beyond the sizes of a program, and at the ends of those that are calculated with."""

_MOST_ELEMENTS = 300
_CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
_NUMBERS = (
    *(0, 1, -1, 2, 300, -300, 1 << 40, 0.5, 70000.0, 1e40, math.inf, -math.inf, math.nan),
    *(True, False),
)

Arguments = tuple[Any, ...]
Changed = Iterator[tuple[str, Arguments, Outs]]


def chosen(calls: Sequence[OperatorCall], most: int) -> list[OperatorCall]:
    """So many small ones of an operator's ``calls``, whose Tensors have different ranks; Float ones first.

    The smallest, where none is small.
    """
    usual = {torch.float32, torch.int64, torch.bool}

    def preference(call: OperatorCall) -> tuple[bool, bool, int]:
        sizes = [leaf.numel() for leaf in tree_leaves((call.tensors, call.results))]
        return not usual.issuperset(call.dtypes), 0 in sizes, sum(sizes)

    def size(call: OperatorCall) -> int:
        return sum(tensor.numel() for tensor in call.tensors)

    found: dict[Any, OperatorCall] = {}
    for call in sorted(calls, key=preference):
        if size(call) <= _MOST_ELEMENTS:
            ranks = tuple(tensor.dim() for tensor in call.tensors[:3])
            found.setdefault((ranks, *map(type, call.arguments)), call)
    return list(found.values())[:most] or sorted(calls, key=size)[:1]


def with_mistakes(call: OperatorCall) -> Iterator[DirectCall]:
    """The call itself, and all that are made of it."""
    arguments, outs = tuple(call.arguments), outs_of(call.results)
    yield DirectCall(call.operator, arguments, outs, "none")
    for change in (
        _out_dtypes,
        _out_shapes,
        _dim_orders,
        _dtypes,
        _shapes,
        _elements,
        _numbers,
        _lists,
        _extremes,
    ):
        for what, changed, changed_outs in change(call.operator, arguments, outs):
            yield DirectCall(call.operator, changed, changed_outs, change.__name__[1:], what)


def outs_of(results: Sequence[Any]) -> Outs:
    """Memory for ``results``."""

    def out(like: Tensor) -> Out:
        sizes = tuple(like.shape)
        return Out(like.dtype, sizes, dim_order(like) if like.numel() else tuple(range(len(sizes))))

    return tuple(
        [out(x) for x in each] if isinstance(each, list | tuple) else out(each) for each in results
    )


def _changed(outs: Outs, change: Callable[[Out], Out]) -> Outs:
    return tuple([change(x) for x in out] if isinstance(out, list) else change(out) for out in outs)


def _at(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _places(arguments: Arguments) -> list[int]:
    """Those of Tensors and of lists of them."""
    return [
        place
        for place, value in enumerate(arguments)
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))
    ]


def _in_dtype(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, list | tuple):
        return [_in_dtype(each, dtype) for each in value]
    if not isinstance(value, Tensor) or value.dtype == dtype:
        return value
    if value.is_floating_point() and not (dtype.is_floating_point or dtype.is_complex):
        value = value.nan_to_num(0, 100, -100).clamp(-100, 100)
        value = value.abs() if dtype in (torch.uint8, torch.uint16) else value
    return value.to(dtype)


# ---- memory for results


def _out_dtypes(_: str, arguments: Arguments, outs: Outs) -> Changed:
    for place, dtype in itertools.product(range(len(outs)), DTYPES):
        (changed,) = _changed((outs[place],), lambda out, dtype=dtype: replace(out, dtype=dtype))
        yield f"out {place} in {dtype}", arguments, (*outs[:place], changed, *outs[place + 1 :])


def _out_shapes(_: str, arguments: Arguments, outs: Outs) -> Changed:
    for place, out in enumerate(outs):
        if isinstance(out, list):
            yield "one out less", arguments, (*outs[:place], out[:-1], *outs[place + 1 :])
            continue
        shapes = {
            (math.prod(out.sizes),),
            (1, *out.sizes),
            (*out.sizes, 1),
            tuple(reversed(out.sizes)),
        }
        shapes |= {(*out.sizes[:-1], size + 1) for size in out.sizes[-1:]}
        shapes |= {(*out.sizes[:-1], size - 1) for size in out.sizes[-1:] if size}
        for sizes, dynamism in itertools.product(sorted(shapes - {out.sizes}), (STATIC, BOUND)):
            changed = Out(out.dtype, sizes, tuple(range(len(sizes))), dynamism)
            kind = "static" if dynamism == STATIC else "bound"
            yield f"{kind} out of {sizes}", arguments, (*outs[:place], changed, *outs[place + 1 :])


def _dim_orders(_: str, arguments: Arguments, outs: Outs) -> Changed:
    def laid(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [laid(each) for each in value]
        if not isinstance(value, Tensor) or value.dim() not in _CHANNELS_LAST:
            return value
        order = torch.channels_last if value.dim() == 4 else torch.channels_last_3d
        return value.contiguous(memory_format=order)

    last = _changed(
        outs, lambda out: replace(out, order=_CHANNELS_LAST.get(len(out.sizes), out.order))
    )
    turned = _changed(outs, lambda out: replace(out, order=tuple(reversed(range(len(out.sizes))))))
    every = tuple(map(laid, arguments))
    yield "outs channels-last", arguments, last
    yield "outs reversed", arguments, turned
    yield "all channels-last", every, last
    yield "inputs channels-last", every, outs


# ---- arguments


def _dtypes(_: str, arguments: Arguments, outs: Outs) -> Changed:
    places = _places(arguments)
    for dtype in DTYPES:
        every = arguments
        for place in places:
            changed = _at(arguments, place, _in_dtype(arguments[place], dtype))
            yield f"argument {place} in {dtype}", changed, outs
            every = _at(every, place, _in_dtype(every[place], dtype))
        yield f"all arguments in {dtype}", every, outs
        yield (
            f"everything in {dtype}",
            every,
            _changed(outs, lambda out, dtype=dtype: replace(out, dtype=dtype)),
        )


def _shapes(_: str, arguments: Arguments, outs: Outs) -> Changed:
    for place in _places(arguments):
        value = arguments[place]
        members = value if isinstance(value, list | tuple) else [value]
        for index, tensor in enumerate(members):
            for what, other in _reshaped(tensor) if isinstance(tensor, Tensor) else ():
                changed = [*members[:index], other, *members[index + 1 :]]
                given = changed if isinstance(value, list | tuple) else other
                yield f"argument {place} {what}", _at(arguments, place, given), outs


def _reshaped(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    some = tensor.numel() > 0
    yield "without dimensions", tensor.reshape(-1)[0].clone() if some else tensor.new_zeros(())
    yield "with one dimension more", tensor.unsqueeze(0).clone()
    yield "empty", tensor.new_zeros((0,) * max(1, tensor.dim()))
    yield "of size 0", tensor.new_zeros((0,))
    if tensor.dim() == 0:
        return
    yield "flat", tensor.reshape(-1).clone()
    for dim in (0, -1):
        if tensor.shape[dim]:
            yield (
                f"longer in {dim}",
                torch.cat([tensor, tensor.narrow(dim, 0, 1)], dim).contiguous(),
            )
            yield f"shorter in {dim}", tensor.narrow(dim, 0, tensor.shape[dim] - 1).contiguous()
    if tensor.dim() > 1:
        yield "with one dimension less", tensor.new_zeros(tensor.shape[1:])
        yield "transposed", tensor.transpose(-1, -2).contiguous()


def _elements(_: str, arguments: Arguments, outs: Outs) -> Changed:
    for place in _places(arguments):
        value = arguments[place]
        members = value if isinstance(value, list | tuple) else [value]
        for index, tensor in enumerate(members):
            if not isinstance(tensor, Tensor) or not tensor.numel() or tensor.dtype == torch.bool:
                continue
            for element in _odd_elements(tensor.dtype):
                other = tensor.clone()
                other[(-1,) * other.dim()] = element
                changed = [*members[:index], other, *members[index + 1 :]]
                given = changed if isinstance(value, list | tuple) else other
                yield f"argument {place} with {element}", _at(arguments, place, given), outs


def _odd_elements(dtype: torch.dtype) -> Sequence[float]:
    if dtype.is_floating_point or dtype.is_complex:
        return (math.nan, math.inf, -math.inf)
    limits = torch.iinfo(dtype)
    return [each for each in (-1, -100, 100, 1 << 30) if limits.min <= each <= limits.max]


def _numbers(operator: str, arguments: Arguments, outs: Outs) -> Changed:
    rank = max(
        (leaf.dim() for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)), default=2
    )
    integers = sorted({0, 1, -1, 2, -2, rank, -rank, -rank - 1, rank + 1, 100, -100})
    for place, parameter in enumerate(inputs_of(schema_of(operator))):
        kind, value = str(parameter.type), arguments[place]
        tried: Sequence[Any] = ()
        if parameter.name in ("dtype", "out_dtype"):
            tried = DTYPES
        elif parameter.name == "memory_format":
            tried = (None, torch.contiguous_format, torch.preserve_format, torch.channels_last)
        elif isinstance(value, list | tuple | Tensor) or "List" in kind or "Tensor" in kind:
            continue
        elif "number" in kind:
            tried = _NUMBERS
        elif "float" in kind:
            tried = (0.0, -1.0, 0.5, 2.0, 1e40, math.inf, math.nan)
        elif "bool" in kind:
            tried = (True, False)
        elif "str" in kind:
            tried = ("wrong", "none", "floor")
        elif "int" in kind:
            tried = integers
        for each in (*tried, *([None] if "Optional" in kind else [])):
            yield f"{parameter.name} = {each}", _at(arguments, place, each), outs
            if "number" in kind:
                yield from _beside_dtypes(arguments, outs, place, each)


def _beside_dtypes(arguments: Arguments, outs: Outs, place: int, number: Any) -> Changed:
    """A number beside Tensors of each dtype, which may not hold it."""
    for dtype in DTYPES[:10]:
        given = _at(tuple(_in_dtype(each, dtype) for each in arguments), place, number)
        same = _changed(
            outs, lambda out, d=dtype: out if out.dtype == torch.bool else replace(out, dtype=d)
        )
        yield f"argument {place} = {number}, everything in {dtype}", given, same


def _lists(operator: str, arguments: Arguments, outs: Outs) -> Changed:
    for place, parameter in enumerate(inputs_of(schema_of(operator))):
        kind, value = str(parameter.type), arguments[place]
        if not isinstance(value, list | tuple):
            if kind == "Optional[Tensor]" and value is not None:
                yield f"without {parameter.name}", _at(arguments, place, None), outs
            continue
        tried: list[Any] = [[], list(value[:-1])]
        if "Tensor" in kind:
            tried += [[None] * len(value)] if "Optional" in kind else []
        elif "bool" in kind:
            tried += [[*value, True]]
        else:
            number = float if "float" in kind else int
            tried += [[*value, *value[-1:]], [*value[:1]] * len(value), [*value[:1], *value]]
            tried += [
                [*value[:index], number(each), *value[index + 1 :]]
                for index, each in itertools.product(
                    range(len(value)), (-1, -2, 0, 1, 2, -100, 100)
                )
            ]
        for each in tried:
            yield f"{parameter.name} = {each}", _at(arguments, place, each), outs


def _extremes(operator: str, arguments: Arguments, outs: Outs) -> Changed:
    for place, parameter in enumerate(inputs_of(schema_of(operator))):
        value, kind = arguments[place], str(parameter.type)
        # Enumerators are no sizes, and of bias_sizes nobody asks more than whether they are there.
        if parameter.name in {"dtype", "out_dtype", "memory_format", "bias_sizes"}:
            continue
        for extreme in EXTREMES:
            what = f"{parameter.name} with {extreme}"
            if type(value) is int or (value is None and kind == "Optional[int]"):
                yield what, _at(arguments, place, extreme), outs
            elif isinstance(value, list | tuple) and all(type(each) is int for each in value):
                for index in range(len(value)):
                    changed = [*value[:index], extreme, *value[index + 1 :]]
                    yield what, _at(arguments, place, changed), outs
                if len(value) > 1:
                    yield what, _at(arguments, place, [extreme] * len(value)), outs
