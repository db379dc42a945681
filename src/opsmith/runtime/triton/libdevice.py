"""A vendor's libdevice for Triton's interpreter: mathematical functions of a block's elements, by PyTorch's.

Triton links such functions from a library in the compiler's format, which an interpreter has no use for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from opsmith.errors import Unsupported

# Those that PyTorch calls otherwise.
_NAMES = {
    "cyl_bessel_i0": "i0",
    "div_rn": "div",
    "fast_erf": "erf",
    "fast_tanh": "tanh",
    "finitef": "isfinite",
    "isfinited": "isfinite",
    "nearbyint": "round",
    "rint": "round",
}


def libdevice(name: str) -> ModuleType:
    """A module ``name`` with any function that is asked of it; those that PyTorch lacks raise when called."""
    module = ModuleType(name)
    vars(module)["__getattr__"] = functools.partial(_function, name)
    return module


def _function(module: str, name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)
    by_torch = _OTHERS.get(name) or getattr(torch, _NAMES.get(name, name), None)

    def of_elements(*args: Any, **_: Any) -> Any:
        if by_torch is None:
            raise Unsupported(f"Triton's interpreter has no `{name}` of libdevice")
        blocks = [each for each in args if hasattr(each, "handle")]
        result = by_torch(*(_elements(each) if hasattr(each, "handle") else each for each in args))
        return _block(result, blocks[0].type)

    of_elements.__name__ = name
    # By these Triton knows what a kernel may call.
    of_elements.__module__ = module
    vars(of_elements)["__triton_builtin__"] = True
    return of_elements


def _elements(block: Any) -> torch.Tensor:
    import numpy

    return torch.from_numpy(numpy.ascontiguousarray(block.handle.data))


def _divided_toward_zero(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The quotient of float32 numbers, rounded toward zero; a product of two of them is exact in float64."""
    nearest = x / y
    is_larger = (nearest.double() * y.double()).abs() > x.double().abs()
    return torch.where(is_larger, nearest.nextafter(torch.zeros(())), nearest)


_OTHERS = {"div_rz": _divided_toward_zero}


def _block(result: torch.Tensor, operand: Any) -> Any:
    """The interpreter's value of the elements of ``result``: truths, or numbers of the operand's dtype.

    It is a scalar where ``operand``, the type of one operand, is.
    """
    from triton import language
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    dtype = language.int1 if result.dtype is torch.bool else operand.scalar
    data = result.numpy().astype(_get_np_dtype(dtype))
    kind = language.block_type(dtype, list(data.shape)) if operand.is_block() else dtype
    return language.tensor(TensorHandle(data, dtype), kind)
