"""Operators of the kernel libraries that come with opsmith, as a graph needs them while it is lowered.

ExecuTorch's passes ask an operator for its schema and for the shape of its result, and PyTorch knows those of
a backend once that is loaded.  Where it is not, they are defined here, so that nothing has to be built for
it.  ExecuTorch keeps what it has found of an operator, so they stay until the process ends; a backend that is
loaded later adds its kernels to them.  Called by ``export``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from opsmith.description import Backend
from opsmith.schema import Catalogue

OfResult = Callable[..., Any]

_libraries: list[torch.library.Library] = []


def define_for_lowering(
    namespace: str, results: Mapping[str, OfResult], backend: Backend, catalogue: Catalogue
) -> list[str]:
    """Has PyTorch know those of ``results``' operators for which ``backend`` has kernels, and names them.

    ``results`` has, by the operator's functional variant, the function that makes an empty result of its
    arguments; each has an out variant, which the kernels are for.
    """
    served = {each.operator for lib in backend.executorch_libraries for each in lib.kernels}
    known = getattr(torch.ops, namespace)
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    available = []
    for name, of_result in results.items():
        packet, _, overload = name.partition(".")
        functional = f"{namespace}::{name}"
        out = f"{functional}_out" if overload else f"{functional}.out"
        if out not in served:
            continue
        available.append(name)
        if hasattr(known, packet) and (overload or "default") in getattr(known, packet).overloads():
            continue
        for each in (functional, out):
            library.define(catalogue.operators[each].schema)  # type: ignore[no-untyped-call]
        torch.library.register_fake(functional, of_result, lib=library)
    return available


def image_of_windows(
    input: Tensor, channels: int, window: tuple[list[int], ...], ceil: bool = False
) -> Tensor:
    """An empty channels-last image, of what windows over ``input`` give.

    ``window`` is kernel, stride, padding and dilation, each with one number or one for each dimension.
    """
    sizes = []
    for d in range(2):
        kernel, stride, padding, dilation = (each[d if len(each) > 1 else 0] for each in window)
        size = input.shape[2 + d]
        room = size + 2 * padding - dilation * (kernel - 1) - 1
        count = (room + (stride - 1 if ceil else 0)) // stride + 1
        if ceil and (count - 1) * stride >= size + padding:
            count -= 1
        sizes.append(count)
    shape = (input.shape[0], channels, *sizes)
    return torch.empty(
        shape, dtype=input.dtype, device=input.device, memory_format=torch.channels_last
    )
