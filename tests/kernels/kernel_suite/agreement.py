"""Whether what a runtime gave for a call is what ATen gives."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from aten_calls import OperatorCall, functional_of, inputs_of, schema_of
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

# Their results' elements may be anything.
_ANY_VALUE = frozenset({"aten::empty.out"})
# In ExecuTorch their integers are cut off, which ATen rounds.
_CUT_OFF = frozenset({"aten::upsample_bilinear2d.out", "aten::upsample_bilinear2d.vec_out"})
_ROUNDED = (torch.float32, torch.float16, torch.bfloat16)


def disagreement(
    call: OperatorCall, results: tuple[Tensor, ...], written: dict[int, Tensor]
) -> str:
    """The difference from ATen, empty where there is none.

    Values may differ as far as ``torch.testing`` allows for their dtype, and where ATen itself is farther
    from the result in float64, by twice its largest error: sums in another order are no mistake.
    """
    pairs = list(itertools.zip_longest(results, tree_leaves(call.results)))
    for place, (ours, theirs) in enumerate(pairs):
        if ours is None or theirs is None:
            return f"{len(results)} results instead of {len(tree_leaves(call.results))}"
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return f"result {place} is {ours.dtype}{list(ours.shape)}"
        if call.operator in _ANY_VALUE:
            continue
        if call.operator in _CUT_OFF and not ours.is_floating_point():
            ours, theirs = ours.int(), theirs.int()
            ours = ours + (ours + 1 == theirs)
        difference = _difference(ours, theirs)
        if difference and not _is_as_exact(call, place, ours, theirs):
            return f"result {place}: {difference}"
    for place, ours in written.items():
        if difference := _difference(ours, call.written[place]):
            return f"argument {place}, which is written to: {difference}"
    return ""


def _difference(ours: Tensor, theirs: Tensor) -> str:
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_stride=False)
    except AssertionError as error:
        lines = [line for line in str(error).splitlines() if line]
        found = " ".join(lines[:4])
        if theirs.numel() <= 16:
            found += f": {ours.flatten().tolist()} instead of {theirs.flatten().tolist()}"
        return found
    return ""


def _is_as_exact(call: OperatorCall, place: int, ours: Tensor, theirs: Tensor) -> bool:
    if theirs.dtype not in _ROUNDED:
        return False
    exact = _exact(call)
    if exact is None or not isinstance(exact[place], Tensor) or exact[place].shape != theirs.shape:
        return False
    wide = exact[place].double()
    error, allowed = (ours.double() - wide).abs(), (theirs.double() - wide).abs()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    finite = error.isfinite() & allowed.isfinite()
    most = allowed[finite].max().item() if finite.any() else 0.0
    close = torch.isclose(ours.double(), theirs.double(), equal_nan=True, **_usual(theirs.dtype))
    return bool((same | close | (finite & (error <= 2 * most))).all())


def _usual(dtype: torch.dtype) -> dict[str, float]:
    from torch.testing._comparison import default_tolerances

    relative, absolute = default_tolerances(dtype)
    return {"rtol": relative, "atol": absolute}


def _exact(call: OperatorCall) -> list[Any] | None:
    """The results in float64, of the same arguments."""
    arguments = tree_map_only(
        Tensor, lambda each: each.double() if each.is_floating_point() else each, call.arguments
    )
    arguments = tree_map_only(
        torch.dtype, lambda each: torch.float64 if each.is_floating_point else each, arguments
    )
    if not call.operator.startswith("aten::"):
        return None
    names = [argument.name for argument in inputs_of(schema_of(call.operator))]
    try:
        return tree_leaves(functional_of(call.operator)(**dict(zip(names, arguments, strict=True))))
    except Exception:  # not in float64
        return None
