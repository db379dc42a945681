"""The kernels of one library on a PyTorch device, against ATen.

What a library has beyond the kernels is tested in its own file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from agreement import disagreement
from aten_calls import OperatorCall, inputs_of, overload, schema_of
from executorch_calls import form_of
from recording import recording
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

import needs
import opsmith
from fell_back import fell_back
from opsmith.description import Kernel
from opsmith.plan.executorch.kernel_keys import Argument, CallForm, TensorMeta
from opsmith.plan.executorch.supported import rejection

pytestmark = pytest.mark.isolated(
    OPSMITH_SUITE=(
        "portable",
        "portable_alone",
        "portable_on_copies",
        "optimized",
        "optimized_on_copies",
        "quantized",
        "quantized_on_copies",
        "llm",
        "llm_on_copies",
        "onednn",
        "onednn_on_copies",
    ),
    nightly=(
        "portable",
        "portable_alone",
        "optimized",
        "quantized_on_copies",
        "onednn",
        "onednn_on_copies",
    ),
    opinfo=True,
    timeout=3600,
)

KERNELS = Path(__file__).parents[1]
SUITE = os.environ["OPSMITH_SUITE"]
if SUITE.endswith("_on_copies"):
    os.environ["OPSMITH_HOST_WINDOW"] = "off"
LIBRARY, BACKEND = {
    # Behind `optimized`, which takes most floats of its operators: these are nightly.
    "portable": ("portable", "sim"),
    "portable_alone": ("portable", KERNELS / "portable_backend" / "backend.yaml"),
    "optimized": ("optimized", "sim"),
    "quantized": ("quantized", KERNELS / "quantized_backend" / "backend.yaml"),
    "llm": ("llm", KERNELS / "llm_backend" / "backend.yaml"),
    "onednn": ("onednn", KERNELS / "onednn_backend" / "backend.yaml"),
}[SUITE.removesuffix("_on_copies")]
if LIBRARY == "onednn":
    needs.require("oneDNN")
LOADED = opsmith.load(str(BACKEND))
# Their further results are empty on the CPU, and on other devices what PyTorch's meta function says.
FIRST_RESULT_ONLY = {"aten::_native_batch_norm_legit.out"}
# Of halves, their further results are Float on a device; other dtypes are the CPU's to write.
FLOAT_STATISTICS = {"aten::native_layer_norm.out"}
HALVES = {torch.float16, torch.bfloat16}


@functools.cache
def calls() -> dict[str, list[OperatorCall]]:
    """The recorded calls by operator."""
    found: dict[str, list[OperatorCall]] = {}
    for call in recording():
        found.setdefault(call.operator, []).append(call)
    return found


def is_taken(kernel: Kernel, call: OperatorCall) -> bool:
    """Whether the kernel takes the call; on a device that is a question of dtypes only."""
    if call.operator in FLOAT_STATISTICS and call.results[1].dtype in HALVES:
        return False
    form = form_of(call)
    arguments = [argument.name for argument in schema_of(call.operator).arguments]
    laid = CallForm(form.operator, tuple(map(_contiguous, form.arguments)))
    return not rejection(arguments, kernel, laid)


def _contiguous(argument: Argument) -> Argument:
    if isinstance(argument, tuple):
        return tuple(TensorMeta(each.dtype, tuple(range(len(each.dim_order)))) for each in argument)
    if argument is None:
        return None
    return TensorMeta(argument.dtype, tuple(range(len(argument.dim_order))))


def wrong(call: OperatorCall) -> str:
    """The difference from ATen, or the error that the device raised."""
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
    counted = fell_back(opsmith.fallbacks(since=start))
    return {call.operator for call in asked if call.operator.removeprefix("aten::") in counted}


def kernels_of(operator: str) -> list[Kernel]:
    """The device's kernels for an operator, in the order in which they are asked."""
    known = LOADED.plan.by_name.get(operator.removeprefix("aten::"))
    return [entry.kernel for entry in known.chain if entry.kernel] if known else []


OPERATORS = {
    operator: kernel
    for operator in calls()
    for kernel in kernels_of(operator)
    if kernel.library == LIBRARY
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_kernel_gives_what_aten_gives(operator: str) -> None:
    asked = [call for call in calls()[operator] if is_taken(OPERATORS[operator], call)]
    assert asked, "no sample reaches this kernel"
    assert operator not in check(asked)


# Those of others are all of their dtypes: see quantized_backend/test_quantized.py.
if LIBRARY not in {"quantized", "llm", "onednn"}:

    @pytest.mark.parametrize(
        "operator",
        [
            operator
            for operator, kernel in OPERATORS.items()
            if not all(is_taken(kernel, call) for call in calls()[operator])
        ],
    )
    def test_other_dtypes_are_served_by_the_next_library_or_the_cpu(operator: str) -> None:
        by_next: dict[bool, list[OperatorCall]] = {True: [], False: []}
        for call in {form_of(call): call for call in calls()[operator]}.values():
            if not is_taken(OPERATORS[operator], call):
                next_takes = any(is_taken(kernel, call) for kernel in kernels_of(operator))
                by_next[next_takes].append(call)
        assert operator not in check(by_next[True])
        assert (operator in check(by_next[False])) == bool(by_next[False])
