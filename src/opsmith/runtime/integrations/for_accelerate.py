"""accelerate: the device that ``Accelerator()`` takes, its memory, mixed precision and random states.

accelerate asks for each device that it knows by name.  What is replaced here adds the loaded one where it
would take the CPU or CUDA.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opsmith.runtime.integrations.parts import (
    changed,
    part,
    replace_constant,
    replace_function,
    replace_method,
)
from opsmith.runtime.integrations.random_states import restore_random_states, save_random_states

if TYPE_CHECKING:
    import torch


def _choose_the_device(module: ModuleType, device: str) -> None:
    """``PartialState().device``; ``cpu=True`` and ``ACCELERATE_TORCH_DEVICE`` come before it."""
    import torch

    def default_device(state: object) -> torch.device:
        """The device that opsmith has loaded."""
        return torch.device(device)

    replace_method(module, "PartialState.default_device", lambda before: property(default_device))


def _measure_memory(module: ModuleType, device: str) -> None:
    """``device_map="auto"``: by an index, as GPUs; what the allocator keeps is free for a model."""
    import torch

    memory = getattr(torch, device)
    size_of = part(module, "convert_file_size_to_int")

    def make(before: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(before)
        def get_max_memory(max_memory: dict[Any, Any] | None = None) -> dict[Any, Any]:
            if max_memory is not None:
                mine = sorted(key for key in max_memory if key in range(memory.device_count()))
                others = before({key: max_memory[key] for key in max_memory if key not in mine})
                return {**{index: size_of(max_memory[index]) for index in mine}, **others}
            free: dict[Any, Any] = {
                index: memory.mem_get_info(index)[0]
                + memory.memory_reserved(index)
                - memory.memory_allocated(index)
                for index in range(memory.device_count())
            }
            on_the_cpu = {key: size for key, size in before().items() if key == "cpu"}
            return {**free, **on_the_cpu}

        return get_max_memory

    replace_function(module, "get_max_memory", make)


def _spread_models(module: ModuleType, device: str) -> None:
    """``device_map="auto"``: a share for each device of the type that is CUDA where it finds no other."""
    replace_constant(module, "get_balanced_memory", lambda each: device if each == "cuda" else each)


def _scale_gradients(module: ModuleType, device: str) -> None:
    """fp16's scaler, which is CUDA's otherwise, and does nothing where there is none."""
    import torch

    def make(before: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(before)
        def get_grad_scaler(distributed_type: Any = None, **options: Any) -> Any:
            chosen = importlib.import_module("accelerate.state").PartialState().device
            if chosen.type != device or str(distributed_type).endswith("FSDP"):
                return before(distributed_type, **options)
            return torch.amp.GradScaler(device, **options)

        return get_grad_scaler

    replace_function(module, "get_grad_scaler", make)


def _change_modeling(module: ModuleType, device: str) -> None:
    _measure_memory(module, device)
    _spread_models(module, device)
    _scale_gradients(module, device)


def _accept_fp16(module: ModuleType, device: str) -> None:
    """``Accelerator(mixed_precision="fp16")``, whose constructor has the devices' names as a constant."""

    def make(constant: Any) -> Any:
        is_list = isinstance(constant, tuple) and {"cuda", "xpu"} <= {*constant}
        return (*constant, device) if is_list else constant

    replace_constant(module, "Accelerator.__init__", make)


def _keep_random_states(module: ModuleType, device: str) -> None:
    """``save_state`` and ``load_state``: a file for the device beside that of the CPU."""

    def also(keep: Callable[[str, str], None], folder: str) -> Callable[[Any], Any]:
        """Calls ``keep`` with the file in the folder that the argument of that name gives."""

        def make(before: Callable[..., Any]) -> Callable[..., Any]:
            signature = inspect.signature(before)
            if not {folder, "process_index"} <= signature.parameters.keys():
                raise changed(module, f"has no {before.__name__} with {folder} and process_index")

            @functools.wraps(before)
            def kept(*arguments: Any, **options: Any) -> Any:
                result = before(*arguments, **options)
                given = signature.bind(*arguments, **options).arguments
                file = f"random_states_{device}_{given['process_index']}.pt"
                keep(device, os.path.join(given[folder], file))
                return result

            return kept

        return make

    replace_function(module, "save_accelerator_state", also(save_random_states, "output_dir"))
    replace_function(module, "load_accelerator_state", also(restore_random_states, "input_dir"))


def _empty_the_cache(module: ModuleType, device: str) -> None:
    """``release_memory`` and ``find_executable_batch_size``."""
    import torch

    def make(before: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(before)
        def clear_device_cache(garbage_collection: bool = False) -> None:
            before(garbage_collection)
            getattr(torch, device).empty_cache()

        return clear_device_cache

    replace_function(module, "clear_device_cache", make)


def _be_tested(module: ModuleType, device: str) -> None:
    """``torch_device`` of accelerate's test utilities, and what it is asked with."""
    import torch

    memory = getattr(torch, device)
    found = (device, memory.device_count(), memory.memory_allocated)
    replace_function(module, "get_backend", lambda before: lambda: found)
    for name, value in zip(
        ("torch_device", "device_count", "memory_allocated_func"), found, strict=True
    ):
        part(module, name)
        vars(module)[name] = value


CHANGES = {
    "accelerate.state": _choose_the_device,
    "accelerate.utils.modeling": _change_modeling,
    "accelerate.utils.memory": _empty_the_cache,
    "accelerate.checkpointing": _keep_random_states,
    "accelerate.accelerator": _accept_fp16,
    "accelerate.test_utils.testing": _be_tested,
}
