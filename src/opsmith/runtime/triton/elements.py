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
        self._operands_of = functools.cache(self._operands)
        self._kernel_of = functools.cache(
            lambda operands, rank, is_wide: _kernel(function, _Form(operands, rank, is_wide))
        )

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        out: Tensor = kwargs[self._keywords[-1]]
        device, shape = out.device, out.shape
        values = [*args, *(kwargs[name] for name in self._keywords[:-1])]
        tensors: list[Tensor] = []
        types: list[torch.dtype | type] = []
        is_dense = out.is_contiguous()  # and so are all operands, which have its shape
        for index, value in enumerate(values):
            if isinstance(value, Tensor):
                if value.device == device:
                    tensors.append(value)
                    types.append(value.dtype)
                    is_dense = is_dense and value.shape == shape and value.is_contiguous()
                    continue
                values[index] = value = value.item()
            types.append(type(value))
        operands = self._operands_of(*types, out.dtype)
        rank, layout = (0, ()) if is_dense else _layout(tensors, out)
        count = out.numel()
        if count == 0:
            return
        is_wide = (max(map(_extent, [*tensors, out])) if rank else count) > _MOST_OFFSET
        made = self._kernel_of(operands, rank, is_wide)
        grid = (-(-count // self._options["BLOCK"]),)
        made[grid](*values, out, count, *layout, **self._options)

    def _operands(self, *types: torch.dtype | type) -> str:
        """The :attr:`_Form.operands` of arguments of these types, the last being that of ``out``."""
        for each in types:
            if each in _NOT_IN_TRITON:
                raise refusal(
                    self._kernel,
                    f"Triton has no {each}, for `{self._kernel.symbol}`, the kernel of "
                    f"`{self._kernel.operator}`",
                )
        # To float32, which Triton has for every number.
        rounds = torch.float64 in types[:-1]
        kinds: dict[Any, str] = {
            int: "n",
            float: "c" if rounds else "n",
            **dict.fromkeys(_WIDENED, "w"),
        }
        return "".join(
            kinds.get(each, "t" if isinstance(each, torch.dtype) else "c") for each in types[:-1]
        )


def _layout(tensors: Sequence[Tensor], out: Tensor) -> tuple[int, tuple[int, ...]]:
    """The number of dimensions, their sizes and each operand's strides; ``out`` gets the operands' shape.

    None of these where one index finds each: all have one shape and one order in memory without gaps.
    """
    if tensors:
        shape = torch.broadcast_shapes(*(each.shape for each in tensors))  # type: ignore[no-untyped-call]
        if out.shape != shape:
            out.resize_(shape)
    laid_out = [each.expand(out.shape) for each in (*tensors, out)]
    strides = out.stride()
    if out.numel() == _extent(out) and all(each.stride() == strides for each in laid_out):
        return 0, ()
    sizes, steps = _coalesced(laid_out)
    return len(sizes), (*sizes, *(each for of_one in steps for each in of_one))


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
