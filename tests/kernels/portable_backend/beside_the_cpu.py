"""The device beside the CPU: the same calls on both, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from device import DEVICE
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

import opsmith
from fell_back import fell_back

FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGRAL = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REAL = (*FLOATING, *INTEGRAL)


def moved(tensor: Tensor) -> Tensor:
    """The tensor on the device with the same strides, as an expanded or transposed one has them."""
    if tensor.numel() == 0:
        return tensor.to(DEVICE)
    storage = tensor.as_strided((extent(tensor),), (1,)).to(DEVICE)
    return storage.as_strided(tensor.shape, tensor.stride())


def extent(tensor: Tensor) -> int:
    """The elements from the first to the last one, gaps included."""
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def on_device(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of the call with every Tensor moved to the device."""
    moved_args, moved_kwargs = tree_map_only(Tensor, moved, (args, kwargs))
    return call(*moved_args, **moved_kwargs)


def agree(
    call: Callable[..., Any],
    *args: Any,
    rtol: float | None = None,
    atol: float | None = None,
    laid_out_as_on_the_cpu: bool = False,
    **kwargs: Any,
) -> None:
    """The call gives on the device what it gives on the CPU: dtypes, sizes and values.

    Its results are laid out as PyTorch's meta function says, which need not be how the CPU's are.
    """
    shapes = [] if laid_out_as_on_the_cpu else on_meta(call, *args, **kwargs)
    ours = tree_leaves(on_device(call, *args, **kwargs))
    theirs = tree_leaves(call(*args, **kwargs))
    for mine, other, shaped in zip(ours, theirs, shapes or theirs, strict=True):
        assert mine.device.type == DEVICE
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        assert layout(mine) == layout(shaped)
        torch.testing.assert_close(mine.cpu(), other, rtol=rtol, atol=atol, equal_nan=True)


def on_meta(call: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Tensor]:
    """The results of the call without data, for their layouts; none where those depend on values."""

    def empty(tensor: Tensor) -> Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")

    moved_args, moved_kwargs = tree_map_only(Tensor, empty, (args, kwargs))
    try:
        return tree_leaves(call(*moved_args, **moved_kwargs))
    except RuntimeError:  # NotImplementedError is one
        return []


def layout(tensor: Tensor) -> list[int]:
    """The strides, without those that no element depends on."""
    known = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in known if size > 1 and tensor.numel()]


@contextmanager
def no_fallback(*operators: str) -> Iterator[None]:
    """None of the operators, such as ``aten::mm.out``, runs on the CPU within; all, where none is named."""
    start = opsmith.fallbacks()
    yield
    ran = {f"aten::{name}" for name in fell_back(opsmith.fallbacks(since=start))}
    assert not ran.intersection(operators or ran), ran


def numbers(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same small numbers in every run, whole ones where the dtype is integral."""
    count = torch.Size(sizes).numel()
    values = torch.sin(torch.arange(count, dtype=torch.float64) * 1.7 + 0.3) * 3
    if not dtype.is_floating_point:
        values = values.abs() if dtype == torch.uint8 else values.round()
    return values.to(dtype).reshape(sizes)


def channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)
