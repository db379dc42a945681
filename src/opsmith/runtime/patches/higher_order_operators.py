"""Higher-order operators under the device's autocast.

``torch.cond``, ``torch.while_loop`` and their kin have no rule for autocast: what they call casts.  PyTorch
has autocast on the CPU, CUDA and XPU pass over them.
"""

from __future__ import annotations


def let_autocast_through(_device: str) -> None:
    """Has autocast on the device pass over every higher-order operator that has no rule for it."""
    from opsmith.schema.torch_names import FALLTHROUGH_KEYS, DispatchKey, higher_order_operators

    key = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
    if key not in FALLTHROUGH_KEYS:
        FALLTHROUGH_KEYS.append(key)  # of those that are made from now on
    for operator in higher_order_operators.values():
        if key not in operator.py_kernels:
            operator.fallthrough(key)  # type: ignore[no-untyped-call]
