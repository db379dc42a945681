"""Whether inputs are what a program was exported for.

The runtime itself takes some that are not, and computes wrong values or fails inside of a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opsmith.description import SCALAR_TYPE_OF
from opsmith.executorch.tasks import Expected, Failed, Stop

if TYPE_CHECKING:
    from torch import Tensor

    from opsmith.executorch.program import ProgramInput

# The dim order in which the channels are innermost, by the number of dimensions.
_CHANNELS_LAST = {4: "channels_last", 5: "channels_last_3d"}
# torch.dtype's own names come first in the table.
_TORCH_DTYPES = {scalar: name for name, scalar in reversed(tuple(SCALAR_TYPE_OF.items()))}


def expected_inputs(inputs: Sequence[ProgramInput | None]) -> list[Expected | None]:
    """The inputs that a method takes, of its ``inputs`` in the program."""
    return [
        None
        if each is None
        else Expected(each.meta.dtype, each.meta.dim_order, each.sizes, each.dynamic)
        for each in inputs
    ]


def check_inputs(program: str, inputs: Sequence[Any], expected: Sequence[Expected | None]) -> None:
    """Raises :class:`Stop` for the first of ``inputs`` that ``program`` does not take."""
    if len(inputs) != len(expected):
        raise _rejection(
            program,
            f"it takes {len(expected)} inputs, and {len(inputs)} are given",
            "give one for each argument of the module that was exported, in their order",
        )
    for place, (given, wanted) in enumerate(zip(inputs, expected, strict=True)):
        if wanted is not None and (wrong := _mismatch(given, wanted)):
            raise _rejection(program, *_told(place, given, wanted, wrong))


def layout_mismatch(place: int, given: Any, wanted: Expected) -> tuple[str, str] | None:
    """Says how an input lies otherwise than ``wanted``, and the remedy; None for what the runtime checks."""
    import torch

    if not isinstance(given, torch.Tensor) or given.dim() != len(wanted.sizes):
        return None
    wrong = _layout_mismatch(given, wanted)
    return wrong and _told(place, given, wanted, wrong)


def shown(value: Any) -> str:
    """A Tensor's dtype and sizes, ``float32[2, 3]``; of anything else what Python prints."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{_dtype_name(value)}{list(value.shape)}"
    return repr(value)


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _told(place: int, given: Any, wanted: Expected, wrong: tuple[str, str]) -> tuple[str, str]:
    reason, remedy = wrong
    return f"input {place} is {shown(given)}, and it takes {_taken(wanted)}{reason}", remedy


def _rejection(program: str, reason: str, remedy: str) -> Stop:
    return Stop(Failed("inputs", program, reason, remedy))


def _mismatch(given: Any, wanted: Expected) -> tuple[str, str] | None:
    """The mismatch of an input that its type does not show, and the remedy; None where it fits."""
    import torch

    if not isinstance(given, torch.Tensor):
        return "", "give a Tensor"
    sizes = tuple(given.shape)
    dtype = _TORCH_DTYPES.get(wanted.dtype, wanted.dtype)
    if dtype != _dtype_name(given):
        return "", f"convert it: x.to(torch.{dtype})"
    if len(sizes) != len(wanted.sizes):
        return "", "a program's Tensors keep the number of dimensions that it was exported with"
    if not wanted.dynamic and sizes != wanted.sizes:
        return "", "export it with a dynamic shape: torch.export.Dim says which sizes may change"
    if any(size > bound for size, bound in zip(sizes, wanted.sizes, strict=True)):
        return ", the export's bounds", "export it with larger ones: torch.export.Dim(name, max=…)"
    return _layout_mismatch(given, wanted)


def _layout_mismatch(given: Tensor, wanted: Expected) -> tuple[str, str] | None:
    import torch

    rank = given.dim()
    if wanted.dim_order == tuple(range(rank)):
        fits, layout, remedy = given.is_contiguous(), "contiguous", "x.contiguous()"
    elif rank in _CHANNELS_LAST and wanted.dim_order == (0, *range(2, rank), 1):
        name = _CHANNELS_LAST[rank]
        fits, layout = given.is_contiguous(memory_format=getattr(torch, name)), "channels-last"
        remedy = f"x.to(memory_format=torch.{name})"
    else:
        return (
            f" in the dim order {list(wanted.dim_order)}, in which the runtime takes no Tensor",
            "export it with contiguous or channels-last example inputs",
        )
    if fits:
        return None
    return f" {layout}, not with the strides {list(given.stride())}", f"lay it out: {remedy}"


def _taken(wanted: Expected) -> str:
    bound = "≤ " if wanted.dynamic else ""
    sizes = ", ".join(f"{bound}{size}" for size in wanted.sizes)
    return f"{_TORCH_DTYPES.get(wanted.dtype, wanted.dtype)}[{sizes}]"
