"""One entry of OpInfo in one dtype on one device: its samples, its calls, and what counts as a difference.

The checks (:mod:`checks`) are made of these.  It starts no process and knows no time limit; the
``Watch`` is told which sample is about to run where, should it never return.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from opsmith.conformance.comparison import (
    SampleOutcome,
    Twins,
    differences,
    equal,
    run,
    seed,
    tensors_in,
    widened,
)
from opsmith.conformance.database import dtype_name, samples_of, tolerances
from opsmith.description import SCALAR_TYPE_OF, Kernel
from opsmith.plan import Entry, Plan, Route
from opsmith.runtime.records.calls import record_calls
from opsmith.schema.torch_names import default_tolerances

UNDEFINED_VALUES = ("empty", "empty_*", "new_empty*")
"""Entries whose results hold what the memory held."""

UNDEFINED_WHEN_EMPTY = (
    "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss",
    "resize_",
    "resize_as_",
)
"""Entries whose results hold what the memory held where there are no elements to begin with.

The losses read, on the CPU, memory that is not theirs.
"""

CPU_ARGUMENTS = ("tensor_split",)
"""Entries of which PyTorch wants all Tensors but the first on the CPU, and says so."""

_REFUSING = {Route.DENIED, Route.MISSING}


class Watch(Protocol):
    """Told what is about to run, for whoever waits for it in vain."""

    def at(self, sample: int, *, on_device: bool) -> None: ...


class Wrong(Exception):
    """The device is not as it should be; the message says how."""


class NoSamples(Exception):
    """There are no samples for the device; the message says why."""


# Where few values are drawn, many seeds give the same ones.
_OTHER_SEEDS = range(1, 17)


class Refused(Exception):
    """The description itself refuses the call; the message says where."""


@dataclass
class Subject:
    """One entry in one dtype on one device; ``limit`` is the most samples to run, 0: all.

    ``number`` is the seed of the samples.  ``operators`` gathers the ATen operators that the device was
    asked for.
    """

    name: str
    info: Any
    dtype: torch.dtype
    device: str
    plan: Plan
    limit: int
    number: int
    watch: Watch
    operators: set[str] = field(default_factory=set)
    _samples: dict[bool, list[Any]] = field(default_factory=dict)
    _others: dict[torch.dtype, list[Any]] = field(default_factory=dict)

    # ---- samples

    def samples(self, *, requires_grad: bool = False) -> list[Any]:
        """Raises :class:`NoSamples`."""
        if requires_grad not in self._samples:
            self.watch.at(0, on_device=False)
            seed(self.device, self.number)  # some are drawn from the global generator
            try:
                all_samples = samples_of(self.info, self.dtype, requires_grad)
                self._samples[requires_grad] = [*itertools.islice(all_samples, self.limit or None)]
            except Exception as error:
                raise NoSamples(f"PyTorch makes no samples of it: {error!r:.300}") from None
        return self._samples[requires_grad]

    def samples_in(self, dtype: torch.dtype) -> list[Any]:
        """The samples of another dtype; none where OpInfo does not claim it."""
        if dtype not in self._others:
            claimed = dtype in self.info.supported_dtypes(self.device)
            other = replace(self, dtype=dtype, _samples={}, _others={})
            try:
                self._others[dtype] = other.samples() if claimed else []
            except NoSamples:
                self._others[dtype] = []
        return self._others[dtype]

    # ---- calls

    def on_cpu(
        self, call: Any, sample: Any, index: int, *, number: int = 0, **keywords: Any
    ) -> SampleOutcome:
        """The outcome of ``call`` with copies of the sample's arguments; ``number`` seeds what it draws."""
        self.watch.at(index, on_device=False)
        arguments, given = Twins("cpu").of(_call_of(sample, keywords))
        return run("cpu", call, arguments, given, number=number)

    def on_device(self, call: Any, sample: Any, index: int, **keywords: Any) -> SampleOutcome:
        """The same on the device.  Raises :class:`Refused` where the description refuses the call."""
        outcome = self._on(self.device, call, sample, index, keywords)
        if isinstance(outcome.result, NotImplementedError):
            refused = self.refused(self.called(call, sample, index, **keywords))
            if refused:
                raise Refused(refused)
        return outcome

    def on_meta(self, call: Any, sample: Any, index: int) -> SampleOutcome:
        """The same on PyTorch's device without data."""
        return self._on("meta", call, sample, index, {})

    def _on(
        self, device: str, call: Any, sample: Any, index: int, keywords: dict[str, Any]
    ) -> SampleOutcome:
        self.watch.at(index, on_device=device == self.device)
        stays = tuple(tensors_in(sample.args)) if self.name in CPU_ARGUMENTS else ()
        arguments, given = Twins(device, stays).of(_call_of(sample, keywords))
        with _default_device(device, sample):
            outcome = run(device, call, arguments, given)
        if device == self.device:
            try:
                getattr(
                    torch, device
                ).synchronize()  # what fails late fails here, and not on the CPU
            except RuntimeError as error:
                outcome.result = error
        return outcome

    def called(self, call: Any, sample: Any, index: int, **keywords: Any) -> frozenset[str]:
        """The ATen operators that ``call`` calls on the device."""
        stays = tuple(tensors_in(sample.args)) if self.name in CPU_ARGUMENTS else ()
        arguments, given = Twins(self.device, stays).of(_call_of(sample, keywords))
        self.watch.at(index, on_device=True)
        with _default_device(self.device, sample), record_calls() as block:
            run(self.device, call, arguments, given)
        names = frozenset(
            call.operator
            for call in block.calls.tree
            if call.on_device and call.operator in self.plan.by_name
        )
        self.operators |= names
        return names

    # ---- judgement

    def compare(
        self,
        what: str,
        ours: SampleOutcome,
        theirs: SampleOutcome,
        ignored: frozenset[str],
        again: Callable[[int], SampleOutcome],
        exactly: Callable[[], SampleOutcome],
    ) -> None:
        """Raises :class:`Wrong` for the first difference that counts.

        Values that differ by more than rounding pass where the device is as near to the exact ones as the
        CPU is: ``exactly`` makes the CPU's call in the widest dtypes.  And where they are random: with some
        other seed ``again`` makes others of them on the CPU too.
        """
        for aspect, text in differences(ours, theirs, self._is_rounding):
            kind = aspect.removeprefix("argument ")
            if kind in ignored or kind == "rounding":
                continue
            if kind == "values" and (
                self.has_undefined_values
                or self._is_as_near(ours, theirs, exactly())
                or any(_differ(theirs, again(number)) for number in _OTHER_SEEDS)
            ):
                continue
            raise Wrong(f"{what}: {text}")

    def widened(self, sample: Any) -> Any:
        """The sample in the widest dtypes, in which the CPU comes nearest to the exact values."""

        def wide(value: Any) -> Any:
            if isinstance(value, Tensor):
                return (
                    value.detach()
                    .to(WIDEST.get(value.dtype, value.dtype))
                    .requires_grad_(value.requires_grad)
                )
            return WIDEST.get(value, value)

        return sample.transform(wide)

    @cached_property
    def has_undefined_values(self) -> bool:
        """Whether its results hold what the memory held."""
        return any(fnmatch(self.info.name, name) for name in UNDEFINED_VALUES)

    @cached_property
    def _tolerances(self) -> tuple[float, float]:
        return tolerances(self.info, self.dtype)

    def _is_rounding(self, mine: Tensor, other: Tensor) -> bool:
        """Whether PyTorch's own tests of the entry would let the difference pass; both are on the CPU."""
        return _has_rounding(other) and bool(self._close(mine, other).all())

    def _close(self, mine: Tensor, other: Tensor) -> Tensor:
        relative, absolute = self._tolerances_for(other.dtype)
        return torch.isclose(
            widened(mine), widened(other), rtol=relative, atol=absolute, equal_nan=True
        )

    def _tolerances_for(self, dtype: torch.dtype) -> tuple[float, float]:
        """Those of the entry, or the default of ``dtype``, that of a result, where that is more."""
        pairs = zip(self._tolerances, default_tolerances(dtype), strict=True)
        relative, absolute = (max(pair) for pair in pairs)
        return relative, absolute

    def _is_as_near(self, ours: SampleOutcome, theirs: SampleOutcome, exact: SampleOutcome) -> bool:
        """Whether each element is close to the CPU's, or its error at most twice the CPU's.

        A device rounds in other places than the CPU: its decompositions have other steps, its sums another
        order.  Where much cancels, as in gradients of low precision, both are then far from the exact
        value and from each other, and a tolerance relative to the CPU's value says nothing.  PyTorch
        judges its compilers in the same way (torch._dynamo.utils.same, with the factors 2 to 10).
        """
        if exact.raised or not len(ours.tensors) == len(theirs.tensors) == len(exact.tensors):
            return False
        for mine, other, best in zip(ours.tensors, theirs.tensors, exact.tensors, strict=True):
            mine, other, best = mine.detach().cpu(), other.detach(), best.detach()
            if equal(mine, other):
                continue
            if not _has_rounding(other) or best.shape != other.shape:
                return False
            best = widened(best)
            relative, absolute = self._tolerances_for(other.dtype)
            error = (widened(mine) - best).abs()
            # The largest of the CPU's; those that overflow say nothing.
            theirs_error = (widened(other) - best).abs().nan_to_num(0, 0, 0).max()
            allowed = 2 * theirs_error + relative * best.abs() + absolute
            if not bool((self._close(mine, other) | (error <= allowed)).all()):
                return False
        return True

    # ---- claims

    @property
    def is_claimed(self) -> bool:
        """Whether OpInfo says that it works in this dtype."""
        return self.dtype in self.info.supported_dtypes(self.device)

    @property
    def is_backward_claimed(self) -> bool:
        """Whether OpInfo says that its gradient works in this dtype."""
        return self.dtype in self.info.supported_backward_dtypes(self.device)

    def refused(self, operators: frozenset[str]) -> str:
        """Which of ``operators`` the description refuses in this dtype, and why; or nothing."""
        for name in sorted(operators):
            entry = self.plan.by_name[name]
            if entry.route in _REFUSING:
                return f"the description refuses `{name}`: {entry.refusal or entry.why}"
            # Where any kernel takes all dtypes, nothing is left to others.
            if (
                entry.other_dtypes in _REFUSING
                and not self._taking(name)
                and all(map(_limits_dtypes, entry.chain))
            ):
                return f"the description refuses `{name}` in {self._scalar_type}: {entry.refusal}"
        return ""

    def declared(self, operators: frozenset[str]) -> str:
        """Which kernel of ``operators`` says that it takes this dtype, or nothing."""
        for name in sorted(operators):
            if kernel := self._taking(name):
                return f"`{kernel.symbol}` ({kernel.location}) declares {self._scalar_type}"
        return ""

    def _taking(self, name: str) -> Kernel | None:
        """The kernel of the operator that declares this dtype: the first, or one behind it."""
        for link in self.plan.by_name[name].chain:
            kernel = link.kernel
            declared = [taken for _, taken in kernel.dtypes] if kernel else []
            declared += [meta.dtypes for meta in kernel.arg_meta] if kernel else []
            if any(self._scalar_type in taken for taken in declared):
                return kernel
        return None

    @cached_property
    def _scalar_type(self) -> str:
        return SCALAR_TYPE_OF.get(dtype_name(self.dtype), dtype_name(self.dtype))


def _limits_dtypes(link: Entry) -> bool:
    return link.kernel is None or bool(link.kernel.dtypes or link.kernel.arg_meta)


WIDEST: dict[Any, torch.dtype] = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
"""The dtypes in which the CPU computes what comes nearest to exact values."""


def _has_rounding(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _call_of(sample: Any, keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return (sample.input, *sample.args), {**sample.kwargs, **keywords}


def _default_device(device: str, sample: Any) -> AbstractContextManager[Any]:
    """Factories that are told no device take the default one."""
    told = tensors_in((sample.input, sample.args, sample.kwargs)) or "device" in sample.kwargs
    return nullcontext() if told else torch.device(device)


def _differ(one: SampleOutcome, other: SampleOutcome) -> bool:
    return one.raised != other.raised or any(
        mine.shape != its.shape or not equal(mine.detach(), its.detach())
        for mine, its in zip(one.tensors, other.tensors, strict=False)
    )
