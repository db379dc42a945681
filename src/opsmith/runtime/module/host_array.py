"""Tensors of the device as NumPy arrays in the same memory, where the driver has a host window.

``Tensor.numpy()`` and ``numpy.asarray`` refuse tensors of any device, since they may not wait nor move data
behind a program's back.  ``torch.<name>.host_array`` is asked for by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from opsmith.errors import NoHostWindow

if TYPE_CHECKING:
    import numpy


class HostWindow:
    """The host's addresses of a driver's memory; the driver is opened when it is first asked."""

    def __init__(self, driver: Path, is_used: bool) -> None:
        self._driver = driver
        self._is_used = is_used

    def array(self, tensor: torch.Tensor, device_type: str) -> numpy.ndarray[Any, Any]:
        """See ``torch.<name>.host_array``."""
        import numpy

        if tensor.device.type != device_type:
            raise ValueError(f"expected a tensor on {device_type}, but got one on {tensor.device}")
        dtype = _numpy_dtype(tensor)
        torch.accelerator.synchronize(tensor.device)
        itemsize = dtype.itemsize
        interface = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": dtype.str,
            "strides": tuple(stride * itemsize for stride in tensor.stride()),
            "data": (self._address(tensor), False),
        }
        if tensor.numel() == 0:
            return numpy.empty(tuple(tensor.shape), dtype)
        return numpy.asarray(_Memory(tensor, interface))

    def _address(self, tensor: torch.Tensor) -> int:
        """The host's address of the first element; 0 where there is none."""
        from opsmith.driver.opened import open_library, table_of

        table = table_of(open_library(self._driver), self._driver) if self._is_used else None
        if table is None or not table.host_window:
            raise NoHostWindow(
                f"the host cannot address the memory of {tensor.device}: it is used without a host window",
                remedy="copy it, .cpu().numpy()",
            )
        if tensor.numel() == 0:
            return 0
        address: int | None = table.host_window(tensor.data_ptr())
        if not address:
            raise NoHostWindow(
                f"the host window of {tensor.device} does not know the tensor's memory",
                remedy="copy it, .cpu().numpy()",
            )
        return address


class _Memory:
    """The object that NumPy makes an array of and keeps with it: the tensor's memory lives as long."""

    def __init__(self, tensor: torch.Tensor, interface: dict[str, Any]) -> None:
        self._tensor = tensor.detach()
        self.__array_interface__ = interface


def _numpy_dtype(tensor: torch.Tensor) -> numpy.dtype[Any]:
    """NumPy's dtype of the elements, which must lie in memory as they are."""
    if tensor.requires_grad:
        raise RuntimeError("the tensor requires grad; use torch.Tensor.detach()")
    if tensor.layout != torch.strided:
        raise TypeError(f"the tensor's layout is {tensor.layout}; use torch.Tensor.to_dense()")
    if tensor.is_conj() or tensor.is_neg():
        raise RuntimeError(
            "the tensor is conjugated or negated when it is read; use torch.Tensor.resolve_conj() and "
            "torch.Tensor.resolve_neg()"
        )
    dtype: numpy.dtype[Any] = torch.empty(0, dtype=tensor.dtype, device="cpu").numpy().dtype
    return dtype
