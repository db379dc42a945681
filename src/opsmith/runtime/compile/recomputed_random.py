"""Random operators that a compiled backward pass runs again, on the device.

For what activation checkpointing recomputes, AOTAutograd has the forward pass save the generator's state and
the backward pass restore it.  The higher-order operators that do so, ``run_and_save_rng_state`` and
``run_with_rng_state``, know the devices that PyTorch was built with by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from opsmith.schema.torch_names import DispatchKey, tree_leaves, tree_map


def draw_again(device: str) -> None:
    """Has both operators save and restore the states of generators of ``device``."""
    from opsmith.schema.torch_names import (
        FakeTensorMode,
        ProxyTorchDispatchMode,
        run_and_save_rng_state,
        run_with_rng_state,
        track_tensor_tree,
    )

    generators = getattr(torch, device)

    def device_of(call: Any, options: Mapping[str, Any]) -> torch.device | None:
        """The device that the call names, or has a Tensor on; None where it is of another type."""
        if named := options.get("device"):
            devices = [torch.device(named)]
        else:  # a saved state is on the CPU
            devices = [
                each.device
                for each in tree_leaves((call, options))
                if isinstance(each, torch.Tensor)
            ]
        return next((each for each in devices if each.type == device), None)

    def for_device(table: dict[Any, Any], key: Any, ours: Callable[..., Any]) -> None:
        """Has ``ours`` serve the calls of ``device``, which it gets first, and the ``table`` all others."""
        of_others = table[key]

        def chosen(*call: Any, **options: Any) -> Any:
            found = device_of(call, options)
            return ours(found, *call, **options) if found else of_others(*call, **options)

        table[key] = chosen

    def saving(of_call: torch.device, operator: Any, *arguments: Any, **options: Any) -> Any:
        return generators.get_rng_state(of_call), operator(*arguments, **options)

    def restoring(
        of_call: torch.device, state: torch.Tensor, operator: Any, *arguments: Any, **options: Any
    ) -> Any:
        current = generators.get_rng_state(of_call)
        generators.set_rng_state(state, of_call)
        try:
            return operator(*arguments, **options)
        finally:
            generators.set_rng_state(current, of_call)

    def saving_fake(
        of_call: torch.device, mode: Any, operator: Any, *arguments: Any, **options: Any
    ) -> Any:
        state = mode.from_tensor(generators.get_rng_state(of_call), static_shapes=True)
        with mode:
            return state, operator(*arguments, **options)

    def saving_traced(of_call: torch.device, mode: Any, *call: Any, **options: Any) -> Any:
        results = run_and_save_rng_state(*call, **options)
        traced = tree_map(mode.tracer.unwrap_proxy, (call, options))
        proxy = mode.tracer.create_proxy("call_function", run_and_save_rng_state, *traced)
        return track_tensor_tree(results, proxy, constant=None, tracer=mode.tracer)

    for operator, kernel in ((run_and_save_rng_state, saving), (run_with_rng_state, restoring)):
        kernels = operator.py_kernels
        for_device(kernels, DispatchKey.BackendSelect, kernel)
        kernels[DispatchKey.PrivateUse1] = kernels[DispatchKey.BackendSelect]
        operator._dispatch_cache.clear()
    traced = run_and_save_rng_state.python_key_table
    for_device(traced, FakeTensorMode, saving_fake)
    for_device(traced, ProxyTorchDispatchMode, saving_traced)
