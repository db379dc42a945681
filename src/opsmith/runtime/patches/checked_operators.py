"""``torch.library.opcheck`` on the device, whose check of autograd's registration knows three devices.

The check is PyTorch's: an operator without a kernel for autograd returns nothing that requires a gradient.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from opsmith.runtime.integrations.imported import when_imported
from opsmith.schema.torch_names import Feature, module_of, set_up

_AUTOGRAD = ("AutogradPrivateUse1", "Autograd", "CompositeImplicitAutograd")


def check_registrations(device: str) -> None:
    """Has ``opcheck`` take arguments on ``device``, once its module is imported."""

    def replace_check(_: ModuleType) -> None:
        set_up(Feature.OPCHECK, _replace_check, device)

    when_imported(module_of("autograd_registration_check"), replace_check)


def _replace_check(device: str) -> None:
    from opsmith.schema.torch_names import (
        _dispatch_has_kernel_for_dispatch_key,
        replace,
        set_autograd_fallback_mode,
        tree_leaves,
    )
    from opsmith.schema.torch_names import autograd_registration_check as of_others

    def tensors_of(arguments: Any) -> list[torch.Tensor]:
        return [each for each in tree_leaves(arguments) if isinstance(each, torch.Tensor)]

    def autograd_registration_check(op: Any, args: Any, kwargs: Any) -> None:
        given = tensors_of((args, kwargs))
        if not any(each.device.type == device for each in given):
            of_others(op, args, kwargs)  # type: ignore[no-untyped-call]
            return
        name = op.name()
        if any(_dispatch_has_kernel_for_dispatch_key(name, key) for key in _AUTOGRAD):
            return
        with set_autograd_fallback_mode("nothing"):
            results = tensors_of(op(*args, **kwargs))
        if any(each.requires_grad for each in results if not any(each is one for one in given)):
            raise AssertionError(
                f"{name} has no kernel for autograd, and a result of its kernel for {device} requires a "
                "gradient: that kernel is incorrectly registered or calls operators that record, so the "
                "gradient may be wrong. Register its formula with torch.library.register_autograd, or let "
                "the operator be composite."
            )

    replace("autograd_registration_check", autograd_registration_check)
