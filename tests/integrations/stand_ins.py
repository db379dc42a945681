"""Packages that are as the libraries are where opsmith changes them, and no more.

:func:`write_packages` writes them into a folder, for programs that are to find them there.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

FILES = {
    "accelerate/__init__.py": """
        from accelerate.accelerator import Accelerator
        """,
    "accelerate/state.py": """
        import torch

        class PartialState:
            shared = {}

            def __init__(self, cpu=False):
                self.__dict__ = self.shared
                if not self.shared:
                    self.device = torch.device("cpu") if cpu else self.default_device

            @property
            def default_device(self):
                return torch.device("cpu")
        """,
    "accelerate/utils/__init__.py": """
        from accelerate.utils.modeling import get_balanced_memory, get_max_memory
        """,
    "accelerate/utils/modeling.py": """
        import torch

        def convert_file_size_to_int(size):
            return {"1KB": 1000}.get(size, size)

        def get_max_memory(max_memory=None):
            if max_memory is None:
                return {"cpu": 5}
            assert all(isinstance(key, str) for key in max_memory), "asks torch.cuda"
            return {key: convert_file_size_to_int(size) for key, size in max_memory.items()}

        def get_balanced_memory(max_memory):
            type = "cuda"
            return [key for key in max_memory if torch.device(key).type == type]

        def get_grad_scaler(distributed_type=None, **options):
            return torch.amp.GradScaler("cuda", **options)
        """,
    "accelerate/utils/memory.py": """
        def clear_device_cache(garbage_collection=False):
            pass
        """,
    "accelerate/checkpointing.py": """
        def save_accelerator_state(output_dir, models, optimizers, schedulers, loaders, process_index):
            return output_dir

        def load_accelerator_state(input_dir, models, optimizers, schedulers, loaders, process_index):
            return {}
        """,
    "accelerate/accelerator.py": """
        from accelerate.state import PartialState
        from accelerate.utils.modeling import get_grad_scaler

        class Accelerator:
            def __init__(self, mixed_precision="no", cpu=False):
                self.device = PartialState(cpu).device
                self.scaler = None
                if mixed_precision == "fp16" and self.device.type != "cpu":
                    supported = ("xpu", "cuda", "npu")
                    if self.device.type not in supported:
                        raise ValueError(f"fp16 mixed precision requires a device in {supported}")
                    self.scaler = get_grad_scaler()
        """,
    "safetensors/__init__.py": """
        class safe_open:
            def __init__(self, filename, framework, device="cpu", *, backend="mmap"):
                if not isinstance(device, int) and device not in ("cpu", "cuda"):
                    raise ValueError(f"device {device} is invalid")
                self.device = device
        """,
    "safetensors/torch.py": """
        from safetensors import safe_open

        def load_file(filename, device="cpu", *, backend="mmap"):
            return safe_open(filename, framework="pt", device=device, backend=backend).device
        """,
    "transformers/__init__.py": "",
    "transformers/training_args.py": """
        import functools
        import os
        import types

        import torch

        class TrainingArguments:
            def __init__(self, use_cpu=False):
                self.use_cpu = use_cpu
                self.distributed_state = types.SimpleNamespace(backend=None)

            @functools.cached_property
            def _setup_devices(self):
                return torch.device(os.environ.get("ACCELERATE_TORCH_DEVICE", "cpu"))

            @property
            def device(self):
                return self._setup_devices
        """,
    "transformers/testing_utils.py": """
        import os

        torch_device = os.environ.get("TRANSFORMERS_TEST_DEVICE", "cpu")
        BACKEND_MANUAL_SEED, BACKEND_EMPTY_CACHE, BACKEND_DEVICE_COUNT = {}, {}, {}
        BACKEND_RESET_MAX_MEMORY_ALLOCATED, BACKEND_RESET_PEAK_MEMORY_STATS = {}, {}
        BACKEND_MAX_MEMORY_ALLOCATED, BACKEND_MEMORY_ALLOCATED = {}, {}
        BACKEND_SYNCHRONIZE, BACKEND_TORCH_ACCELERATOR_MODULE = {}, {}
        """,
    "transformers/pipelines/__init__.py": "",
    "transformers/pipelines/base.py": """
        import torch

        class Pipeline:
            def __init__(self, model, task="", device=None):
                self.model = model
                self.device = device if isinstance(device, torch.device) else torch.device("cpu")
        """,
    "pytorch_lightning/__init__.py": """
        from pytorch_lightning.trainer.connectors.accelerator_connector import _AcceleratorConnector
        """,
    "pytorch_lightning/accelerators.py": """
        from abc import ABC, abstractmethod

        class Accelerator(ABC):
            @abstractmethod
            def setup_device(self, device): ...

            @staticmethod
            @abstractmethod
            def auto_device_count(): ...

        class Registry(dict):
            def register(self, name, accelerator, description="", override=False):
                assert override or name not in self
                self[name] = accelerator

        AcceleratorRegistry = Registry()
        """,
    "pytorch_lightning/trainer/__init__.py": "",
    "pytorch_lightning/trainer/connectors/__init__.py": "",
    "pytorch_lightning/trainer/connectors/accelerator_connector.py": """
        from pytorch_lightning.accelerators import AcceleratorRegistry

        class SingleDeviceStrategy:
            def __init__(self, device):
                self.root_device = device

        class FSDPStrategy: ...

        class DeepSpeedStrategy: ...

        class MixedPrecision:
            def __init__(self, precision, device):
                self.precision, self.device = precision, device

        class _AcceleratorConnector:
            def __init__(self, accelerator="auto", devices=1, precision="32-true"):
                self._precision_flag, self._precision_plugin_flag = precision, None
                self._num_nodes_flag = 1
                name = self._choose_auto_accelerator() if accelerator == "auto" else accelerator
                self.accelerator = AcceleratorRegistry[name]() if name != "cpu" else None
                if self.accelerator:
                    self._parallel_devices = self.accelerator.get_parallel_devices(devices)
                self.strategy = self._choose_strategy()
                self.precision = self._check_and_init_precision()

            @staticmethod
            def _choose_auto_accelerator():
                return "cpu"

            def _choose_strategy(self):
                return SingleDeviceStrategy("cpu")

            def _check_and_init_precision(self):
                return MixedPrecision(self._precision_flag, "cuda")
        """,
}


def write_packages(folder: Path, changes: dict[str, str] | None = None) -> None:
    """Writes the packages into ``folder``, with ``changes`` in the place of files of their names."""
    for name, text in {**FILES, **(changes or {})}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text).lstrip())
