"""Random programs: program ``index`` of seed ``seed`` is the same on any machine, whoever draws it.

Steps are tried on PyTorch's CPU while they are drawn, so that dimensions and shapes mostly fit and
errors are as rare as one in eight.  What a result holds is never looked at, and results whose shapes
depend on it are not used again.
"""

from __future__ import annotations

import cmath
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from opsmith.conformance.comparison import shares_elements, tensors_in
from opsmith.conformance.fuzzing.arguments import DEGREES, dim, drawn, is_degree
from opsmith.conformance.fuzzing.execution import Execution, tensor_of
from opsmith.conformance.fuzzing.operators import Parameter, Signature, signatures
from opsmith.conformance.fuzzing.program import (
    GETITEM,
    GRAD,
    SETITEM,
    Leaf,
    Program,
    Ref,
    Step,
    names,
)
from opsmith.conformance.fuzzing.shapes import SHAPES
from opsmith.conformance.fuzzing.values import (
    DTYPES,
    FLOATS,
    layout,
    leaf,
    scalar,
    shape,
    size,
    values,
    weighted,
)

_STEPS = (6, 7, 8, 9, 10, 11, 12)
_TRIES = 5
_KEPT_ERRORS = 0.12
_LARGEST = 600

# Bool tensors are given for these parameters, and whole numbers for those.
_MASKS = {"mask", "condition"}
_INDICES = {"index", "indices", "target"}


@dataclass
class _Call:
    """The arguments ``given`` to a call so far, the ``first`` Tensor among them, and sizes by ``letters``."""

    signature: Signature
    shapes: dict[str, str]
    letters: dict[str, int]
    given: dict[str, Any]
    first: Tensor | None = None


def draw_program(seed: int, index: int) -> Program:
    """Program ``index`` of seed ``seed``."""
    return _Drawing(Random(f"{seed}/{index}")).program()


@functools.cache
def _bases() -> Sequence[str]:
    return sorted(signatures())


class _Drawing:
    """A program while it is drawn, and what its tensors are on the CPU."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.leaves: dict[str, Leaf] = {}
        self.steps: list[Step] = []
        self.cpu = Execution("cpu")
        self.pool: list[Ref] = []
        self.shape = shape(random)
        self.dtype = weighted(random, DTYPES)
        self.leaf_names = names((), "a")
        self.step_names = names((), "s")

    def program(self) -> Program:
        for _ in range(self.random.choice((1, 2, 3))):
            self._some_leaf()
        for _ in range(self.random.choice(_STEPS)):
            self._step()
        if self.random.random() < 0.4:
            self._gradients()
        return Program(self.leaves, tuple(self.steps)).needed()

    # ---- tensors

    def _add(self, new: Leaf, *, pooled: bool = True) -> Ref:
        name = next(self.leaf_names)
        self.leaves[name] = new
        self.cpu.values[name] = tensor_of(new, "cpu")
        ref = Ref(name)
        if pooled:
            self.pool.append(ref)
        return ref

    def _some_leaf(self) -> Ref:
        random = self.random
        sizes = self.shape if random.random() < 0.6 else shape(random)
        dtype = self.dtype if random.random() < 0.6 else weighted(random, DTYPES)
        return self._add(leaf(random, dtype, sizes))

    def _of(self, ref: Ref) -> Tensor:
        found = self.cpu.value(ref)
        assert isinstance(found, Tensor)
        return found

    def _operand(self, like: Tensor | None) -> Ref:
        """Any tensor; one whose shape goes with that of ``like``, mostly."""
        random = self.random
        if like is None or random.random() < 0.1:
            return random.choice(self.pool) if random.random() < 0.85 else self._some_leaf()
        fitting = [ref for ref in self.pool if _broadcast(self._of(ref).shape, like.shape)]
        if fitting and random.random() < 0.7:
            return random.choice(fitting)
        sizes = tuple(1 if random.random() < 0.15 else each for each in like.shape)
        sizes = sizes[random.choice((0, 0, 0, 1)) :]
        dtype = like.dtype if random.random() < 0.6 else weighted(random, DTYPES)
        return self._add(leaf(random, dtype, sizes))

    def _index(self, along: int, sizes: tuple[int, ...]) -> Ref:
        """Whole numbers that index a dimension of the size ``along``."""
        random = self.random
        low = -along if random.random() < 0.2 else 0
        if random.random() < 0.04:
            low, along = -along - 2, along + 2
        numbers = tuple(random.randrange(low, along) if along > low else 0 for _ in range(5))
        dtype = torch.int64 if random.random() < 0.9 else random.choice((torch.int32, torch.uint8))
        if dtype is torch.uint8:
            numbers = tuple(map(abs, numbers))
        return self._add(leaf(random, dtype, sizes, numbers=numbers), pooled=False)

    # ---- steps

    def _step(self) -> None:
        for attempt in range(_TRIES):
            random = self.random
            draw = random.random()
            name = next(self.step_names)
            data_dependent = False
            if draw < 0.06:
                step = self._getitem(name)
            elif draw < 0.12:
                step = self._setitem(name)
            else:
                signature = random.choice(signatures()[random.choice(_bases())])
                data_dependent = signature.is_data_dependent
                step = self._call(name, signature)
            outcome = self.cpu.run(step)
            if outcome.raised and random.random() > _KEPT_ERRORS and attempt + 1 < _TRIES:
                continue
            large = not outcome.raised and any(
                tensor.numel() > _LARGEST for tensor in tensors_in(outcome.result)
            )
            if large:
                continue
            self.steps.append(step)
            if not outcome.raised and not data_dependent:
                self._keep(name, outcome.result)
            return

    def _keep(self, name: str, result: Any) -> None:
        """Lets later steps use what a step has returned."""
        known = [self._of(ref) for ref in self.pool]
        items = [*enumerate(result)] if isinstance(result, tuple | list) else [(None, result)]
        for item, each in items[:3]:
            if isinstance(each, Tensor) and not any(each is other for other in known):
                self.pool.append(Ref(name, item))

    def _call(self, name: str, signature: Signature) -> Step:
        shapes = SHAPES.get(signature.base) if self.random.random() < 0.9 else None
        call = _Call(signature, shapes or {}, {}, {})
        given = call.given
        for parameter in signature.parameters:
            if parameter.is_out:
                continue
            value = given[parameter.name] = self._argument(parameter, call)
            if isinstance(value, list) and value:
                value = value[0]
            if call.first is None and isinstance(value, Ref):
                call.first = self._of(value)
        outs = [parameter for parameter in signature.parameters if parameter.is_out]
        if outs:
            self._outs(name, signature, outs, given)
        arguments, keywords = [], []
        for parameter in signature.parameters:
            if parameter.keyword:
                if not (parameter.optional and given[parameter.name] == parameter.default):
                    keywords.append((parameter.name, given[parameter.name]))
            else:
                arguments.append(given[parameter.name])
        left = [parameter for parameter in signature.parameters if not parameter.keyword]
        while arguments and left[-1].optional and arguments[-1] == left[-1].default:
            arguments.pop()
            left.pop()
        return Step(name, signature.operator, tuple(arguments), tuple(keywords))

    def _argument(self, parameter: Parameter, call: _Call) -> Any:
        random = self.random
        match parameter.kind:
            case "Tensor":
                if parameter.optional and random.random() < 0.5:
                    return None
                return self._tensor(parameter, call)
            case "List[Tensor]":
                return self._tensors(call.signature)
            case "List[Optional[Tensor]]":
                return self._indices(call.first)
        return drawn(random, parameter, call.signature.base, call.first, call.given)

    def _tensor(self, parameter: Parameter, call: _Call) -> Ref:
        random, signature, first, letters = self.random, call.signature, call.first, call.letters
        if parameter.name in call.shapes:
            sizes = tuple(
                int(letter)
                if letter.isdigit()
                else letters.setdefault(letter, self._letter(letter))
                for letter in call.shapes[parameter.name]
            )
            if parameter.name in _INDICES:
                return self._index(letters.get("c", letters.get("n", 3)), sizes)
            dtype = first.dtype if first is not None and random.random() < 0.9 else self.dtype
            if first is None and random.random() < 0.7:
                dtype = random.choice(FLOATS)
            numbers = values(random, dtype)
            if parameter.name == "grid":
                # The gradient of PyTorch's CPU writes to the pixel of a place that is no number.
                numbers = tuple(each for each in numbers if cmath.isfinite(each)) or (0,)
            return self._add(leaf(random, dtype, sizes, numbers=numbers))
        if is_degree(signature.base, parameter.name):
            sizes = self.shape if first is None else tuple(first.shape)
            dtype = random.choice((torch.float32, torch.float64, torch.int64))
            return self._add(
                leaf(random, dtype, sizes, numbers=tuple(random.choices(DEGREES, k=3)))
            )
        if parameter.name in _MASKS and random.random() < 0.9:
            sizes = tuple(first.shape) if first is not None else self.shape
            return self._add(leaf(random, torch.bool, sizes))
        if parameter.name in _INDICES and first is not None and random.random() < 0.95:
            return self._index_for(signature.base, first, call.given)
        if first is None and (
            signature.base.startswith("as_strided")
            or (parameter.is_written and random.random() < 0.5)
        ):
            # A kernel may have left anything where as_strided reaches beside a result.
            return self._some_leaf()
        if (
            first is not None
            and signature.takes_host_scalars
            and not parameter.is_written
            and random.random() < 0.05
        ):
            dtype = weighted(random, DTYPES)
            return self._add(Leaf(dtype, values(random, dtype)[:1], (), host=True), pooled=False)
        return self._operand(first)

    def _letter(self, letter: str) -> int:
        """A size: where it slides over an image or a kernel, of one that has room for that."""
        if letter in "hwl":
            return self.random.choice((3, 4, 5, 6, 1))
        return self.random.choice((1, 2, 2, 3)) if letter in "ijk" else size(self.random)

    def _index_for(self, base: str, first: Tensor, given: dict[str, Any]) -> Ref:
        random = self.random
        where = given.get("dim", 0)
        known = isinstance(where, int) and -first.dim() <= where < first.dim()
        along = first.shape[where] if known and first.dim() else 1
        if base.startswith(("index_", "repeat")):
            return self._index(
                along, (random.choice((0, 1, 2, 3)),) if random.random() < 0.95 else ()
            )
        if base.startswith(("take", "put")) and base != "take_along_dim":
            return self._index(first.numel(), shape(random)[:2])
        sizes = tuple(max(each - random.choice((0, 0, 1)), 0) for each in first.shape)
        if known and first.dim() and random.random() < 0.3:
            sizes = tuple(
                random.choice((1, 2, 4)) if each == where % first.dim() else old
                for each, old in enumerate(sizes)
            )
        return self._index(along, sizes)

    def _tensors(self, signature: Signature) -> list[Ref]:
        random = self.random
        one = self._operand(None)
        like = self._of(one)
        count = random.choice((1, 2, 2, 3))
        chosen = [one]
        for _ in range(count - 1):
            fitting = [ref for ref in self.pool if self._of(ref).shape == like.shape]
            chosen.append(random.choice(fitting) if random.random() < 0.6 else self._operand(like))
        return chosen

    def _indices(self, first: Tensor | None) -> list[Ref | None]:
        """For ``index_put``: one tensor, or None, for each of the first dimensions."""
        random = self.random
        assert first is not None
        sizes = random.choice(((), (1,), (2,), (3,), (2, 1), (0,)))
        count = random.randint(1, max(first.dim(), 1))
        indices: list[Ref | None] = []
        for where in range(count):
            if random.random() < 0.2:
                indices.append(None)
            elif random.random() < 0.15 and first.dim() > where:
                mask = leaf(random, torch.bool, tuple(first.shape[where : where + 1]))
                indices.append(self._add(mask, pooled=False))
            else:
                along = first.shape[where] if first.dim() > where else 1
                indices.append(self._index(along, sizes))
        return indices

    # ---- out=

    def _outs(
        self, name: str, signature: Signature, outs: list[Parameter], given: dict[str, Any]
    ) -> None:
        """Tensors to write to: as large as the result or not, and some that share memory with operands."""
        results = self._results(name, signature, given)
        operands = [value for value in given.values() if isinstance(value, Ref)]
        apart = not _takes_for_contiguous(signature.base)
        if _resizes_first(signature.base):
            operands = []
        elif not apart:
            operands = [ref for ref in operands if not shares_elements(self._of(ref))]
        for index, parameter in enumerate(outs):
            like = results[index] if index < len(results) else None
            given[parameter.name] = self._out(like, operands, expanded=apart)

    def _results(self, name: str, signature: Signature, given: dict[str, Any]) -> list[Tensor]:
        """The results of the functional variant."""
        if signature.functional is None:
            return []
        wanted = next(
            (
                other
                for other in signatures().get(signature.functional.partition(".")[0], ())
                if other.operator == signature.functional
            ),
            None,
        )
        if wanted is None:
            return []
        keywords = {
            parameter.name: given[parameter.name]
            for parameter in wanted.parameters
            if parameter.name in given
        }
        with torch.no_grad():
            outcome = self.cpu.run(Step(name, wanted.operator, (), tuple(keywords.items())))
        self.cpu.values.pop(name, None)
        return [] if outcome.raised else tensors_in(outcome.result)

    def _out(self, like: Tensor | None, operands: list[Ref], *, expanded: bool) -> Ref:
        random = self.random
        dtype = like.dtype if like is not None else self.dtype
        sizes = tuple(like.shape) if like is not None else self.shape
        numbers = (7,) if dtype not in (torch.bool,) else (True,)
        draw = random.random()
        if draw < 0.35:
            return self._add(Leaf(dtype, numbers, sizes), pooled=False)
        if draw < 0.55:
            stride, offset = layout(random, sizes, expanded=random.random() < 0.1 and expanded)
            return self._add(Leaf(dtype, numbers, sizes, stride, offset))
        if draw < 0.68:
            return self._add(Leaf(dtype, numbers, (0,)), pooled=False)
        if draw < 0.74:
            return self._add(Leaf(dtype, numbers, shape(random)), pooled=False)
        if draw < 0.84:
            other = weighted(random, DTYPES)
            return self._add(
                Leaf(other, (1,) if other is not torch.bool else (True,), sizes), pooled=False
            )
        if not operands:
            return self._add(Leaf(dtype, numbers, sizes), pooled=False)
        ref = random.choice(operands)
        tensor = self._of(ref)
        if draw < 0.92 or tensor.dim() == 0 or tensor.is_conj() or tensor.is_neg():
            return ref
        return self._overlapping(ref, tensor, sizes)

    def _overlapping(self, ref: Ref, tensor: Tensor, sizes: tuple[int, ...]) -> Ref:
        """A view of the storage of ``tensor``, of the shape ``sizes`` if that fits, some elements on."""
        strides = Leaf(tensor.dtype, (), sizes).steps
        room = tensor.untyped_storage().nbytes() // tensor.element_size()
        length = Leaf(tensor.dtype, (), sizes).numel
        if length > room:
            return ref
        offset = self.random.randint(0, min(room - length, 3))
        name = next(self.step_names)
        step = Step(name, "as_strided", (ref, [*sizes], [*strides], offset))
        if self.cpu.run(step).raised:
            return ref
        self.steps.append(step)
        return Ref(name)

    # ---- indexing, gradients

    def _getitem(self, name: str) -> Step:
        ref = self._operand(None)
        return Step(name, GETITEM, (ref, self._python_index(self._of(ref))))

    def _setitem(self, name: str) -> Step:
        random = self.random
        ref = self._operand(None)
        tensor = self._of(ref)
        index = self._python_index(tensor)
        value: Any = scalar(random)
        if random.random() < 0.7:
            seen = self.cpu.run(Step(name, GETITEM, (ref, index)))
            value = self._operand(None if seen.raised else seen.result)
        self.cpu.values.pop(name, None)
        return Step(name, SETITEM, (ref, index, value))

    def _python_index(self, tensor: Tensor) -> Any:
        random = self.random
        items: list[Any] = []
        for where in range(random.randint(0, tensor.dim())):
            along = tensor.shape[where]
            draw = random.random()
            if draw < 0.25 and along:
                items.append(dim(random, torch.empty((1,) * along)) if along < 9 else 0)
            elif draw < 0.6:
                start, stop = (
                    random.choice((None, random.randint(-along - 1, along + 1))) for _ in "ab"
                )
                items.append(slice(start, stop, random.choice((None, None, 1, 2, 3))))
            elif draw < 0.68:
                items.append(None)
            elif draw < 0.74 and Ellipsis not in items:
                items.append(Ellipsis)
            elif draw < 0.9:
                items.append(self._index(along, random.choice(((), (1,), (2,), (2, 2)))))
            elif draw < 0.95:
                items.append(self._add(leaf(random, torch.bool, (along,)), pooled=False))
            else:
                items.append(random.random() < 0.5)
        return tuple(items) if len(items) != 1 or random.random() < 0.5 else items[0]

    def _gradients(self) -> None:
        tracked = [ref for ref in self.pool if self._of(ref).requires_grad]
        results = [ref for ref in tracked if _is_computed(self._of(ref))]
        leaves = [ref for ref in tracked if self._of(ref).is_leaf]
        if not results or not leaves:
            return
        result = results[-1] if self.random.random() < 0.6 else self.random.choice(results)
        step = Step(next(self.step_names), GRAD, (result, leaves))
        self.cpu.run(step)
        self.steps.append(step)


def _is_computed(tensor: Tensor) -> bool:
    """Whether a gradient can be asked of ``tensor``: not of one of several views that was written to."""
    try:
        return tensor.grad_fn is not None
    except RuntimeError:
        return False


def _resizes_first(base: str) -> bool:
    """Whether the CPU's kernel reads after it has resized ``out``: an operand's memory may be gone."""
    return "_pool" in base or "_pad" in base or base.startswith("upsample")


def _takes_for_contiguous(base: str) -> bool:
    """Whether the CPU's kernel writes to ``out`` without a look at its strides: to memory of others, where
    elements share theirs, and the process crashes later on.
    """
    return base.startswith(
        (
            "native_batch_norm",
            "max_pool",
            "linalg_lu_factor",
            "log_sigmoid_forward",
            "_softmax",
            "_log_softmax",
        )
    )


def _broadcast(one: Sequence[int], other: Sequence[int]) -> bool:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)
