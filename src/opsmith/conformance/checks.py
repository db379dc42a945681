"""The checks: what each asks of one entry of OpInfo in one dtype on the device.

Each compares calls on the device with the same calls on the CPU, sample by sample, and ends with the
first difference.  Samples on which the CPU raises say nothing, and are left out.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor

from opsmith.conformance.boundary_samples import (
    is_determined,
    shown_values,
    unbounded,
    with_boundary_values,
)
from opsmith.conformance.comparison import (
    SampleOutcome,
    bytes_of,
    is_strided,
    run,
    seed,
    strided_parts,
    tensors_in,
)
from opsmith.conformance.database import FOREACH, TRIED, doubts_its_dtypes, dtype_name
from opsmith.conformance.results import Check, Status
from opsmith.conformance.subject import (
    UNDEFINED_WHEN_EMPTY,
    NoSamples,
    Refused,
    Subject,
    Wrong,
)
from opsmith.schema.torch_names import SampleInput, tree_flatten

# The aspects in which PyTorch's tests let its own devices differ from its CPU: how results are laid out in
# memory and recorded.  The check "meta" looks at strides.
_OWN_AFFAIR = frozenset(
    {
        "bytes around", "grad_fn", "is_conj", "is_leaf", "is_neg", "_is_view", "storage_offset", "stride",
        "versions",
    }
)  # fmt: skip
# Results that are written go where the caller wants them, which strides and offsets say.
_OWN_AFFAIR_WRITING = _OWN_AFFAIR - {"stride", "storage_offset"}

# The tensors for out=: the right size, elements apart in a larger storage, one to be resized, and a dtype
# that the result may not be castable to.
_OUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "right size": torch.ones_like,
    "strided": lambda like: torch.ones(*like.shape, 2, dtype=like.dtype)[..., 1],
    "empty": lambda like: torch.empty(0, dtype=like.dtype),
    "another dtype": lambda like: torch.ones_like(
        like, dtype=torch.float64 if like.dtype is torch.int64 else torch.int64
    ),
}

# What "mixed-dtypes" makes of an operand's dtype: one of another size that devices have.
_ANOTHER_DTYPE = {
    torch.float64: torch.float32,
    torch.float32: torch.bfloat16,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
    torch.int64: torch.int32,
    torch.int32: torch.int64,
    torch.int16: torch.int64,
    torch.int8: torch.int64,
    torch.uint8: torch.int64,
    torch.bool: torch.int32,
    torch.complex128: torch.complex64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex64,
}

# Entries for which PyTorch's CPU takes operands of two dtypes in some calls and refuses them in others: a
# convolution's bias beside its input, products without elements, and what `mm.out` then reads as one dtype.
_MIXED_BY_CHANCE = (
    "matmul", "__rmatmul__", "linalg.pinv.singular", "nn.functional.conv*",
    "nn.functional.linear_cross_entropy*",
)  # fmt: skip

_MESSAGE_LENGTH = 600

_NOTHING = {
    Check.MIXED_DTYPES: "none of its samples has two Tensors",
    Check.EMPTY: "the CPU computes none of its samples without elements",
    Check.META: "PyTorch's meta function takes none of its samples",
    Check.BOUNDARY: "the CPU computes none of its samples with the ends of the dtype for values",
}


@dataclass(frozen=True)
class Finding:
    """How a check ended, of how many samples, and what there is to say."""

    status: Status
    samples: int = 0
    message: str = ""


class _Nothing(Exception):
    """There is nothing to check; the message says why."""


def examine(subject: Subject, check: Check) -> Finding:
    """Runs ``check``."""
    ran = 0
    try:
        for _ in _CHECKS[check](subject):
            ran += 1
    except (_Nothing, NoSamples, Refused) as reason:
        return Finding(Status.SKIPPED, ran, str(reason)[:_MESSAGE_LENGTH])
    except Wrong as found:
        return Finding(Status.FAILED, ran + 1, str(found)[:_MESSAGE_LENGTH])
    except Exception as error:  # a result of the device that cannot even be read
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = (
            f"raises {error!r:.300} when its result is looked at ({place.name}:{place.lineno})"
        )
        return Finding(Status.FAILED, ran + 1, message)
    if ran:
        return Finding(Status.PASSED, ran)
    return Finding(Status.SKIPPED, 0, _NOTHING.get(check, "the CPU computes none of its samples"))


def _claimed_samples(
    subject: Subject, *, requires_grad: bool = False
) -> Iterator[tuple[int, Any, str]]:
    """The samples with their numbers and what to call them in a message."""
    if not (subject.is_backward_claimed if requires_grad else subject.is_claimed):
        what = "gradients in" if requires_grad else ""
        raise _Nothing(f"OpInfo does not claim {what} {dtype_name(subject.dtype)}")
    for index, sample in enumerate(subject.samples(requires_grad=requires_grad)):
        yield index, sample, _named(index, sample)


def _named(index: int, sample: Any) -> str:
    return f"sample {index}, {_shown((sample.input, *sample.args))} {_shown(sample.kwargs)}".strip()


def _shown(value: Any) -> str:
    """Arguments in short: ``f32[2, 3]`` for a Tensor."""
    if isinstance(value, Tensor):
        if not is_strided(value):
            return f"{dtype_name(value.dtype)}{list(value.shape)}, {str(value.layout)[6:]}"
        gaps = "" if value.is_contiguous() else ", non-contiguous"
        return f"{dtype_name(value.dtype)}{list(value.shape)}{gaps}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_shown(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_shown, value))})"
    return repr(value)


# ---- values


def _forward(subject: Subject) -> Iterator[None]:
    """The functional call: values, dtypes, shapes, aliasing, and arguments that stay as they were."""
    call = subject.info.op
    for index, sample, name in _claimed_samples(subject):
        if index == 0:
            subject.called(call, sample, index)
        yield from _like_the_cpu(subject, call, sample, index, name, _OWN_AFFAIR)


def _like_the_cpu(
    subject: Subject,
    call: Any,
    sample: Any,
    index: int,
    name: str,
    ignored: frozenset[str],
    **keywords: Any,
) -> Iterator[None]:
    def on_cpu(number: int) -> SampleOutcome:
        return subject.on_cpu(call, sample, index, number=number, **keywords)

    theirs = on_cpu(0)
    if theirs.raised and not keywords:
        return
    ours = subject.on_device(call, sample, index, **keywords)
    if keywords and ours.raised and theirs.raised:
        yield  # out= that both refuse; each device has its own words and class
        return
    subject.compare(
        name, ours, theirs, ignored, on_cpu,
        lambda: subject.on_cpu(call, subject.widened(sample), index, **_widened(subject, keywords)),
    )  # fmt: skip
    yield


def _widened(subject: Subject, keywords: dict[str, Any]) -> dict[str, Any]:
    sample = SampleInput(None, args=(), kwargs=keywords)  # type: ignore[no-untyped-call]
    widened: dict[str, Any] = subject.widened(sample).kwargs
    return widened


def _backward(subject: Subject) -> Iterator[None]:
    """The gradients of all results with respect to all arguments."""
    call = subject.info.op
    for index, sample, name in _claimed_samples(subject, requires_grad=True):

        def on_cpu(number: int, sample: Any = sample, index: int = index) -> SampleOutcome:
            return _gradients(subject.on_cpu(call, sample, index, number=number), sample)

        def exactly(sample: Any = sample, index: int = index) -> SampleOutcome:
            wide = subject.widened(sample)
            return _gradients(subject.on_cpu(call, wide, index), wide)

        theirs = on_cpu(0)
        if theirs.raised or not theirs.tensors:
            continue
        forward = subject.on_device(call, sample, index)
        subject.watch.at(index, on_device=True)
        ours = _gradients(forward, sample)
        subject.compare(name, ours, theirs, _OWN_AFFAIR, on_cpu, exactly)
        yield


def _gradients(forward: SampleOutcome, sample: Any) -> SampleOutcome:
    if forward.raised:
        return forward
    leaves = [t for t in forward.tensors[: len(forward.versions)] if t.requires_grad]
    # The part of the results that is determined, as PyTorch's own tests of gradients take it.
    results = [
        t for t in tensors_in(sample.output_process_fn_grad(forward.result)) if t.requires_grad
    ]
    if not leaves or not results:
        return SampleOutcome(forward.device, (), [], [], [])
    seed(forward.device, 2)  # the same cotangents for both devices
    cotangents = [_cotangent(result) for result in results]
    return run(
        forward.device,
        lambda: torch.autograd.grad(results, leaves, cotangents, allow_unused=True),
        (),
        {},
    )


def _cotangent(result: Tensor) -> Tensor:
    """Random numbers in the shape of ``result``: the same in every dtype, as bfloat16 holds them."""
    parts = torch.randn(*result.shape, 2).bfloat16().double()
    drawn = torch.view_as_complex(parts) if result.is_complex() else parts[..., 0]
    return drawn.to(result.dtype).to(result.device)


def _noncontiguous(subject: Subject) -> Iterator[None]:
    """The functional call with gaps between the arguments' elements."""
    for index, sample, name in _claimed_samples(subject):
        try:
            spread = sample.noncontiguous()
        except RuntimeError:
            continue  # the CPU cannot lay them out so in this dtype
        label = f"non-contiguous {name}"
        yield from _like_the_cpu(subject, subject.info.op, spread, index, label, _OWN_AFFAIR)


def _empty(subject: Subject) -> Iterator[None]:
    """The functional call without elements: the samples with their first, then their last dimension cut."""
    for index, sample, name in _claimed_samples(subject):
        for where, dim in (("first", 0), ("last", -1)):
            cut = _cut(sample, dim)
            if cut is None or subject.name in UNDEFINED_WHEN_EMPTY:
                continue
            label = f"{name}, {where} dimension empty"
            yield from _like_the_cpu(subject, subject.info.op, cut, index, label, _OWN_AFFAIR)


def _cut(sample: Any, dim: int) -> Any:
    """The sample with every dimension ``dim`` of the first Tensor's size empty; None where it has none.

    Nor is there one for sparse Tensors, which cannot all be narrowed.
    """
    given = tensors_in((sample.input, sample.args, sample.kwargs))
    if not given or given[0].dim() == 0 or not all(map(is_strided, given)):
        return None
    size = given[0].shape[dim]

    def cut(tensor: Any) -> Any:
        if not isinstance(tensor, Tensor) or tensor.dim() == 0 or tensor.shape[dim] != size:
            return tensor
        return tensor.detach().narrow(dim, 0, 0).clone()

    return sample.transform(cut)


# ---- the ends of the dtype


def _boundary(subject: Subject) -> Iterator[None]:
    """The functional call with values from the ends of the dtype, where they determine the result."""
    if reason := unbounded(subject.name):
        raise _Nothing(reason)
    for index, sample, name in _claimed_samples(subject):
        at_the_ends = with_boundary_values(subject, sample, index)
        if at_the_ends is None:
            continue
        label = f"{name}, with values {shown_values(at_the_ends)}"
        theirs = subject.on_cpu(subject.info.op, at_the_ends, index)
        if theirs.raised or not is_determined(subject, sample, index, theirs):
            continue
        yield from _like_the_cpu(subject, subject.info.op, at_the_ends, index, label, _OWN_AFFAIR)


# ---- what is written


def _out(subject: Subject) -> Iterator[None]:
    """``out=`` of several kinds: values, who is returned, where elements go, what is refused."""
    if not subject.info.supports_out or subject.name.startswith(FOREACH):
        raise _Nothing("it takes no out=")
    call = subject.info.op
    for index, sample, name in _claimed_samples(subject):
        expected = subject.on_cpu(call, sample, index)
        if expected.raised or not _is_tensors(expected.result):
            continue
        for kind, make in _OUTS.items():
            out = _outs(expected.result, make)
            label = f"{name}, out= of {kind}"
            if subject.on_cpu(call, sample, index, out=out).raised and kind != "another dtype":
                continue
            yield from _like_the_cpu(
                subject, call, sample, index, label, _OWN_AFFAIR_WRITING, out=out
            )


def _is_tensors(result: Any) -> bool:
    each = result if isinstance(result, tuple | list) else [result]
    return all(isinstance(one, Tensor) for one in each)


def _outs(result: Any, make: Callable[[Tensor], Tensor]) -> Any:
    return make(result) if isinstance(result, Tensor) else tuple(map(make, result))


def _in_place(subject: Subject) -> Iterator[None]:
    """The in-place call: values, self returned, its version counted."""
    call = subject.info.inplace_variant
    if call is None:
        raise _Nothing("it has no in-place variant")
    for index, sample, name in _claimed_samples(subject):
        if sample.broadcasts_input:
            continue
        yield from _like_the_cpu(
            subject, call, sample, index, name, _OWN_AFFAIR_WRITING - {"versions"}
        )


# ---- dtypes


def _dtypes(subject: Subject) -> Iterator[None]:
    """Checks that all that is claimed works, forward and backward, and that all that works is claimed.

    Where the CPU too computes what is not claimed, the claim is wrong about PyTorch, and says nothing of
    the device.  OpInfo claims, and the description: a kernel that declares a dtype claims it, and what the
    description refuses is not claimed.
    """
    if subject.name.startswith(FOREACH):
        raise _Nothing("OpInfo claims all dtypes for it")
    if not subject.info.supported_dtypes(subject.device):
        raise _Nothing("OpInfo has it for CUDA only")
    if doubts_its_dtypes(subject.info):
        raise _Nothing("PyTorch itself expects its test_dtypes to fail for this entry")
    if not subject.is_claimed and dtype_name(subject.dtype) not in TRIED:
        raise _Nothing("OpInfo does not claim it, and its test_dtypes does not try it")
    claims = [(False, subject.is_claimed)]
    if subject.info.supports_autograd and (
        subject.dtype.is_floating_point or subject.dtype.is_complex
    ):
        claims.append((True, subject.is_backward_claimed))
    for backward, claimed in claims:
        yield from _claim(subject, claimed, backward=backward)


def _claim(subject: Subject, claimed: bool, *, backward: bool) -> Iterator[None]:
    call = subject.info.op
    what = "backward" if backward else "forward"
    try:
        samples = subject.samples(requires_grad=backward)
    except NoSamples:
        if claimed:
            raise
        return
    worked = worked_on_cpu = 0
    for index, sample in enumerate(samples):
        theirs = subject.on_cpu(call, sample, index)
        theirs = _gradients(theirs, sample) if backward else theirs
        worked_on_cpu += not theirs.raised
        if theirs.raised and claimed:
            continue
        try:
            ours = subject.on_device(call, sample, index)
        except Refused:
            return  # and so does not claim it
        subject.watch.at(index, on_device=True)
        ours = _gradients(ours, sample) if backward else ours
        if not ours.raised:
            worked += 1
        elif claimed:
            kernel = subject.declared(subject.called(call, sample, index))
            raise Wrong(
                f"OpInfo claims {what} in {dtype_name(subject.dtype)}{kernel and ' and ' + kernel}, but "
                f"{_named(index, sample)} raises {ours.result!r:.300}"
            )
        else:
            yield  # neither claimed nor working
            break
        yield
    if not claimed and worked and worked == len(samples):
        if worked_on_cpu == worked:
            raise _Nothing("OpInfo does not claim it, and it works on PyTorch's CPU too")
        if subject.declared(subject.called(call, samples[0], 0)):
            return
        raise Wrong(f"OpInfo does not claim {what} in {dtype_name(subject.dtype)}, and it works")


def _mixed_dtypes(subject: Subject) -> Iterator[None]:
    """The functional call with one operand in another dtype: as on the CPU.

    A device may compute what the CPU refuses, as others do for half activations beside float weights.  Then
    values are those of the same numbers in the operand's own dtype.
    """
    for index, sample, _ in _claimed_samples(subject):
        for operand in _mixable(sample):
            yield from _with_another_dtype(subject, sample, index, operand)


def _with_another_dtype(
    subject: Subject, sample: Any, index: int, operand: Tensor
) -> Iterator[None]:
    call = subject.info.op
    other = operand.to(_ANOTHER_DTYPE[operand.dtype])
    beside = mixed = _with_operand(sample, operand, other)
    name, ignored = _named(index, mixed), _OWN_AFFAIR

    def on_cpu(number: int) -> SampleOutcome:
        return subject.on_cpu(call, beside, index, number=number)

    theirs = on_cpu(0)
    ours = subject.on_device(call, mixed, index)
    by_chance = any(fnmatch(subject.name, each) for each in _MIXED_BY_CHANCE)
    if ours.raised and (theirs.raised or by_chance):
        yield
        return
    if theirs.raised:
        name += f", which the CPU refuses ({theirs.result!r:.200})"
        ignored |= {"dtype"}
        beside = _with_operand(sample, operand, other.to(operand.dtype))
        theirs = on_cpu(0)
    if not theirs.raised:
        # What is read as another dtype is far off; how a narrower operand rounds on the way differs.
        replace(subject, dtype=torch.bfloat16).compare(
            name, ours, theirs, ignored, on_cpu,
            lambda: subject.on_cpu(call, subject.widened(beside), index),
        )  # fmt: skip
        yield


def _mixable(sample: Any) -> list[Tensor]:
    """The first Tensor of each argument, where there are two Tensors or more to have different dtypes."""
    arguments = (sample.input, *sample.args, *sample.kwargs.values())
    each = [*map(tensors_in, arguments)]
    if sum(map(len, each)) < 2:
        return []
    return [found[0] for found in each if found and found[0].dtype in _ANOTHER_DTYPE]


def _with_operand(sample: Any, operand: Tensor, other: Tensor) -> Any:
    return sample.transform(lambda value: other if value is operand else value)


# ---- two runs, and none


def _determinism(subject: Subject) -> Iterator[None]:
    """Two calls with the same seed give the same bits."""
    if subject.has_undefined_values:
        raise _Nothing("its values are what the memory held")
    call = subject.info.op
    for index, sample, name in _claimed_samples(subject):
        one, other = (subject.on_device(call, sample, index) for _ in range(2))
        if one.raised or other.raised:
            if one.raised != other.raised:
                raise Wrong(
                    f"{name}: one of two runs raises {(one if one.raised else other).result!r:.300}"
                )
            continue
        mine, its = tensors_in(one.result), tensors_in(other.result)
        for number, (first, second) in enumerate(zip(mine, its, strict=True)):
            pairs = zip(
                *(strided_parts(each.detach()).values() for each in (first, second)), strict=True
            )
            if not all(_same_bits(*pair) for pair in pairs):
                raise Wrong(f"{name}: result {number} differs between two runs with the same seed")
        yield


def _same_bits(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    pair = [
        tensor.resolve_conj().resolve_neg().cpu().contiguous().clone() for tensor in (first, second)
    ]
    return torch.equal(*map(bytes_of, pair))


def _meta(subject: Subject) -> Iterator[None]:
    """Shape, dtype and strides of the results are those that PyTorch's device without data gives."""
    call = subject.info.op
    doubted = False
    for index, sample, name in _claimed_samples(subject):
        expected = subject.on_meta(call, sample, index)
        if expected.raised:
            continue
        ours = subject.on_device(call, sample, index)
        if ours.raised:
            continue
        if _layouts(ours) != _layouts(expected):
            theirs = subject.on_cpu(call, sample, index)
            if not theirs.raised and _layouts(theirs) == _layouts(ours):
                doubted = True  # then the meta function is wrong about every device
                continue
            raise Wrong(f"{name}: {_layouts(ours)} on the device, {_layouts(expected)} on meta")
        yield
    if doubted:
        raise _Nothing("PyTorch's meta function does not agree with its CPU either")


def _layouts(outcome: SampleOutcome) -> list[tuple[Any, ...]]:
    """Of each result: shape, dtype, and the strides of the dimensions that have more than one element."""
    leaves = tree_flatten(outcome.result)[0]
    return [
        (
            tuple(leaf.shape),
            dtype_name(leaf.dtype),
            tuple(
                stride
                for size, stride in zip(leaf.shape, leaf.stride(), strict=True)
                if size > 1 and leaf.numel()
            ),
        )
        for leaf in leaves
        if isinstance(leaf, Tensor)
    ]


_CHECKS: dict[Check, Callable[[Subject], Iterator[None]]] = {
    Check.FORWARD: _forward,
    Check.BACKWARD: _backward,
    Check.OUT: _out,
    Check.IN_PLACE: _in_place,
    Check.NONCONTIGUOUS: _noncontiguous,
    Check.EMPTY: _empty,
    Check.DTYPES: _dtypes,
    Check.MIXED_DTYPES: _mixed_dtypes,
    Check.DETERMINISM: _determinism,
    Check.META: _meta,
    Check.BOUNDARY: _boundary,
}
