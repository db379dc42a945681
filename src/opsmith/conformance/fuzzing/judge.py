"""A program on the device beside the same program on the CPU: the first thing in which they differ.

After each step everything is compared that a user could tell apart (:mod:`comparison`), and after the
last one every tensor of the program.  Where floating-point numbers differ by no more than rounding, the
device goes on with the CPU's, so that a difference is found where it arises.  What the CPU itself leaves
open is in :mod:`undefined`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.conformance.comparison import (
    SampleOutcome,
    bytes_of,
    differences,
    equal,
    is_strided,
    relations,
    shares_elements,
    tensor_differences,
    tensors_in,
    widened,
)
from opsmith.conformance.fuzzing.execution import Execution, apart, written_by
from opsmith.conformance.fuzzing.program import Program, Ref, Step
from opsmith.conformance.fuzzing.undefined import is_undefined
from opsmith.conformance.subject import WIDEST, Refused, Watch
from opsmith.schema import torch_names
from opsmith.schema.torch_names import default_tolerances

# Bytes are compared here as numbers; a view of what nobody else has is as good as none; and nobody asks by
# which operator a gradient came about.
_NOT_TOLD = {"rounding", "bytes around", "_is_view", "grad_fn"}
_LAYOUT = ("stride", "storage_offset")
# PyTorch's errors, on any device, when autograd is asked of one of several views that was written to; the
# second is of a conjugated one, where what was written has no gradient.
_FORBIDDEN_VIEW = (
    "its base or another view of its base has been modified inplace",
    "new_fn INTERNAL ASSERT FAILED",
)
# Sums of a few hundred numbers in another order, and functions a few units in the last place off.
_FACTOR = 8


@dataclass(frozen=True)
class Difference:
    """A difference after a step; ``operator`` and ``kind`` are its class."""

    operator: str
    kind: str
    text: str
    step: int


class Unwatched:
    """Nobody waits for a step that does not return."""

    def at(self, sample: int, *, on_device: bool) -> None:
        pass


def first_difference(
    program: Program, device: str, watch: Watch | None = None, refused: Collection[str] = ()
) -> Difference | None:
    """The first difference between ``program`` on ``device`` and on the CPU.

    Raises :class:`~opsmith.conformance.subject.Refused` where the program comes to one of the operators
    ``refused``, which the description refuses.
    """
    watch = watch or Unwatched()
    found = _Comparison(program, device, watch, refused).run()
    if found is not None and found.kind.endswith("elsewhere"):
        # All tensors are compared after the last step only, since that takes long: now after each.
        return _Comparison(program, device, watch, refused, thorough=True).run()
    return found


class _Comparison:
    def __init__(
        self,
        program: Program,
        device: str,
        watch: Watch,
        refused: Collection[str],
        *,
        thorough: bool = False,
    ) -> None:
        self.program, self.device, self.watch, self.refused = program, device, watch, refused
        self.thorough = thorough
        self.ours = Execution.of(program, device)
        self.theirs = Execution.of(program, "cpu")
        leaves = (self.theirs.values[name] for name in program.leaves)
        storages = [leaf.untyped_storage() for leaf in leaves]
        self.storages = {storage._cdata: storage.nbytes() for storage in storages}
        self.apart_around: set[int] = (
            set()
        )  # storages, where the CPU leaves open what it wrote there
        self.at = 0

    def run(self) -> Difference | None:
        for at, step in enumerate(self.program.steps):
            self.at = at
            self.watch.at(self.at, on_device=False)
            theirs = self.theirs.run(step)
            self.watch.at(self.at, on_device=True)
            ours = self._on_device(step)
            try:
                for kind, text in self._differences(step, ours, theirs):
                    return Difference(step.operator, kind, text, self.at)
            except Exception as error:  # a result that cannot even be read
                if is_undefined(step, "unreadable", ours, theirs) or _is_forbidden_view(error):
                    return None
                return Difference(step.operator, "unreadable", f"raises {error!r:.300}", self.at)
            if not self._align(ours, theirs):
                return None
            if self.thorough and (found := self._elsewhere()):
                if self._is_open_elsewhere(step, found, ours, theirs):
                    return None
                return found
        return self._elsewhere()

    def _on_device(self, step: Step) -> SampleOutcome:
        outcome = self.ours.run(step)
        try:
            getattr(torch, self.device).synchronize()
        except RuntimeError as error:
            outcome.result = error
        if isinstance(outcome.result, NotImplementedError):
            for word in str(outcome.result).replace("`", " ").split():
                if word.strip(".,:").removeprefix("aten::") in self.refused:
                    raise Refused(str(outcome.result))
        return outcome

    # ---- one step

    def _differences(
        self, step: Step, ours: SampleOutcome, theirs: SampleOutcome
    ) -> Iterator[tuple[str, str]]:
        if ours.raised and theirs.raised:
            if (
                type(ours.result) is not type(theirs.result)
                and not _lacks_a_dtype(theirs)
                and not is_undefined(step, "type of error", ours, theirs)
            ):
                yield (
                    "type of error",
                    f"raises {ours.result!r:.300}, the CPU {theirs.result!r:.300}",
                )
            yield from self._after_a_raise(step, ours, theirs)
            return
        if ours.raised or theirs.raised:
            kind = "error only on the device" if ours.raised else "error only on the CPU"
            open_ = is_undefined(step, kind, ours, theirs) or self._overwrites(step)
            if not _lacks_a_dtype(theirs) and not open_:
                yield kind, f"raises {(ours if ours.raised else theirs).result!r:.400}"
            return
        for kind, text in differences(ours, theirs, is_rounding):
            plain = kind.removeprefix("argument ")
            if plain in _NOT_TOLD:
                continue
            if is_undefined(step, plain, ours, theirs):
                continue
            if plain == "aliasing" and _shared(ours) == _shared(theirs):
                continue
            if plain == "values" and (
                self._is_as_near(ours, theirs) or self._is_as_apart(step, ours)
            ):
                continue
            if plain in {"values", "shape"} and self._is_wrong(step, theirs):
                continue
            yield kind, text
        for kind, text in self._bits(ours, theirs):
            open_ = is_undefined(step, kind, ours, theirs) or self._is_as_apart(step, ours)
            if not open_ and not self._is_wrong(step, theirs):
                yield kind, text

    def _is_open_elsewhere(
        self, step: Step, found: Difference, ours: SampleOutcome, theirs: SampleOutcome
    ) -> bool:
        """Whether ``step`` has left other values in memory that other tensors share, and may.

        The program ends there: nobody gives the device the CPU's numbers in tensors that no step names.
        """
        return found.kind.startswith("values") and (
            is_undefined(step, "values", ours, theirs)
            or (
                self._overwrites(step)
                and (self._is_as_apart(step, ours) or self._is_wrong(step, theirs))
            )
        )

    def _overwrites(self, step: Step) -> bool:
        """Whether what ``step`` writes shares memory with what it reads.

        PyTorch refuses only some of these calls; in the others its CPU computes on what it overwrites.
        """
        written = written_by(step)
        memory = {self._memory_of(ref) for ref in written}
        read = {ref for ref in step.refs() if ref not in written}
        shared = {ref for ref in (*read, *written) if self._memory_of(ref) in memory}
        return len(shared) > len(written) or len([*step.refs()]) > len({*step.refs()})

    def _is_as_apart(self, step: Step, ours: SampleOutcome) -> bool:
        """Whether the device gives what the call had to give, though the CPU does not.

        That is where it overwrites what it reads, or takes an ``out`` for contiguous without a look.
        """
        if not self._overwrites(step) and not written_by(step):
            return False
        cpu = Execution.of(self.program, "cpu")
        for earlier in self.program.steps[: self.at]:
            cpu.run(earlier)
        right = cpu.run(apart(step, cpu))
        return not right.raised and all(
            mine.shape == best.shape and (equal(mine.cpu(), best) or is_rounding(mine.cpu(), best))
            for mine, best in zip(tensors_in(ours.result), tensors_in(right.result), strict=True)
        )

    def _is_wrong(self, step: Step, theirs: SampleOutcome) -> bool:
        """Whether the CPU has computed on what it overwrites, or written where ``out`` is not.

        An operand without elements that is ``out`` as well has whatever the memory held, once it is resized.
        """
        overwrites = self._overwrites(step)
        if overwrites and any(theirs.resized):
            return True
        return (overwrites or bool(written_by(step))) and not self._is_as_apart(step, theirs)

    def _memory_of(self, ref: Ref) -> int:
        tensor = self.theirs.value(ref)
        return tensor.untyped_storage()._cdata if isinstance(tensor, Tensor) else 0

    def _after_a_raise(
        self, step: Step, ours: SampleOutcome, theirs: SampleOutcome
    ) -> Iterator[tuple[str, str]]:
        """The changes of a call to its operands before it raised, where the CPU leaves them as they were."""
        found = [
            (f"{kind} after a raise", text)
            for index, (mine, other) in enumerate(zip(ours.tensors, theirs.tensors, strict=True))
            for kind, text in _told_apart(f"argument {index}", mine, other)
            if kind not in _NOT_TOLD
        ]
        if ours.versions != theirs.versions and any(ours.versions):
            text = f"versions grew by {ours.versions}, on the CPU by {theirs.versions}"
            found.append(("versions after a raise", text))
        if found and not self._is_untouched(step, ours) and self._is_untouched(step, theirs):
            yield from found

    def _is_untouched(self, step: Step, outcome: SampleOutcome) -> bool:
        """Whether the operands are what they were before ``step``."""
        before = Execution.of(self.program, outcome.device)
        for earlier in self.program.steps[: self.at]:
            before.run(earlier)
        operands = tensors_in([before.value(ref) for ref in step.refs()])
        return len(operands) == len(outcome.tensors) and all(
            each.shape == old.shape
            and each.stride() == old.stride()
            and _same_bits(each.cpu(), old.cpu())
            for each, old in zip(outcome.tensors, operands, strict=True)
        )

    def _bits(self, ours: SampleOutcome, theirs: SampleOutcome) -> Iterator[tuple[str, str]]:
        """Zeros of the other sign, and what was written beside a tensor."""
        for index, (mine, other) in enumerate(zip(ours.tensors, theirs.tensors, strict=True)):
            if not is_strided(other):
                continue
            if _signs_of_zero_differ(mine, other):
                yield (
                    "sign of zero",
                    f"tensor {index} of arguments and results has zeros of another sign",
                )
            storage = other.untyped_storage()._cdata
            if (
                index < len(ours.versions)
                and storage not in self.apart_around
                and self._is_of_a_leaf(other)
                and not _same_around(mine, other)
            ):
                self.apart_around.add(storage)
                yield "bytes around", f"the elements around argument {index} differ"

    def _is_of_a_leaf(self, tensor: Tensor) -> bool:
        """Whether a leaf owns its storage: what a kernel leaves in that of a result, or in one that it has
        made larger, is its own affair.
        """
        storage = tensor.untyped_storage()
        return self.storages.get(storage._cdata) == storage.nbytes()

    def _is_as_near(self, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
        """Whether the device is as near to the exact values as the CPU, as for OpInfo's samples."""
        exact = self._exact
        if exact is None or len(exact.tensors) != len(theirs.tensors):
            return False
        return all(
            _is_as_near(mine.detach().cpu(), other.detach(), best.detach())
            for mine, other, best in zip(ours.tensors, theirs.tensors, exact.tensors, strict=True)
        )

    @property
    def _exact(self) -> SampleOutcome | None:
        """This step on the CPU where everything is computed in the widest dtypes."""
        leaves = {
            name: replace(leaf, dtype=WIDEST.get(leaf.dtype, leaf.dtype))
            for name, leaf in self.program.leaves.items()
        }
        steps = [_wide(step) for step in self.program.steps[: self.at + 1]]
        self.watch.at(self.at, on_device=False)
        execution = Execution.of(Program(leaves, tuple(steps)), "cpu")
        outcome = None
        for step in steps:
            try:
                outcome = execution.run(step)
            except (KeyError, TypeError, IndexError):  # of a step before, which raises so
                return None
        return None if outcome is None or outcome.raised else outcome

    # ---- between steps

    def _align(self, ours: SampleOutcome, theirs: SampleOutcome) -> bool:
        """Gives the device the CPU's numbers and versions where its own are allowed to be other ones.

        Returns whether the program can go on: not where a call has raised on one of them only, or has
        left the operands in another state before.
        """
        if ours.raised != theirs.raised:
            return False
        for mine, other in zip(ours.tensors, theirs.tensors, strict=True):
            if any(
                getattr(mine, each) != getattr(other, each)
                for each in ("shape", "dtype", "requires_grad")
            ) or any(getattr(mine, each)() != getattr(other, each)() for each in _LAYOUT):
                return False
            if mine._version != other._version:
                torch_names._unsafe_set_version_counter((mine,), (other._version,))
            if is_strided(other):
                host = mine.detach().cpu()
                if not _same_bits(host, other.detach()) and not _give(other.detach(), mine.data):
                    return False
        return True

    def _elsewhere(self) -> Difference | None:
        """A difference in any tensor of the program, though it is not one of the last step's."""
        for name, value in self.theirs.values.items():
            mine = self.ours.values.get(name)
            pairs = zip(tensors_in(mine), tensors_in(value), strict=False)
            for ours, theirs in pairs:
                try:
                    found = [*_told_apart(name, ours, theirs)]
                except RuntimeError as error:
                    if not _is_forbidden_view(error):
                        raise
                    continue
                if ours._version != theirs._version:
                    text = f"{name}._version is {ours._version}, on the CPU {theirs._version}"
                    found.append(("version", text))
                for kind, text in found:
                    if kind not in _NOT_TOLD:
                        operator = self.program.steps[self.at].operator
                        return Difference(operator, f"{kind} elsewhere", text, self.at)
        return None


def _is_forbidden_view(error: Exception) -> bool:
    return any(text in str(error) for text in _FORBIDDEN_VIEW)


def _give(other: Tensor, mine: Tensor) -> bool:
    """Gives ``mine`` the elements of ``other``, which lies in its memory alike; whether it could."""
    if not shares_elements(other):
        mine.copy_(other)
        return True
    theirs, ours = other.untyped_storage(), mine.untyped_storage()
    if theirs.nbytes() != ours.nbytes():
        return False
    bytes_of(mine).copy_(bytes_of(other))
    return True


def _shared(outcome: SampleOutcome) -> set[tuple[str, int, int]]:
    """Which tensors are the same, and which share memory: which one is whose view is nobody's affair."""
    return {relation for relation in relations(outcome.tensors) if relation[0] != "view of"}


def _lacks_a_dtype(theirs: SampleOutcome) -> bool:
    """Whether the CPU has no kernel for a dtype: a device may have one."""
    text = str(theirs.result)
    return theirs.raised and ("not implemented for" in text or "is not supported on CPU" in text)


def _told_apart(what: str, mine: Tensor, other: Tensor) -> Iterator[tuple[str, str]]:
    yield from tensor_differences(what, mine.device.type, mine, other, is_rounding)


def _wide(step: Step) -> Step:
    def wide(value: Any) -> Any:
        return WIDEST.get(value, value) if isinstance(value, torch.dtype) else value

    return replace(
        step,
        arguments=tuple(map(wide, step.arguments)),
        keywords=tuple((key, wide(value)) for key, value in step.keywords),
    )


# ---- numbers


def is_rounding(mine: Tensor, other: Tensor) -> bool:
    """Whether they differ by no more than rounding; both are on the CPU."""
    if not _has_rounding(other) or mine.shape != other.shape:
        return False
    return bool(_close(mine, other).all())


def _close(mine: Tensor, other: Tensor) -> Tensor:
    relative, absolute = default_tolerances(other.dtype)
    mine, other = widened(mine), widened(other)
    near = torch.isclose(mine, other, _FACTOR * relative, _FACTOR * absolute, equal_nan=True)
    if other.is_complex():
        # C leaves open which part of a complex infinity or NaN is which.
        near |= ~mine.isfinite() & ~other.isfinite()
    return near


def _is_as_near(mine: Tensor, other: Tensor, best: Tensor) -> bool:
    if equal(mine, other):
        return True
    if not _has_rounding(other) or best.shape != other.shape:
        return False
    best = widened(best)
    relative, absolute = default_tolerances(other.dtype)
    error = (widened(mine) - best).abs()
    theirs = (widened(other) - best).abs().nan_to_num(0, 0, 0).max()
    allowed = 2 * theirs + _FACTOR * (relative * best.abs() + absolute)
    exact = widened(mine) == best  # infinite numbers too, which are no distance from each other
    return bool((_close(mine, other) | exact | (error <= allowed)).all())


def _has_rounding(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _same_bits(mine: Tensor, other: Tensor) -> bool:
    if mine.dtype is not other.dtype or other.is_complex():
        mine, other = widened(mine), widened(other)
    if other.is_complex():
        mine, other = (torch.view_as_real(each.resolve_conj()) for each in (mine, other))
    return torch.equal(mine, other) and not _signs_of_zero_differ(mine, other)


def _signs_of_zero_differ(mine: Tensor, other: Tensor) -> bool:
    if not _has_rounding(other) or other.numel() == 0:
        return False
    if other.is_complex():
        return False  # products of complex numbers have zeros of any sign
    mine, other = mine.detach().cpu(), other.detach()
    if torch.equal(mine.signbit(), other.signbit()):
        return False
    zero = (other == 0) & (mine == 0)
    return bool((zero & (mine.signbit() != other.signbit())).any())


def _same_around(mine: Tensor, other: Tensor) -> bool:
    """Whether storages of the same size hold the same where the tensors do not reach."""
    size = other.untyped_storage().nbytes()
    if size == other.numel() * other.element_size() or size != mine.untyped_storage().nbytes():
        return True
    mine, other = mine.detach(), other.detach()
    around = _around(other)
    mine, other = _storage(mine)[around], _storage(other)[around]
    return equal(mine, other) or is_rounding(mine, other)


def _storage(tensor: Tensor) -> Tensor:
    raw = bytes_of(tensor).cpu()
    return raw[: raw.numel() // tensor.element_size() * tensor.element_size()].view(tensor.dtype)


def _around(tensor: Tensor) -> Tensor:
    """Which elements of its storage ``tensor`` does not reach."""
    around = torch.ones(
        tensor.untyped_storage().nbytes() // tensor.element_size(), dtype=torch.bool
    )
    around.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(False)
    return around
