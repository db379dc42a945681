"""Values at the ends of real dtypes: where integers wrap, where floats lose whole numbers, and the extremes.

The check "boundary", the fuzzer and the suites of kernels take their numbers from here.
"""

from __future__ import annotations

import functools
import math

import torch

# 2^24 and 2^53 are where float32 and float64 begin to skip whole numbers.
_EXPONENTS = (7, 8, 15, 16, 24, 31, 32, 53, 62, 63)
# Squares and products of these need the whole width of 8, 16, 32 and 64 bits; the last two
# have bits all over.
_WIDE = (
    11,
    13,
    181,
    251,
    46_341,
    65_521,
    3_037_000_500,
    4_294_967_291,
    0x5555555555555555,
    -0x0123456789ABCDEF,
)
_SMALL = (0, 1, -1, 2, 3, -7)


@functools.cache
def boundary_values(dtype: torch.dtype) -> tuple[int | float, ...]:
    """The values for elements of ``dtype``, which holds all of them; none for bool, complex and quantized."""
    if dtype.is_complex or dtype is torch.bool:
        return ()
    whole = [sign * (2**e + near) for e in _EXPONENTS for sign in (1, -1) for near in (-1, 0, 1)]
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        numbers = (*_SMALL, *_WIDE, *whole, info.min, info.max)
        return tuple(dict.fromkeys(each for each in numbers if info.min <= each <= info.max))
    limits = torch.finfo(dtype)
    ends = [
        limits.max,
        limits.tiny,
        limits.smallest_normal / 2,
        limits.smallest_normal * limits.eps,
        limits.eps,
    ]
    numbers_of = (*_SMALL, 0.5, 1 + limits.eps, *ends, *(-each for each in ends), *whole)
    held = torch.tensor([float(each) for each in numbers_of], dtype=torch.float64).to(dtype)
    return tuple(dict.fromkeys(each for each in held.tolist() if math.isfinite(each)))


def divisors(values: tuple[int | float, ...], dtype: torch.dtype) -> tuple[int | float, ...]:
    """Those of ``values`` that PyTorch's CPU divides by each other, with a remainder.

    It refuses to divide integers by 0, and dies of dividing the least one by -1.  Of floats whose quotient
    is huge, the remainder is NaN or 0, as it computes in vectors or not.
    """
    if dtype.is_floating_point:
        least = torch.finfo(dtype).eps
        return tuple(each for each in values if least <= abs(each) <= 2**64)
    return tuple(each for each in values if each not in {0, -1})
