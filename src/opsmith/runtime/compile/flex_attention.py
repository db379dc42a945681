"""FlexAttention on the device: graphs have the products, the scores, the mask and the softmax as operators.

PyTorch refuses devices whose names it does not know, and Inductor has templates for few.  For the
device each call becomes what PyTorch calculates without a template, on all scores, which is differentiated
and fused as other operators are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from opsmith.schema.torch_names import DispatchKey, replace


def let_through(device: str) -> None:
    """Has ``torch.nn.attention.flex_attention`` take tensors on ``device``."""
    from opsmith.schema.torch_names import validate_flex_attention as of_others

    def validate_device(query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.device.type != device:
            of_others(query, key, value)

    replace("validate_flex_attention", validate_device)


def calculate_by_operators(device: str) -> None:
    """Has the higher-order operator ``flex_attention`` call operators on ``device``."""
    from opsmith.schema.torch_names import flex_attention_operator, sdpa_dense

    kernels = flex_attention_operator.py_kernels
    of_others: Callable[..., Any] = kernels[DispatchKey.Autograd]

    def differentiable(query: Tensor, *given: Any) -> Any:
        calculate = sdpa_dense if query.device.type == device else of_others
        return calculate(query, *given)

    kernels[DispatchKey.Autograd] = differentiable


def cast_under_autocast(_device: str) -> None:
    """Has the higher-order operator cast its operands under the device's autocast, as under CUDA's."""
    from opsmith.schema.torch_names import (
        DispatchKeySet,
        _ExcludeDispatchKeyGuard,
        cast_flex_attention,
        flex_attention_operator,
    )

    key = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]

    def cast(*given: Any) -> Any:
        with _ExcludeDispatchKeyGuard(DispatchKeySet(key)):
            return cast_flex_attention(*given)

    flex_attention_operator.py_impl(key)(cast)
