"""A pointwise operator by a ``@triton.jit`` function of one element of each operand.

opsmith writes the kernel around it: which element a program loads and stores, for operands that are dense
and alike by one index, for others by their strides.  Elements of half and bfloat16 arrive as float32, as
PyTorch's own kernels compute in their "opmath" type, and the result is rounded once.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opsmith.description import Kernel, parameters_of
from opsmith.errors import KernelRejected
from opsmith.runtime.python.kernel_modules import refusal
from opsmith.runtime.triton.interpreter import ONLY_MOVES_BFLOAT16

_BLOCK = 1024
# Offsets in elements that int32 holds.
_MOST_OFFSET = 2**31 - 1
_WIDENED = (torch.float16, torch.bfloat16)
_NOT_IN_TRITON = (torch.complex32, torch.complex64, torch.complex128)


@dataclass(frozen=True)
class _Form:
    """The facts that the text of a kernel depends on.

    ``operands`` says of each argument what it is: a Tensor that is widened (``w``) or not (``t``), a number
    (``n``), or a constant (``c``): a string, a truth, or a number that Triton would round.  ``rank`` is 0
    where all are dense alike.
    """

    operands: str
    rank: int
    is_wide: bool


class ElementsLauncher:
    """Calls of an out operator, each element of whose result ``function`` computes.

    The function has a parameter for each argument of the operator's schema but ``out``, in order; what is no
    Tensor and no number is a ``constexpr``.
    """

    def __init__(
        self, kernel: Kernel, schema: str, function: Any, parameters: Sequence[str]
    ) -> None:
        launch = kernel.launch
        assert launch is not None
        given = parameters_of(schema)
        self._inputs = (*given.positional, *given.keywords[:-1])
        self._keywords = given.keywords
        self._options: dict[str, Any] = {"BLOCK": _BLOCK, **dict(launch.options)}
        self._kernel = kernel
        if len(parameters) != len(self._inputs):
            raise KernelRejected(
                f"`{kernel.symbol}` has {len(parameters)} parameters, and `{kernel.operator}` "
                f"{len(self._inputs)} operands",
                location=kernel.location,
                remedy=f"write `def {launch.name}({', '.join(self._inputs)}):`, each being one element, or "
                "a number",
            )
        self._kernel_of = functools.cache(functools.partial(_kernel, function))

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        out: Tensor = kwargs[self._keywords[-1]]
        values = [*args, *(kwargs[name] for name in self._keywords[:-1])]
        tensors = [
            each for each in values if isinstance(each, Tensor) and each.device == out.device
        ]
        shape = _broadcast(tensors) if tensors else out.shape
        if out.shape != shape:
            out.resize_(shape)
        count = out.numel()
        if count == 0:
            return
        exact = any(each.dtype is torch.float64 for each in tensors)
        kinds = []
        for index, value in enumerate(values):
            if isinstance(value, Tensor):
                if value.device == out.device:
                    self._check(value)
                    kinds.append("w" if value.dtype in _WIDENED else "t")
                    continue
                values[index] = value = value.item()
            rounded = exact and isinstance(value, float)  # to float32
            kinds.append("c" if rounded or not _is_number(value) else "n")
        self._check(out)
        laid_out = [*tensors, out]
        layout: tuple[int, ...] = ()
        rank = 0
        if not _are_alike(laid_out):
            sizes, strides = _coalesced([each.expand(shape) for each in laid_out])
            rank = len(sizes)
            layout = (*sizes, *(each for of_one in strides for each in of_one))
        # Without a layout all are dense.
        is_wide = (max(map(_extent, laid_out)) if rank else count) > _MOST_OFFSET
        made = self._kernel_of(_Form("".join(kinds), rank, is_wide))
        grid = (-(-count // self._options["BLOCK"]),)
        made[grid](*values, out, count, *layout, **self._options)

    def _check(self, tensor: Tensor) -> None:
        if tensor.dtype in _NOT_IN_TRITON:
            raise refusal(
                self._kernel,
                f"Triton has no {tensor.dtype}, for `{self._kernel.symbol}`, the kernel of "
                f"`{self._kernel.operator}`",
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _broadcast(tensors: Sequence[Tensor]) -> torch.Size:
    first = tensors[0].shape
    if all(each.shape == first for each in tensors):
        return first
    shape: torch.Size = torch.broadcast_shapes(*(each.shape for each in tensors))  # type: ignore[no-untyped-call]
    return shape


def _are_alike(tensors: Sequence[Tensor]) -> bool:
    """Whether all have one shape and the same order in memory without gaps, so that one index finds each."""
    first = tensors[-1]
    shape, strides = first.shape, first.stride()
    if any(each.shape != shape for each in tensors):
        return False
    if all(each.is_contiguous() for each in tensors):
        return True
    return first.numel() == _extent(first) and all(each.stride() == strides for each in tensors)


def _extent(tensor: Tensor) -> int:
    """One more than the offset of its last element, in elements."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _coalesced(tensors: Sequence[Tensor]) -> tuple[list[int], list[list[int]]]:
    """The sizes of the common shape and each Tensor's strides, with dimensions that are one for all merged.

    The innermost dimension comes first.
    """
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in tensors]
    for dim in reversed(range(tensors[0].dim())):
        size = tensors[0].shape[dim]
        if size == 1:
            continue
        steps = [each.stride(dim) for each in tensors]
        if sizes and all(
            step == of_one[-1] * sizes[-1] for step, of_one in zip(steps, strides, strict=True)
        ):
            sizes[-1] *= size
            continue
        sizes.append(size)
        for step, of_one in zip(steps, strides, strict=True):
            of_one.append(step)
    return sizes or [1], [each or [0] for each in strides]


def _kernel(function: Any, form: _Form) -> Any:
    """The kernel of Triton's that calls ``function`` for each element."""
    text = _text(form)
    name = f"<opsmith: {getattr(function, '__name__', 'elements')} on {form}>"
    # Triton reads the source of what it compiles.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": __name__, "elements": function}
    exec(compile(text, name, "exec"), names)
    setattr(names["kernel"], ONLY_MOVES_BFLOAT16, True)
    return names["kernel"]


def _text(form: _Form) -> str:
    indices = range(len(form.operands))
    tensors = [index for index in indices if form.operands[index] in "wt"]
    dims = range(form.rank)
    strides = {each: [f"s{each}_{dim}" for dim in dims] for each in [*map(str, tensors), "out"]}
    layout = [f"n{dim}" for dim in dims] + [each for of_one in strides.values() for each in of_one]
    constant = {index for index in indices if form.operands[index] == "c"}
    parameters = [f"x{index}{': tl.constexpr' if index in constant else ''}" for index in indices]
    lines = [
        "import triton",
        "import triton.language as tl",
        "",
        "",
        "@triton.jit",
        f"def kernel({', '.join([*parameters, 'out', 'count', *layout, 'BLOCK: tl.constexpr'])}):",
        f"    first = tl.program_id(0){'.to(tl.int64)' if form.is_wide else ''} * BLOCK",
        "    at = first + tl.arange(0, BLOCK)",
        "    mask = at < count",
    ]
    offsets = dict.fromkeys(strides, "at")
    if form.rank:
        lines.append("    rest = at")
        for dim in dims[:-1]:
            lines += [f"    i{dim} = rest % n{dim}", f"    rest = rest // n{dim}"]
        lines.append(f"    i{form.rank - 1} = rest")
        offsets = {
            each: " + ".join(f"i{dim} * {stride}" for dim, stride in enumerate(of_one))
            for each, of_one in strides.items()
        }
    for index in tensors:
        widened = ".to(tl.float32)" if form.operands[index] == "w" else ""
        lines.append(
            f"    v{index} = tl.load(x{index} + {offsets[str(index)]}, mask=mask){widened}"
        )
    values = ", ".join(f"v{index}" if index in tensors else f"x{index}" for index in indices)
    lines.append(f"    tl.store(out + {offsets['out']}, elements({values}), mask=mask)")
    return "\n".join(lines) + "\n"
