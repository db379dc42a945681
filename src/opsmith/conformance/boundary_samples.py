"""OpInfo's samples with values from the ends of the dtype, and which results such values determine.

Only elements that are values are replaced: an index, a size or a count is none.  Integers wrap in any order
of additions and products, so that all that is computed of them is determined.  Floats round, and overflow on
the way: they are determined where a result comes of one element of each operand, or is one of the elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fnmatch import fnmatch
from random import Random
from typing import Any

import torch
from torch import Tensor

from opsmith.conformance.boundary_values import boundary_values, divisors
from opsmith.conformance.comparison import SampleOutcome, is_strided, tensors_in
from opsmith.conformance.database import FOREACH
from opsmith.conformance.subject import Subject
from opsmith.schema.torch_names import BinaryUfuncInfo, UnaryUfuncInfo, tree_leaves

_UNBOUNDED = {
    "its values are sizes and counts": (
        "bincount", "hist*", "nn.functional.one_hot", "repeat_interleave", "unravel_index",
    ),
    "PyTorch's CPU divides by what overflows to 0": ("lcm",),
    "PyTorch's CPU loops as often as its values say": ("special.*polynomial*",),
    "its values are random": ("bernoulli", "multinomial", "nn.functional.*dropout*", "normal*", "rand*"),
    "its values are the ends of a range": ("arange", "linspace*", "logspace*"),
}  # fmt: skip

_DIVIDING = ("*div*", "fmod", "gcd", "remainder", "__rmod__")

# They sum, round in between, or raise to powers, which multiplies a rounding error by a large logarithm.
_COMPOSED_FOREACH = ("addcdiv", "addcmul", "lerp", "mm", "norm", "pow")

_MOST_VALUES = 12
_MOST_CHARACTERS = 160


def unbounded(name: str) -> str:
    """Why the entry ``name`` is not asked for the ends of a dtype; empty where it is."""
    for reason, patterns in _UNBOUNDED.items():
        if any(fnmatch(name, pattern) for pattern in patterns):
            return reason
    return ""


def with_boundary_values(subject: Subject, sample: Any, index: int) -> Any:
    """The sample with other values; None where it has none that can be replaced."""
    values = boundary_values(subject.dtype)
    if any(fnmatch(subject.name, each) for each in _DIVIDING):
        values = divisors(values, subject.dtype)
    replaced = _values_of(subject, sample, index)
    if not replaced:
        return None

    def filled(value: Any) -> Any:
        if not isinstance(value, Tensor) or not any(value is each for each in replaced):
            return value
        place = next(place for place, each in enumerate(replaced) if value is each)
        # A text seeds alike in every process.
        random = Random(f"{subject.number} {index} {place}")
        order = random.sample(values, len(values))
        chosen = [*itertools.islice(itertools.cycle(order), value.numel())]
        return value.detach().clone().copy_(_tensor(chosen, value))

    return sample.transform(filled)


def _tensor(values: list[int | float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype).reshape(like.shape)


def _values_of(subject: Subject, sample: Any, index: int) -> list[Tensor]:
    """The tensors of the sample whose elements are values: those of the dtype that is asked for.

    An index is of int64 in any dtype, so that of int64 a sample in another dtype tells them apart.
    """
    given = [*_leaves(sample)]
    if subject.dtype is torch.int64:
        claimed = subject.info.supported_dtypes(subject.device)
        dtype = torch.int32 if torch.int32 in claimed else torch.float32
        others = subject.samples_in(dtype)
        other = [*_leaves(others[index])] if index < len(others) else []
        if len(other) != len(given):
            return []
        given = [
            mine
            for mine, its in zip(given, other, strict=True)
            if isinstance(its, Tensor) and its.dtype is dtype
        ]
    return [
        each
        for each in given
        if isinstance(each, Tensor)
        and each.dtype is subject.dtype
        and is_strided(each)
        and each.numel()
    ]


def _leaves(sample: Any) -> Iterator[Any]:
    yield from tree_leaves((sample.input, sample.args, sample.kwargs))


def is_determined(subject: Subject, sample: Any, index: int, theirs: SampleOutcome) -> bool:
    """Whether the values determine the CPU's results, ``theirs``; ``sample`` is the one with OpInfo's."""
    results = [each.detach() for each in tensors_in(theirs.result)]
    if not subject.dtype.is_floating_point:
        # Sums of values that were made floats round and cancel.
        return _is_elementwise(subject) or not any(map(_rounds, results))
    if _is_elementwise(subject):
        # A float that an integer does not hold becomes any integer.
        return all(each.is_floating_point() or each.dtype is torch.bool for each in results)
    # At the ends of a dtype, and in a narrow one, a sum too may be one of its elements.
    return _chooses_elements(subject.on_cpu(subject.info.op, subject.widened(sample), index))


def _is_elementwise(subject: Subject) -> bool:
    """Whether each result is one function of one element of each operand."""
    if subject.name.startswith(FOREACH):
        return subject.name.removeprefix(FOREACH) not in _COMPOSED_FOREACH
    return isinstance(subject.info, UnaryUfuncInfo | BinaryUfuncInfo)


def _chooses_elements(outcome: SampleOutcome) -> bool:
    """Whether all results are elements of the operands, or zeros."""
    given = outcome.tensors[: len(outcome.versions)]
    elements = [each.detach().double().flatten() for each in given if _is_real(each)]
    known = torch.cat([torch.zeros(1, dtype=torch.float64), *elements])
    return all(
        _is_real(each) and bool(torch.isin(each.detach().double().flatten(), known).all())
        for each in tensors_in(outcome.result)
    )


def _rounds(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_real(tensor: Tensor) -> bool:
    return is_strided(tensor) and tensor.is_floating_point()


def shown_values(sample: Any) -> str:
    """The first values of the sample's tensors, in short."""
    tensors = [each for each in _leaves(sample) if isinstance(each, Tensor) and is_strided(each)]
    text = "; ".join(str(each.flatten()[:_MOST_VALUES].tolist()) for each in tensors)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …"
