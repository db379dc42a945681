"""Every entry of PyTorch's own operator database through the fallback, against the CPU.

Functional, in-place and out= forms, and the backward pass.  ``OPSMITH_OPINFO_SAMPLES`` is the
number of samples of each operator and dtype; 0 takes all that PyTorch has.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import pytest
import torch
from loaded import DEVICE
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from opsmith.conformance.comparison import (
    SampleOutcome,
    Twins,
    differences,
    distance,
    run,
    seed,
    tensors_in,
)
from opsmith.conformance.database import samples_of

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)

SAMPLES = int(os.environ.get("OPSMITH_OPINFO_SAMPLES", "2"))
DTYPES = (torch.float32, torch.int64, torch.complex64)
OTHER_DTYPES = (torch.bfloat16, torch.bool)  # alike for the fallback, but for their size


@dataclass(frozen=True)
class Declared:
    """Differences from the CPU that are as they should be, by patterns of ``OpInfo.name``."""

    reason: str
    aspects: frozenset[str]  # as comparison.differences() names them; "rounding": almost equal
    operators: tuple[str, ...]

    def covers(self, op: OpInfo, aspect: str) -> bool:
        return aspect in self.aspects and any(fnmatch(op.name, name) for name in self.operators)


DECLARED = [
    Declared(
        "what is in uninitialised memory",
        frozenset({"values", "rounding"}),
        ("empty*", "new_empty*"),
    ),
    Declared(
        "PyTorch wants the indices on the CPU, and says so", frozenset({"error"}), ("tensor_split",)
    ),
    Declared(
        "PyTorch composes it from other operators on any device that is not built in",
        frozenset({"rounding", "dtype"}),
        ("native_layer_norm", "nn.functional.layer_norm"),
    ),
    Declared(
        "PyTorch composes it, or its backward, from others on any device that is not built in",
        frozenset({"rounding"}),
        (
            "addr",
            "native_group_norm",
            "nn.functional.group_norm",
            "nn.functional.linear_cross_entropy*",
            "nn.functional.mish",
            "nn.functional.silu",
        ),
    ),
    Declared(
        "PyTorch takes other operators on the CPU than on accelerators",
        frozenset({"rounding", "grad_fn", "stride", "_is_view"}),
        ("nn.functional.scaled_dot_product_attention", "nn.functional.dropout"),
    ),
    Declared(
        "the driver gelsy starts from uninitialised memory: the CPU differs from itself",
        frozenset({"rounding"}),
        ("linalg.lstsq",),
    ),
    Declared(
        "PyTorch resizes out= through resize_, which counts, on all devices but the CPU",
        frozenset({"versions"}),
        ("*",),
    ),
    Declared(
        "the CPU kernel takes out= for contiguous, and writes between its elements; with copies those stay",
        frozenset({"bytes around"}),
        ("narrow_copy", "nn.functional.avg_pool*"),
    ),
]

# Relative to the largest value: more than that is not the rounding of another order of operations.
ROUNDING = {torch.bfloat16: 1e-1, torch.float32: 5e-5, torch.complex64: 5e-5}


def is_rounding(mine: Tensor, other: Tensor) -> bool:
    return distance(mine, other) < ROUNDING.get(other.dtype, 0)


def cases(dtypes: Sequence[torch.dtype]) -> Iterator[Any]:
    for op in op_db:
        for dtype in dtypes:
            if dtype in op.dtypes:
                name = f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}"
                yield pytest.param(op, dtype, id=name)


def samples(op: OpInfo, dtype: torch.dtype, requires_grad: bool) -> Iterator[SampleInput]:
    """Those that a device with nothing but strided tensors can be asked for."""
    seed(DEVICE, 1)  # some are drawn from the global generator
    for sample in itertools.islice(samples_of(op, dtype, requires_grad), SAMPLES or None):
        given = tensors_in((sample.input, sample.args, sample.kwargs))
        if all(tensor.layout == torch.strided for tensor in given):
            yield sample


class Comparison:
    """Runs calls on both devices and keeps what differs and is not declared."""

    def __init__(self, op: OpInfo) -> None:
        self.op = op
        self.found: list[str] = []

    def call(
        self,
        what: str,
        call: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> tuple[SampleOutcome, SampleOutcome]:
        """The outcomes on the device and on the CPU."""
        theirs = run("cpu", call, *Twins("cpu").of((arguments, keywords)))
        # Factories that name no device take the default one.
        with nullcontext() if "device" in keywords else torch.device(DEVICE):
            ours = run(DEVICE, call, *Twins(DEVICE).of((arguments, keywords)))
        self.compare(what, ours, theirs)
        return ours, theirs

    def compare(self, what: str, ours: SampleOutcome, theirs: SampleOutcome) -> None:
        for aspect, text in differences(ours, theirs, is_rounding):
            kind = aspect.removeprefix("argument ")
            if not any(declared.covers(self.op, kind) for declared in DECLARED):
                self.found.append(f"{what}: {aspect}: {text}")

    def backward(self, ours: SampleOutcome, theirs: SampleOutcome) -> None:
        """The gradients of what two calls returned."""
        gradients = [
            run(outcome.device, gradient_of(outcome), (), {}) for outcome in (ours, theirs)
        ]
        self.compare("backward", *gradients)


def gradient_of(outcome: SampleOutcome) -> Callable[[], Any]:
    """The gradients of all results with respect to all arguments."""
    given = len(outcome.versions)
    leaves = [tensor for tensor in outcome.tensors[:given] if tensor.requires_grad]
    results = [tensor for tensor in outcome.tensors[given:] if tensor.requires_grad]
    seed(outcome.device, 2)  # the same seeds for both devices
    seeds = [torch.randn(r.shape, dtype=r.dtype).to(r.device) for r in results]
    if not leaves or not results:
        return tuple
    return lambda: torch.autograd.grad(results, leaves, seeds, allow_unused=True)


# The arguments for out=: the right size, elements apart in a larger storage, and to be resized.
OUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "right": torch.ones_like,
    "strided": lambda like: torch.ones(*like.shape, 2, dtype=like.dtype)[..., 1],
    "empty": lambda like: torch.empty(0, dtype=like.dtype),
}


def is_tensors(result: Any) -> bool:
    """Whether it is a tensor or a tuple of some: what out= can be for."""
    each = result if isinstance(result, tuple | list) else [result]
    return all(isinstance(one, Tensor) for one in each)


def outs(result: Any, make: Callable[[Tensor], Tensor]) -> Any:
    return make(result) if isinstance(result, Tensor) else tuple(map(make, result))


def check_functional_and_backward(comparison: Comparison, dtype: torch.dtype) -> None:
    op = comparison.op
    differentiable = dtype.is_floating_point or dtype.is_complex
    differentiable = differentiable and op.supports_autograd and dtype in op.backward_dtypes
    for sample in samples(op, dtype, requires_grad=differentiable):
        arguments = (sample.input, *sample.args)
        ours, theirs = comparison.call("functional", op.op, arguments, sample.kwargs)
        if differentiable and not ours.raised and not theirs.raised and not comparison.found:
            comparison.backward(ours, theirs)


def check_writing(comparison: Comparison, dtype: torch.dtype) -> None:
    op = comparison.op
    if op.inplace_variant is None and not op.supports_out:
        return
    for sample in samples(op, dtype, requires_grad=False):
        arguments = (sample.input, *sample.args)
        if op.inplace_variant is not None and not sample.broadcasts_input:
            comparison.call("in-place", op.inplace_variant, arguments, sample.kwargs)
        if op.supports_out:
            expected = run("cpu", op.op, *Twins("cpu").of((arguments, sample.kwargs)))
            if not is_tensors(expected.result):
                continue
            for kind, make in OUTS.items():
                keywords = {**sample.kwargs, "out": outs(expected.result, make)}
                comparison.call(f"out= ({kind})", op.op, arguments, keywords)


def check(op: OpInfo, dtype: torch.dtype) -> None:
    comparison = Comparison(op)
    check_functional_and_backward(comparison, dtype)
    check_writing(comparison, dtype)
    assert not comparison.found, "\n".join(comparison.found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), [*cases(DTYPES)])
def test_like_the_cpu(op: OpInfo, dtype: torch.dtype) -> None:
    check(op, dtype)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), [*cases(OTHER_DTYPES)])
def test_other_dtypes_like_the_cpu(op: OpInfo, dtype: torch.dtype) -> None:
    check(op, dtype)
