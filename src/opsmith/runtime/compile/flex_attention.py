"""FlexAttention on the device: graphs have the products, the scores, the mask and the softmax as operators.

PyTorch refuses devices whose names it does not know, and Inductor has templates for few.  For the
device each call becomes what PyTorch calculates without a template, on all scores, which is differentiated
and fused as other operators are.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

_AUTOGRAD = torch._C.DispatchKey.Autograd


def let_through(module: ModuleType, device: str) -> None:
    """Has ``torch.nn.attention.flex_attention``, the ``module``, take tensors on ``device``."""
    refuse: Callable[[Tensor, Tensor, Tensor], None] = module._validate_device

    def _validate_device(query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.device.type != device:
            refuse(query, key, value)

    vars(module)["_validate_device"] = _validate_device


def calculate_by_operators(module: ModuleType, device: str) -> None:
    """Has ``torch._higher_order_ops.flex_attention``, the ``module``, call operators on ``device``."""
    kernels = module.flex_attention.py_kernels
    of_others: Callable[..., Any] = kernels[_AUTOGRAD]

    def differentiable(query: Tensor, *given: Any) -> Any:
        calculate = module.sdpa_dense if query.device.type == device else of_others
        return calculate(query, *given)

    kernels[_AUTOGRAD] = differentiable
