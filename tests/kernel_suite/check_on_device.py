"""The kernels of one library on a PyTorch device, against ATen.

Runs in a process of its own, because a process loads one backend: ``tests/test_kernels_on_a_device.py``
starts it, with the backend's description in ``OPSMITH_SUITE_BACKEND`` and the library's name in
``OPSMITH_SUITE_LIBRARY``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from agreement import disagreement
from aten_calls import OperatorCall, inputs_of, overload, schema_of
from executorch_calls import form_of
from recording import recording
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

import opsmith
from opsmith.description import Kernel
from opsmith.plan.executorch_keys import Argument, CallForm, TensorMeta
from opsmith.plan.executorch_takes import refusal

LOADED = opsmith.load(os.environ["OPSMITH_SUITE_BACKEND"])
LIBRARY = os.environ["OPSMITH_SUITE_LIBRARY"]
# Their further results are empty on the CPU, and on other devices what PyTorch's meta function says.
FIRST_RESULT_ONLY = {
    "aten::_native_batch_norm_legit.out",
    "aten::_native_batch_norm_legit_no_training.out",
}
# Of halves, their further results are Float on a device; other dtypes are the CPU's to write.
FLOAT_STATISTICS = {
    *FIRST_RESULT_ONLY,
    "aten::native_layer_norm.out",
    "aten::_native_batch_norm_legit.no_stats_out",
}
HALVES = {torch.float16, torch.bfloat16}


@functools.cache
def calls() -> dict[str, list[OperatorCall]]:
    """The recorded calls by operator."""
    found: dict[str, list[OperatorCall]] = {}
    for call in recording():
        found.setdefault(call.operator, []).append(call)
    return found


def kernel_of(operator: str) -> Kernel | None:
    """The library's kernel for an operator of the device; None where it serves ExecuTorch only."""
    known = LOADED.plan.by_name.get(operator.removeprefix("aten::"))
    layers = known.layers if known else ()
    kernels = [entry.kernel for entry in layers if entry.kernel and entry.kernel.library == LIBRARY]
    return kernels[0] if kernels else None


def is_taken(kernel: Kernel, call: OperatorCall) -> bool:
    """Whether the kernel takes the call; on a device that is a question of dtypes only."""
    if call.operator in FLOAT_STATISTICS and call.results[1].dtype in HALVES:
        return False
    form = form_of(call)
    arguments = [argument.name for argument in schema_of(call.operator).arguments]
    laid = CallForm(form.operator, tuple(map(_contiguous, form.arguments)))
    return not refusal(arguments, kernel, laid)


def _contiguous(argument: Argument) -> Argument:
    if isinstance(argument, tuple):
        return tuple(TensorMeta(each.dtype, tuple(range(len(each.dim_order)))) for each in argument)
    if argument is None:
        return None
    return TensorMeta(argument.dtype, tuple(range(len(argument.dim_order))))


def wrong(call: OperatorCall) -> str:
    """What differs from ATen, or the error that the device raised."""
    given = tree_map_only(Tensor, lambda tensor: tensor.to(LOADED.name, copy=True), call.arguments)
    results = tree_map_only(Tensor, _out, call.results)
    schema = schema_of(call.operator)
    arguments = dict(zip((each.name for each in inputs_of(schema)), given, strict=True))
    outs = [argument.name for argument in schema.arguments if argument.is_out]
    try:
        overload(call.operator)(**arguments, **dict(zip(outs, results, strict=True)))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    written = {place: given[place].cpu() for place in call.written}
    if call.operator in FIRST_RESULT_ONLY:
        call, results = replace(call, results=call.results[:1]), results[:1]
    return disagreement(call, tuple(each.cpu() for each in tree_leaves(results)), written)


def _out(like: Tensor) -> Tensor:
    """A Tensor to write to: an empty one, which is resized, except where the layout is to be another's."""
    if like.is_contiguous():
        return torch.empty(0, dtype=like.dtype, device=LOADED.name)
    return torch.empty_like(like, device=LOADED.name)


def check(asked: Sequence[OperatorCall]) -> set[str]:
    """The operators that ran on the CPU; fails where a call does not give what ATen gives."""
    start = opsmith.fallbacks()
    found = [f"{call}: {why}" for call in asked if (why := wrong(call))]
    assert not found, f"{len(found)} of {len(asked)} calls:\n" + "\n".join(found[:10])
    return {f"aten::{each.operator}" for each in opsmith.fallbacks(since=start).counts}


OPERATORS = [operator for operator in calls() if kernel_of(operator)]


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_kernel_gives_what_aten_gives(operator: str) -> None:
    kernel = kernel_of(operator)
    assert kernel is not None
    asked = [call for call in calls()[operator] if is_taken(kernel, call)]
    assert asked, "no sample reaches this kernel"
    assert operator not in check(asked)


@pytest.mark.parametrize("operator", OPERATORS)
def test_other_dtypes_are_served_by_the_next_library_or_the_cpu(operator: str) -> None:
    kernel = kernel_of(operator)
    assert kernel is not None
    others = {form_of(call): call for call in calls()[operator] if not is_taken(kernel, call)}
    if not others or not operator.startswith("aten::"):
        return
    alone = sum(entry.kernel is not None for entry in LOADED.plan.entry(operator).layers) == 1
    assert not alone or operator in check(list(others.values()))
