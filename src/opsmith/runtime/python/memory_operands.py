"""The operands of kernels that are given addresses: where ``out`` is, of its shape, contiguous."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from torch import Tensor


def place_operands(
    values: list[Any],
    outs: range,
    *,
    is_pointwise: bool,
    strided: Container[int] = (),
) -> list[tuple[Tensor, Tensor]]:
    """Tensors that the kernel writes, with the contiguous copies that stand for them in ``values``.

    ``values`` are the arguments of an out operator, and ``outs`` the indices of its outputs.  Operands on
    other devices are moved to that of the first output, those of a pointwise operator expanded to its shape,
    and what is not contiguous is copied, but for the indices ``strided``.  :func:`copy_back` ends the call.
    """
    written: list[tuple[Tensor, Tensor]] = []
    out = values[outs.start]
    operands = 0
    if isinstance(out, Tensor):
        operands, device, shape = outs.start, out.device, out.shape
    for index, value in enumerate(values):
        if isinstance(value, Tensor):
            if index < operands:
                if value.device != device:
                    values[index] = value = value.to(device)
                if is_pointwise and value.shape != shape:
                    values[index] = value = value.expand(shape)
            if not value.is_contiguous() and index not in strided:
                values[index] = _contiguous(value, written if index in outs else None)
        elif _has_tensors(value) and index not in strided:
            kept = written if index in outs else None
            values[index] = [_contiguous(each, kept) for each in value]
    return written


def copy_back(written: list[tuple[Tensor, Tensor]]) -> None:
    """Copies what the kernel wrote to where it belongs."""
    for tensor, copy in written:
        tensor.copy_(copy)


def _has_tensors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Tensor)


def _contiguous(tensor: Tensor, written: list[tuple[Tensor, Tensor]] | None) -> Tensor:
    copy = tensor.contiguous()
    if written is not None and copy is not tensor:
        written.append((tensor, copy))
    return copy
