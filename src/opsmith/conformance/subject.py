"""One entry of OpInfo in one dtype on one device: its samples, its calls, and what counts as a difference.

The checks (:mod:`checks`) are made of these.  It starts no process and knows no time limit; the
``Watch`` is told which sample is about to run where, should it never return.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.testing._comparison import default_tolerances

from opsmith.conformance.comparison import (
    Outcome,
    Twins,
    differences,
    equal,
    run,
    seed,
    tensors_in,
    widened,
)
from opsmith.conformance.database import dtype_name, samples_of, tolerances
from opsmith.description import SCALAR_TYPE_OF
from opsmith.plan import Plan, Route
from opsmith.runtime.calls import count_calls

UNDEFINED_VALUES = ("empty", "empty_*", "new_empty*")
"""Entries whose results hold what the memory held."""

CPU_ARGUMENTS = ("tensor_split",)
"""Entries of which PyTorch wants all Tensors but the first on the CPU, and says so."""

_REFUSING = {Route.DENIED, Route.MISSING}


class Watch(Protocol):
    """Told what is about to run, for whoever waits for it in vain."""

    def at(self, sample: int, *, on_device: bool) -> None: ...


class Wrong(Exception):
    """The device is not as it should be; the message says how."""


class NoSamples(Exception):
    """PyTorch cannot make samples; the message says why."""


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

    # ---- samples

    def samples(self, *, requires_grad: bool = False) -> list[Any]:
        """Those that a device with nothing but strided Tensors can be asked for.

        Raises :class:`NoSamples`.
        """
        if requires_grad not in self._samples:
            self.watch.at(0, on_device=False)
            seed(self.device, self.number)  # some are drawn from the global generator
            try:
                all_samples = samples_of(self.info, self.dtype, requires_grad)
                found = [*itertools.islice(all_samples, self.limit or None)]
            except Exception as error:
                raise NoSamples(f"PyTorch makes no samples of it: {error!r:.300}") from None
            self._samples[requires_grad] = [sample for sample in found if _is_strided(sample)]
        return self._samples[requires_grad]

    # ---- calls

    def on_cpu(
        self, call: Any, sample: Any, index: int, *, number: int = 0, **keywords: Any
    ) -> Outcome:
        """What ``call`` does with copies of the sample's arguments; ``number`` seeds what it draws."""
        self.watch.at(index, on_device=False)
        arguments, given = Twins("cpu").of(_call_of(sample, keywords))
        return run("cpu", call, arguments, given, number=number)

    def on_device(self, call: Any, sample: Any, index: int, **keywords: Any) -> Outcome:
        """The same on the device.  Raises :class:`Refused` where the description refuses the call."""
        outcome = self._on(self.device, call, sample, index, keywords)
        if isinstance(outcome.result, NotImplementedError):
            refused = self.refused(self.called(call, sample, index, **keywords))
            if refused:
                raise Refused(refused)
        return outcome

    def on_meta(self, call: Any, sample: Any, index: int) -> Outcome:
        """The same on PyTorch's device without data."""
        return self._on("meta", call, sample, index, {})

    def _on(
        self, device: str, call: Any, sample: Any, index: int, keywords: dict[str, Any]
    ) -> Outcome:
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
        with _default_device(self.device, sample), count_calls() as counts:
            run(self.device, call, arguments, given)
        names = frozenset(name for name in counts.by_operator if name in self.plan.by_name)
        self.operators |= names
        return names

    # ---- judgement

    def compare(
        self,
        what: str,
        ours: Outcome,
        theirs: Outcome,
        ignored: frozenset[str],
        again: Callable[[int], Outcome],
    ) -> None:
        """Raises :class:`Wrong` for the first difference that counts.

        ``again`` makes the CPU's call with another seed: where its values are then others, they are
        random, and none can be expected of the device.
        """
        for aspect, text in differences(ours, theirs, self.is_rounding):
            kind = aspect.removeprefix("argument ")
            if kind in ignored or kind == "rounding":
                continue
            if kind == "values" and (self.has_undefined_values or _differ(theirs, again(1))):
                continue
            raise Wrong(f"{what}: {text}")

    @cached_property
    def has_undefined_values(self) -> bool:
        """Whether its results hold what the memory held."""
        return any(fnmatch(self.info.name, name) for name in UNDEFINED_VALUES)

    @cached_property
    def _tolerances(self) -> tuple[float, float]:
        return tolerances(self.info, self.dtype)

    def is_rounding(self, mine: Tensor, other: Tensor) -> bool:
        """Whether PyTorch's own tests of the entry would let the difference pass; both are on the CPU."""
        if not (other.is_floating_point() or other.is_complex()):
            return False
        relative, absolute = self._tolerances
        # Results may have another dtype than the samples.
        default_relative, default_absolute = default_tolerances(other.dtype)
        close = torch.isclose(
            widened(mine),
            widened(other),
            rtol=max(relative, default_relative),
            atol=max(absolute, default_absolute),
            equal_nan=True,
        )
        return bool(close.all())

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
            limited = entry.kernel is not None and entry.kernel.dtypes and not self._takes(name)
            if limited and entry.other_dtypes in _REFUSING:
                return f"the description refuses `{name}` in {self._scalar_type}: {entry.refusal}"
        return ""

    def declared(self, operators: frozenset[str]) -> str:
        """Which kernel of ``operators`` says that it takes this dtype, or nothing."""
        for name in sorted(operators):
            kernel = self.plan.by_name[name].kernel
            if kernel is not None and self._takes(name):
                return f"`{kernel.symbol}` ({kernel.location}) declares {self._scalar_type}"
        return ""

    def _takes(self, name: str) -> bool:
        kernel = self.plan.by_name[name].kernel
        return kernel is not None and any(self._scalar_type in taken for _, taken in kernel.dtypes)

    @cached_property
    def _scalar_type(self) -> str:
        return SCALAR_TYPE_OF.get(dtype_name(self.dtype), dtype_name(self.dtype))


def _call_of(sample: Any, keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return (sample.input, *sample.args), {**sample.kwargs, **keywords}


def _is_strided(sample: Any) -> bool:
    given = tensors_in((sample.input, sample.args, sample.kwargs))
    return all(tensor.layout == torch.strided and not tensor.is_quantized for tensor in given)


def _default_device(device: str, sample: Any) -> AbstractContextManager[Any]:
    """Factories that are told no device take the default one."""
    told = tensors_in((sample.input, sample.args, sample.kwargs)) or "device" in sample.kwargs
    return nullcontext() if told else torch.device(device)


def _differ(one: Outcome, other: Outcome) -> bool:
    return one.raised != other.raised or any(
        mine.shape != its.shape or not equal(mine.detach(), its.detach())
        for mine, its in zip(one.tensors, other.tensors, strict=False)
    )
