"""Functions of tvm-ffi's that Python makes, as a compiler's package does, for Tensors of the device."""

from __future__ import annotations

from typing import Any

import torch
import tvm_ffi

SEEN: list[tuple[str, int, tuple[int, ...]]] = []
"""The circumstances of the functions' calls: the device, the stream in the environment, strides."""


def _of_device(tensor: Any) -> torch.Tensor:
    stream = tvm_ffi.get_raw_stream(tensor.device)
    SEEN.append((str(tensor.device), stream, tuple(tensor.strides)))
    return torch.from_dlpack(tensor)


@tvm_ffi.convert
def exp2(self: Any, out: Any) -> None:
    _of_device(out).copy_(torch.pow(2, _of_device(self)))


@tvm_ffi.register_global_func("opsmith.tests.log2")
def log2(self: Any, out: Any) -> None:
    _of_device(out).copy_(torch.log(_of_device(self)) / torch.log(torch.tensor(2.0)).item())


@tvm_ffi.convert
def atan2(self: Any, other: Any, out: Any) -> None:
    x, y, angle = _of_device(self), _of_device(other), _of_device(out)
    assert x.shape == y.shape == angle.shape
    angle.copy_(torch.atan(x / y))


@tvm_ffi.convert
def sinc(self: Any, out: Any) -> None:
    """Only looks at what it is given: there is no CUDA here."""
    for each in (self, out):
        SEEN.append((str(each.device), tvm_ffi.get_raw_stream(each.device), tuple(each.strides)))
