"""One call on the device against the same call on another: everything that a user could tell apart.

Values are only the first of it.  A device must also keep dtypes, shapes and flags, which result is a
view of which argument, what was written and how often, and what autograd knows.  Which of these
matter, and what is no more than rounding, is the caller's to say: the checks of ``opsmith conform``
allow what PyTorch's own tests allow, those of the fallback nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias
from unittest.mock import patch

import torch
from torch import Tensor

from opsmith.schema import torch_names
from opsmith.schema.torch_names import tree_flatten, tree_map

IsRounding: TypeAlias = "Callable[[Tensor, Tensor], bool]"
"""Whether elements that are not equal differ by no more than rounding; both are on the CPU."""


@dataclass
class Twins:
    """Copies of a call's arguments on ``device``, with the same views of the same storages.

    Tensors that ``stays`` holds are copied on the CPU: PyTorch wants some arguments there.
    """

    device: str
    stays: tuple[Tensor, ...] = ()
    _storages: dict[tuple[int, str], Tensor] = field(default_factory=dict)
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
            device = "cpu" if any(tensor is other for other in self.stays) else self.device
            plain = tensor.detach()
            twin = self._view(plain, device) if is_strided(plain) else plain.to(device, copy=True)
            self._tensors[id(tensor)] = twin.requires_grad_(tensor.requires_grad)
        return self._tensors[id(tensor)]

    def _view(self, tensor: Tensor, device: str) -> Tensor:
        storage = tensor.untyped_storage()
        key = storage._cdata, device
        if key not in self._storages:
            self._storages[key] = bytes_of(tensor).to(device, copy=True)
        copied = self._storages[key].untyped_storage()
        twin = torch.empty(0, dtype=tensor.dtype, device=device)
        twin.set_(copied, tensor.storage_offset(), tensor.shape, tensor.stride())
        twin = torch_names._conj(twin) if tensor.is_conj() else twin
        return torch_names._neg_view(twin) if tensor.is_neg() else twin


def is_strided(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided


def strided_parts(tensor: Tensor) -> dict[str, Tensor]:
    """The strided tensors that a sparse one is made of, by name; of another one itself, by no name."""
    if is_strided(tensor):
        return {"": tensor}
    if tensor.layout is torch.sparse_coo:
        return {"indices": tensor._indices(), "values": tensor._values()}
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        indices = {"crow_indices": tensor.crow_indices(), "col_indices": tensor.col_indices()}
    else:
        indices = {"ccol_indices": tensor.ccol_indices(), "row_indices": tensor.row_indices()}
    return {**indices, "values": tensor.values()}


def bytes_of(tensor: Tensor) -> Tensor:
    """The whole storage of ``tensor``."""
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(tensor.untyped_storage())


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors among arguments or results."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for each in value for tensor in tensors_in(each)]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in tensors_in(each)]
    return []


def shares_elements(tensor: Tensor) -> bool:
    """Whether two elements of a strided tensor lie at one place of its memory."""
    if tensor.is_contiguous():
        return False
    place = torch.zeros(tensor.shape, dtype=torch.int64)
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        rest = (1,) * (tensor.dim() - dim - 1)
        place += torch.arange(size).mul(stride).view(size, *rest)
    return len({*place.flatten().tolist()}) < place.numel()


def seed(device: str, number: int) -> None:
    """torch.manual_seed() for the CPU and ``device``, without its look at the stack, which takes long."""
    torch.default_generator.manual_seed(number)
    if device not in {"cpu", "meta"}:
        getattr(torch, device).manual_seed_all(number)


@dataclass
class SampleOutcome:
    """The outcome of a call, to be compared with another device's."""

    device: str
    result: Any  # what it returned, or the exception
    tensors: list[Tensor]  # arguments first, then results
    versions: list[int]  # by how much each argument's version grew
    resized: list[bool]  # whether each argument's storage was

    @property
    def raised(self) -> bool:
        return isinstance(self.result, Exception)


def run(
    device: str,
    call: Callable[..., Any],
    arguments: Any,
    keywords: dict[str, Any],
    *,
    number: int = 0,
) -> SampleOutcome:
    """Calls ``call``, with random numbers that depend on nothing but the seed ``number``."""
    given = tensors_in((arguments, keywords))
    before = [tensor._version for tensor in given]
    sizes = [_size_of_storage(tensor) for tensor in given]
    seed(device, number)
    result: Any
    try:
        with _other_seeds(number) if number else _OWN_SEEDS:
            result = call(*arguments, **keywords)
    except Exception as error:
        result = error
    versions = [tensor._version - old for tensor, old in zip(given, before, strict=True)]
    resized = [_size_of_storage(tensor) != size for tensor, size in zip(given, sizes, strict=True)]
    return SampleOutcome(device, result, [*given, *tensors_in(result)], versions, resized)


_OWN_SEEDS = nullcontext()


@contextmanager
def _other_seeds(number: int) -> Iterator[None]:
    """Within it, functions of OpInfo that set a seed of their own set one that is greater by ``number``."""
    set_seed = torch.manual_seed
    with patch.object(torch, "manual_seed", lambda seed: set_seed(seed + number)):
        yield


def _size_of_storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes() if is_strided(tensor) else 0


def differences(
    ours: SampleOutcome, theirs: SampleOutcome, is_rounding: IsRounding
) -> Iterator[tuple[str, str]]:
    """Each difference as its aspect and its description: ``("stride", "result 0.stride(): …")``.

    ``theirs`` is the CPU's.  Values that ``is_rounding`` lets pass are of the aspect "rounding".
    """
    if ours.raised or theirs.raised:
        if type(ours.result) is not type(theirs.result):
            yield "error", f"{_told(ours)}, the CPU {_told(theirs)}"
        return
    yield from _values_and_layout(ours, theirs, is_rounding)
    yield from _aliasing(ours, theirs)
    if ours.versions != theirs.versions:
        yield "versions", f"versions grew by {ours.versions}, on the CPU by {theirs.versions}"


def _told(outcome: SampleOutcome) -> str:
    return f"raises {outcome.result!r:.400}" if outcome.raised else "does not raise"


def _values_and_layout(
    ours: SampleOutcome, theirs: SampleOutcome, is_rounding: IsRounding
) -> Iterator[tuple[str, str]]:
    leaves, their_leaves = tree_flatten(ours.result)[0], tree_flatten(theirs.result)[0]
    if len(leaves) != len(their_leaves):
        yield "structure", f"{len(leaves)} results, on the CPU {len(their_leaves)}"
        return
    for index, (mine, other) in enumerate(zip(leaves, their_leaves, strict=True)):
        if not isinstance(other, Tensor):
            if isinstance(other, torch.device):
                other = torch.device(ours.device, 0)
            if not (mine == other or (mine != mine and other != other)):
                yield "values", f"result {index} is {mine!r}, on the CPU {other!r}"
        elif not isinstance(mine, Tensor):
            yield "structure", f"result {index} is {mine!r}, on the CPU a Tensor"
        else:
            yield from tensor_differences(f"result {index}", ours.device, mine, other, is_rounding)
    for index, resized in enumerate(theirs.resized):
        mine, other = ours.tensors[index], theirs.tensors[index]
        device = ours.device if mine.device.type != "cpu" else "cpu"
        for aspect, text in tensor_differences(
            f"argument {index}", device, mine, other, is_rounding, compare_bytes=not resized
        ):
            yield f"argument {aspect}", text


_ASPECTS = ("dtype", "layout", "shape", "requires_grad", "is_leaf")
_PLAIN = attrgetter(*_ASPECTS)


def tensor_differences(
    what: str,
    device: str,
    mine: Tensor,
    other: Tensor,
    is_rounding: IsRounding,
    compare_bytes: bool = False,
) -> Iterator[tuple[str, str]]:
    """The differences between a tensor on the device and its counterpart on the CPU."""
    if mine.device.type != device:
        yield "device", f"{what} is on {mine.device}"
    for aspect in () if _PLAIN(mine) == _PLAIN(other) else _ASPECTS:
        if getattr(mine, aspect) != getattr(other, aspect):
            yield (
                aspect,
                f"{what}.{aspect}: {getattr(mine, aspect)}, on the CPU {getattr(other, aspect)}",
            )
            if aspect in {"layout", "shape"}:
                return
    if not is_strided(other):
        mine, other = mine.detach(), other.detach()
        parts = zip(strided_parts(mine).items(), strided_parts(other).values(), strict=True)
        for (name, my_part), part in parts:
            yield from tensor_differences(f"{what}.{name}", device, my_part, part, is_rounding)
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
        aspect = "rounding" if is_rounding(host, other.detach()) else "values"
        yield aspect, f"{what} differs by {distance(host, other.detach()):.3g}"
    elif compare_bytes and not torch.equal(bytes_of(mine.detach()).cpu(), bytes_of(other.detach())):
        yield "bytes around", f"the bytes around {what} differ"


def equal(mine: Tensor, other: Tensor) -> bool:
    """Equal to the bit, except that one NaN is as good as another and zero has no sign."""
    plain = mine.dtype is other.dtype and not other.is_complex() and other.dtype not in _UNSIGNED
    if plain and torch.equal(mine, other):
        return True
    mine, other = widened(mine), widened(other)
    return torch.equal(mine, other) or bool(torch.isclose(mine, other, 0, 0, equal_nan=True).all())


def widened(tensor: Tensor) -> Tensor:
    """The same numbers, in a dtype with which the CPU can compute."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    if tensor.is_floating_point():
        return tensor.double()
    return tensor.long() if tensor.dtype in _UNSIGNED else tensor


# The CPU compares few of these dtypes; of the largest, bits are as good as numbers.
_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}


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


def _aliasing(ours: SampleOutcome, theirs: SampleOutcome) -> Iterator[tuple[str, str]]:
    mine, other = relations(ours.tensors), relations(theirs.tensors)
    if mine != other:
        yield "aliasing", f"{sorted(mine ^ other)} (arguments first, {len(ours.versions)} of them)"


def relations(tensors: list[Tensor]) -> set[tuple[str, int, int]]:
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
    if tensor._is_zerotensor() or _size_of_storage(tensor) == 0:
        return None
    return tensor.untyped_storage().data_ptr()
