"""transformers: the device of ``Trainer`` and ``pipeline``, bf16, random states, and its test utilities.

What asks accelerate (``device_map="auto"``, fp16) is in :mod:`opsmith.runtime.integrations.for_accelerate`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opsmith.runtime.integrations.parts import changed, part, replace_function, replace_method
from opsmith.runtime.integrations.random_states import restore_random_states, save_random_states

if TYPE_CHECKING:
    import torch


def _choose_the_device(module: ModuleType, device: str) -> None:
    """``TrainingArguments.device``; ``use_cpu`` and ``ACCELERATE_TORCH_DEVICE`` come before it."""
    import torch

    before = part(module, "TrainingArguments._setup_devices")
    if not isinstance(before, functools.cached_property):
        raise changed(module, "has no TrainingArguments._setup_devices that is a cached property")

    def _setup_devices(arguments: Any) -> torch.device:
        chosen: torch.device = before.func(arguments)
        is_one_process = getattr(arguments.distributed_state, "backend", "other") is None
        if arguments.use_cpu or "ACCELERATE_TORCH_DEVICE" in os.environ or not is_one_process:
            return chosen
        torch.accelerator.set_device_index(0)
        arguments._n_gpu = 1
        return torch.device(device, 0)

    replacement = functools.cached_property(_setup_devices)
    replacement.__set_name__(part(module, "TrainingArguments"), "_setup_devices")
    replace_method(module, "TrainingArguments._setup_devices", lambda _: replacement)


def _take_bf16(module: ModuleType, device: str) -> None:
    """``TrainingArguments(bf16=True)``."""
    import torch

    def make(before: Callable[[], bool]) -> Callable[[], bool]:
        def is_torch_bf16_gpu_available() -> bool:
            return bool(getattr(torch, device).is_bf16_supported())

        return is_torch_bf16_gpu_available

    replace_function(module, "is_torch_bf16_gpu_available", make)


def _keep_random_states(module: ModuleType, device: str) -> None:
    """``Trainer``'s checkpoints: a file for the device beside that of the CPU."""

    def path(trainer: Any, folder: str) -> str:
        return os.path.join(folder, f"rng_state_{device}_{trainer.args.process_index}.pth")

    def make_saving(before: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(before)
        def save(trainer: Any, output_dir: str) -> None:
            before(trainer, output_dir)
            save_random_states(device, path(trainer, output_dir))

        return save

    def make_loading(before: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(before)
        def load(trainer: Any, checkpoint: str | None) -> None:
            before(trainer, checkpoint)
            if checkpoint is not None:
                restore_random_states(device, path(trainer, checkpoint))

        return load

    replace_method(module, "Trainer._save_rng_state", make_saving)
    replace_method(module, "Trainer._load_rng_state", make_loading)


def _place_pipelines(module: ModuleType, device: str) -> None:
    """``pipeline(…)`` without a device, or with the index of one; ``device="cpu"`` and -1 are the CPU."""
    import torch

    def make(before: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(before)
        if "device" not in signature.parameters or "model" not in signature.parameters:
            raise changed(
                module, "has no Pipeline.__init__ with the arguments `model` and `device`"
            )

        @functools.wraps(before)
        def initialize(*arguments: Any, **options: Any) -> None:
            given = signature.bind(*arguments, **options)
            device_map = getattr(given.arguments["model"], "hf_device_map", None)
            asked = given.arguments.get("device")
            if device_map is None:
                index = 0 if asked is None else asked
                if isinstance(index, int) and index >= 0:
                    given.arguments["device"] = torch.device(device, index)
            before(*given.args, **given.kwargs)
            first = next(iter(device_map.values()), None) if device_map else None
            if isinstance(first, int):
                arguments[0].device = torch.device(device, first)

        return initialize

    replace_method(module, "Pipeline.__init__", make)


_TEST_TABLES = {
    "BACKEND_MANUAL_SEED": "manual_seed",
    "BACKEND_EMPTY_CACHE": "empty_cache",
    "BACKEND_DEVICE_COUNT": "device_count",
    "BACKEND_RESET_MAX_MEMORY_ALLOCATED": "reset_peak_memory_stats",
    "BACKEND_RESET_PEAK_MEMORY_STATS": "reset_peak_memory_stats",
    "BACKEND_MAX_MEMORY_ALLOCATED": "max_memory_allocated",
    "BACKEND_MEMORY_ALLOCATED": "memory_allocated",
    "BACKEND_SYNCHRONIZE": "synchronize",
}


def _be_tested(module: ModuleType, device: str) -> None:
    """``torch_device`` and what tests ask of it; ``TRANSFORMERS_TEST_DEVICE`` comes before it."""
    import torch

    device_module = getattr(torch, device)
    if part(module, "torch_device") == "cpu" and "TRANSFORMERS_TEST_DEVICE" not in os.environ:
        vars(module)["torch_device"] = device
    for table, function in _TEST_TABLES.items():
        part(module, table).setdefault(device, getattr(device_module, function))
    part(module, "BACKEND_TORCH_ACCELERATOR_MODULE").setdefault(device, device_module)


CHANGES = {
    "transformers.training_args": _choose_the_device,
    "transformers.utils.import_utils": _take_bf16,
    "transformers.trainer": _keep_random_states,
    "transformers.pipelines.base": _place_pipelines,
    "transformers.testing_utils": _be_tested,
}
