"""How fused kernels reduce elements: the states of a reduction and what changes them, in C."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch

from opsmith.runtime.compile.c_expressions import TYPES, number


@dataclass(frozen=True)
class ReductionRule:
    """States of the types ``dtypes`` that begin with ``starts``.

    ``step`` takes in the operands ``v0``, ``v1`` … at the place ``at``, ``merge`` the states ``o0``, ``o1`` …
    of other elements.  ``results`` are those of the states that are asked for.
    """

    dtypes: tuple[torch.dtype, ...]
    starts: tuple[str, ...]
    step: str
    merge: str
    results: tuple[int, ...] = (0,)


def reduction_rule(kind: str, dtype: torch.dtype) -> ReductionRule:
    """The rule of a reduction of values of ``dtype``; ``kind`` is Inductor's ``ReductionType``.

    Raises NotImplementedError for kinds that no fused kernel has.
    """
    if kind in _SIMPLE:
        start, step, merge = _SIMPLE[kind]
        return ReductionRule((dtype,), (start,), step, merge)
    if kind in ("max", "min"):
        better = f"{kind.upper()}IMUM"
        step, merge = f"s0 = {better}(s0, v0);", f"s0 = {better}(s0, o0);"
        return ReductionRule((dtype,), (_worst(kind, dtype),), step, merge)
    if kind in ("argmax", "argmin"):
        better = f"FIRST_{kind[3:].upper()}IMUM"
        return ReductionRule(
            (dtype, torch.int64),
            (_worst(kind[3:], dtype), number(2**63 - 1, torch.int64)),
            f"if ({better}(v0, at, s0, s1)) {{ s0 = v0; s1 = at; }}",
            f"if ({better}(o0, o1, s0, s1)) {{ s0 = o0; s1 = o1; }}",
            results=(1,),
        )
    if kind in ("welford_reduce", "welford_combine"):
        # Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample
        # variances, 1979; one element at a time: Welford, 1962.
        name = TYPES[dtype].name
        one = f"add_to_moments_{name}(&s0, &s1, &s2, v0);"
        many = f"merge_moments_{name}(&s0, &s1, &s2, {{0}}0, {{0}}1, {{0}}2);"
        step = one if kind == "welford_reduce" else many.format("v")
        return ReductionRule((dtype,) * 3, ("0",) * 3, step, many.format("o"), results=(0, 1, 2))
    raise NotImplementedError(f"no fused kernel reduces by `{kind}`")


_SIMPLE = {
    "sum": ("0", "s0 += v0;", "s0 += o0;"),
    "prod": ("1", "s0 *= v0;", "s0 *= o0;"),
    "xor_sum": ("0", "s0 ^= v0;", "s0 ^= o0;"),
    "any": ("0", "s0 |= v0 != 0;", "s0 |= o0;"),
}


def _worst(kind: str, dtype: torch.dtype) -> str:
    """The identity of a ``kind`` reduction, min or max, over values of ``dtype``."""
    if dtype == torch.bool:
        return number(kind == "min", dtype)
    if dtype.is_floating_point:
        return number(-math.inf if kind == "max" else math.inf, dtype)
    limits = torch.iinfo(dtype)
    return number(limits.min if kind == "max" else limits.max, dtype)


def renamed(text: str, names: dict[str, str]) -> str:
    """``text`` of a rule with the kernel's names for ``s0``, ``v0``, ``o0`` … and ``at``."""
    return re.sub(r"\b(?:[svo]\d|at)\b", lambda found: names[found[0]], text)
