"""One call on the device against the same call on the CPU: everything that a user could tell apart.

Values are only the first of it.  A fallback must also keep strides, flags and dtypes, which result
is a view of which argument, what was written and how often, and what autograd knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from loaded import DEVICE
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map


@dataclass
class Twins:
    """Copies of a call's arguments on ``device``, with the same views of the same storages."""

    device: str
    _storages: dict[int, Tensor] = field(default_factory=dict)
    _tensors: dict[int, Tensor] = field(default_factory=dict)
    _alive: list[Tensor] = field(default_factory=list)

    def of(self, value: Any) -> Any:
        """The tensors in ``value`` copied, and devices that it names replaced."""
        return tree_map(self._leaf, value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self.device)
        return self.device if isinstance(value, str) and value == "cpu" else value

    def _tensor(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._tensors:
            self._alive.append(tensor)  # an id is one's own only during one's life
            twin = self._view(tensor.detach()).requires_grad_(tensor.requires_grad)
            self._tensors[id(tensor)] = twin
        return self._tensors[id(tensor)]

    def _view(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = bytes_of(tensor).to(self.device, copy=True)
        copied = self._storages[storage._cdata].untyped_storage()
        twin = torch.empty(0, dtype=tensor.dtype, device=self.device)
        twin.set_(copied, tensor.storage_offset(), tensor.shape, tensor.stride())
        twin = torch._conj(twin) if tensor.is_conj() else twin
        return torch._neg_view(twin) if tensor.is_neg() else twin


def bytes_of(tensor: Tensor) -> Tensor:
    """The whole storage of ``tensor``."""
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(tensor.untyped_storage())


def seed(number: int) -> None:
    """As torch.manual_seed() does, without its note of the stack for CUDA, which takes long."""
    torch.default_generator.manual_seed(number)
    torch.sim.manual_seed_all(number)


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors among arguments or results."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


@dataclass
class Outcome:
    """What a call did: to be compared with another device's."""

    result: Any  # what it returned, or the exception
    tensors: list[Tensor]  # arguments first, then results
    versions: list[int]  # by how much each argument's version grew
    resized: list[bool]  # whether each argument's storage was

    @property
    def raised(self) -> bool:
        return isinstance(self.result, Exception)


def run(call: Callable[..., Any], arguments: Any, keywords: dict[str, Any]) -> Outcome:
    """Calls ``call``, with random numbers that depend on nothing before."""
    given = tensors_in((arguments, keywords))
    before = [tensor._version for tensor in given]
    sizes = [tensor.untyped_storage().nbytes() for tensor in given]
    seed(0)
    result: Any
    try:
        result = call(*arguments, **keywords)
    except Exception as error:
        result = error
    versions = [tensor._version - old for tensor, old in zip(given, before, strict=True)]
    resized = [
        tensor.untyped_storage().nbytes() != size for tensor, size in zip(given, sizes, strict=True)
    ]
    return Outcome(result, [*given, *tensors_in(result)], versions, resized)


def differences(
    ours: Outcome, theirs: Outcome, rounding: dict[torch.dtype, float]
) -> Iterator[tuple[str, str]]:
    """Each difference as its aspect and its description: ``("stride", "result 0.stride(): …")``.

    Values that differ by less than ``rounding`` has for the dtype, relative to the largest, are of
    the aspect "rounding".
    """
    if ours.raised or theirs.raised:
        if type(ours.result) is not type(theirs.result):
            yield "error", f"raises {ours.result!r:.600}, the CPU {theirs.result!r:.200}"
        return
    yield from _values_and_layout(ours, theirs, rounding)
    yield from _aliasing(ours, theirs)
    if ours.versions != theirs.versions:
        yield "versions", f"versions grew by {ours.versions}, on the CPU by {theirs.versions}"


def _values_and_layout(
    ours: Outcome, theirs: Outcome, rounding: dict[torch.dtype, float]
) -> Iterator[tuple[str, str]]:
    leaves, their_leaves = tree_flatten(ours.result)[0], tree_flatten(theirs.result)[0]
    if len(leaves) != len(their_leaves):
        yield "structure", f"{len(leaves)} results, on the CPU {len(their_leaves)}"
        return
    for index, (mine, other) in enumerate(zip(leaves, their_leaves, strict=True)):
        if not isinstance(other, Tensor):
            if isinstance(other, torch.device):
                other = torch.device(DEVICE, 0)
            if not (mine == other or (mine != mine and other != other)):
                yield "values", f"result {index} is {mine!r}, on the CPU {other!r}"
            continue
        yield from compare(f"result {index}", mine, other, rounding)
    for index, resized in enumerate(theirs.resized):
        mine, other = ours.tensors[index], theirs.tensors[index]
        for aspect, text in compare(
            f"argument {index}", mine, other, rounding, compare_bytes=not resized
        ):
            yield f"argument {aspect}", text


def compare(
    what: str,
    mine: Tensor,
    other: Tensor,
    rounding: dict[torch.dtype, float],
    compare_bytes: bool = False,
) -> Iterator[tuple[str, str]]:
    """What differs between a tensor on the device and its counterpart on the CPU."""
    if mine.device.type != DEVICE:
        yield "device", f"{what} is on {mine.device}"
    for aspect in ("dtype", "shape", "requires_grad", "is_leaf"):
        if getattr(mine, aspect) != getattr(other, aspect):
            yield (
                aspect,
                f"{what}.{aspect}: {getattr(mine, aspect)}, on the CPU {getattr(other, aspect)}",
            )
            if aspect == "shape":
                return
    for aspect in ("stride", "storage_offset", "is_conj", "is_neg", "_is_view"):
        if getattr(mine, aspect)() != getattr(other, aspect)():
            yield (
                aspect,
                f"{what}.{aspect}(): {getattr(mine, aspect)()}, on the CPU "
                f"{getattr(other, aspect)()}; sizes {tuple(other.shape)}",
            )
    if type(mine.grad_fn) is not type(other.grad_fn):
        yield "grad_fn", f"{what}.grad_fn: {mine.grad_fn}, on the CPU {other.grad_fn}"
    host = mine.detach().cpu()
    if not equal(host, other.detach()):
        gap = distance(host, other.detach())
        aspect = "rounding" if gap < rounding.get(other.dtype, 0) else "values"
        yield aspect, f"{what} differs by {gap}"
    elif compare_bytes and not torch.equal(bytes_of(mine.detach()).cpu(), bytes_of(other.detach())):
        yield "bytes around", f"the bytes around {what} differ"


def equal(mine: Tensor, other: Tensor) -> bool:
    """Equal to the bit, except that one NaN is as good as another and zero has no sign."""
    mine, other = widened(mine), widened(other)
    return torch.equal(mine, other) or bool(torch.isclose(mine, other, 0, 0, equal_nan=True).all())


def widened(tensor: Tensor) -> Tensor:
    """The same numbers, in a dtype with which the CPU can compute."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def distance(mine: Tensor, other: Tensor) -> float:
    """The largest difference, relative to the largest value if that is above one."""
    mine, other = widened(mine), widened(other)
    if mine.is_complex():
        mine, other = torch.view_as_real(mine), torch.view_as_real(other)
    mine, other = mine.double(), other.double()
    if not torch.equal(mine.isnan(), other.isnan()):
        return float("inf")
    gap = (mine - other).nan_to_num(0).abs().max().item()
    return gap / max(other.nan_to_num(0, 0, 0).abs().max().item(), 1.0)


def _aliasing(ours: Outcome, theirs: Outcome) -> Iterator[tuple[str, str]]:
    mine, other = _relations(ours.tensors), _relations(theirs.tensors)
    if mine != other:
        yield "aliasing", f"{sorted(mine ^ other)} (arguments first, {len(ours.versions)} of them)"


def _relations(tensors: list[Tensor]) -> set[tuple[str, int, int]]:
    """Who is whom, who is a view of whom, and who shares bytes with whom."""
    relations = set()
    pointers = [_memory(tensor) for tensor in tensors]
    for i, one in enumerate(tensors):
        for j, two in enumerate(tensors[:i]):
            if one is two:
                relations.add(("is", i, j))
            elif pointers[i] is not None and pointers[i] == pointers[j]:
                relations.add(("shares", i, j))
            if one._base is two:
                relations.add(("view of", i, j))
    return relations


def _memory(tensor: Tensor) -> int | None:
    """Where the storage of ``tensor`` lies; None when it has no memory."""
    if tensor._is_zerotensor() or tensor.untyped_storage().nbytes() == 0:
        return None
    return tensor.untyped_storage().data_ptr()
