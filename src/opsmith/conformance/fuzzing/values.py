"""Dtypes, numbers, sizes and layouts of random programs, where no operator asks for any in particular."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import torch

from opsmith.conformance.boundary_values import boundary_values
from opsmith.conformance.fuzzing.program import Leaf

_inf, _nan = math.inf, math.nan

DTYPES: dict[torch.dtype, int] = {
    torch.float32: 30, torch.float64: 8, torch.float16: 6, torch.bfloat16: 7, torch.int64: 12,
    torch.int32: 5, torch.int16: 2, torch.int8: 2, torch.uint8: 4, torch.bool: 7, torch.complex64: 5,
    torch.complex128: 2,
}  # fmt: skip
"""The dtypes, and how often each is drawn."""

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

# Few digits, so that sums are exact in most dtypes; then what kernels get wrong.
_PLAIN = (0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1.5, -2.5, 0.25, 4.0, 7.0, 0.1, -0.3)
_SPECIAL = (_nan, _inf, -_inf, -0.0, 1e-8, 1e4, -1e4, 88.5, 255.0)
_WHOLE = (0, 1, 2, 3, 4, 5, 7, -1, -2, -3, 10)


def weighted(random: Random, weights: dict[Any, int]) -> Any:
    """One of the keys."""
    return random.choices([*weights], [*weights.values()])[0]


def values(random: Random, dtype: torch.dtype) -> tuple[Any, ...]:
    """Up to eleven numbers for the elements of a tensor, and special ones among them at times."""
    special = random.random() < 0.25
    return tuple(_value(random, dtype, special) for _ in range(random.choice((1, 3, 5, 7, 11))))


def _value(random: Random, dtype: torch.dtype, special: bool) -> Any:
    if dtype is torch.bool:
        return random.random() < 0.5
    if dtype.is_complex:
        return complex(_number(random, special), _number(random, False))
    if special and random.random() < 0.2:
        return random.choice(boundary_values(dtype))
    if dtype.is_floating_point:
        return _number(random, special)
    return max(random.choice(_WHOLE), torch.iinfo(dtype).min)


def _number(random: Random, special: bool) -> float:
    return random.choice(_SPECIAL if special and random.random() < 0.3 else _PLAIN)


def scalar(random: Random) -> Any:
    """A Python number for a Scalar."""
    draw = random.random()
    if draw < 0.5:
        return random.choice((0, 1, 2, 3, -1, -2, 5))
    if draw < 0.85:
        return random.choice(_PLAIN)
    if draw < 0.9:
        return random.random() < 0.5
    if draw < 0.94:
        return random.choice((_nan, _inf, -_inf, -0.0))
    if draw < 0.97:
        return random.choice((300, -129, 2**31, 2**40, -(2**63), 1e10, 1e300))
    return complex(random.choice(_PLAIN), random.choice(_PLAIN))


def size(random: Random) -> int:
    """The size of one dimension: small, so that those of two tensors often agree."""
    return random.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 8))


def shape(random: Random) -> tuple[int, ...]:
    """Any shape."""
    if random.random() < 0.04:
        return random.choice(((65,), (3, 33), (129,), (2, 17, 5)))
    return tuple(size(random) for _ in range(random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))))


def leaf(
    random: Random,
    dtype: torch.dtype,
    sizes: tuple[int, ...],
    *,
    numbers: tuple[Any, ...] | None = None,
    expanded: bool = True,
) -> Leaf:
    """A tensor of this dtype and shape, in any layout; ``expanded``: elements may share their memory."""
    numbers = values(random, dtype) if numbers is None else numbers
    stride, offset = layout(random, sizes, expanded=expanded)
    tracked = (dtype.is_floating_point or dtype.is_complex) and random.random() < 0.3
    return Leaf(dtype, numbers, sizes, stride, offset, tracked)


def layout(
    random: Random, sizes: tuple[int, ...], *, expanded: bool = True
) -> tuple[tuple[int, ...] | None, int]:
    """Strides (None: contiguous) and a storage offset."""
    offset = random.choice((0, 0, 0, 1, 3)) if random.random() < 0.3 else 0
    draw = random.random()
    if draw < 0.55 or not sizes:
        return None, offset
    order = [*range(len(sizes))]
    if draw < 0.65 and len(sizes) in (4, 5):
        order = [0, *order[2:], 1]  # channels last
    elif draw < 0.85:
        random.shuffle(order)
    gap = random.choice((1, 1, 2, 3))
    strides = [0] * len(sizes)
    step = gap if random.random() < 0.4 else 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(sizes[dim], 1)
    if expanded and random.random() < 0.2:
        strides[random.randrange(len(sizes))] = 0
    return tuple(strides), offset
