"""The operands of kernels that are given addresses: where ``out`` is, of its shape, contiguous."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from torch import Tensor


def place_operands(values: list[Any], out_index: int, *, is_pointwise: bool) -> None:
    """Moves Tensors of other devices to that of ``out``, and expands pointwise operands to its shape.

    ``values`` are the arguments of an out operator, those before ``out_index`` its operands.
    """
    out = values[out_index]
    if not isinstance(out, Tensor):
        return
    for index, value in enumerate(values[:out_index]):
        if not isinstance(value, Tensor):
            continue
        if value.device != out.device:
            values[index] = value = value.to(out.device)
        if is_pointwise and value.shape != out.shape:
            values[index] = value.expand(out.shape)


class Contiguous:
    """Contiguous copies of what is not contiguous among ``values``, arguments of a kernel, in their place.

    ``outs`` are the indices of what the kernel writes; values with an index in ``but`` are left as they are.
    """

    def __init__(self, values: list[Any], outs: Container[int], but: Container[int] = ()) -> None:
        self._written: list[tuple[Tensor, Tensor]] = []
        for index, value in enumerate(values):
            if index in but:
                continue
            if isinstance(value, Tensor):
                values[index] = self._copied(value, index in outs)
            elif isinstance(value, list) and value and isinstance(value[0], Tensor):
                values[index] = [self._copied(each, index in outs) for each in value]

    def _copied(self, tensor: Tensor, is_written: bool) -> Tensor:
        if tensor.is_contiguous():
            return tensor
        copy = tensor.contiguous()
        if is_written:
            self._written.append((tensor, copy))
        return copy

    def copy_back(self) -> None:
        """Copies what the kernel wrote to where it belongs."""
        for tensor, copy in self._written:
            tensor.copy_(copy)
