"""Lightning: an accelerator of the device's name in its registry, which ``"auto"`` takes.

Lightning has a registry of accelerators, and gives those that others register the CPU all the same, and
CUDA's autocast.  The connectors of ``Trainer`` and ``Fabric``, which do so, are told of the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from opsmith.errors import DevicesInvalid
from opsmith.runtime.integrations.parts import changed, part, replace_method


def _has_process_groups(device: str) -> bool:
    """Whether somebody has registered a backend of ``torch.distributed`` for the device."""
    import torch.distributed as distributed

    return distributed.is_available() and device in distributed.Backend.default_device_backend_map


def accelerator_class(base: type, device: str) -> type:
    """Lightning's accelerator for ``device``: a subclass of ``base``, the package's ``Accelerator``."""
    import torch

    def parse_devices(devices: Any) -> list[int]:
        """The indices that ``devices`` means: a number of devices, -1 for all, or indices."""
        count = torch.accelerator.device_count()
        if isinstance(devices, str):
            numbers = [int(each) for each in devices.split(",") if each.strip()]
            devices = numbers if "," in devices else numbers[0]
        indices = (
            list(range(count if devices == -1 else devices))
            if isinstance(devices, int)
            else [*devices]
        )
        if not indices or not all(index in range(count) for index in indices):
            raise DevicesInvalid(
                f"devices={devices!r} does not name any of the {count} devices of {device}",
                remedy=f"devices=1, or a list of one index below {count}",
            )
        if len(indices) > 1 and not _has_process_groups(device):
            raise DevicesInvalid(
                f"devices={devices!r} needs process groups, which {device} has not",
                remedy="devices=1, or a list of one index",
            )
        return indices

    def setup_device(self: object, chosen: torch.device) -> None:
        if chosen.type != device:
            raise DevicesInvalid(
                f"the accelerator of {device} was given {chosen}",
                remedy=f'accelerator="{device}" with a strategy on torch.device("{device}", 0)',
            )
        torch.accelerator.set_device_index(chosen)

    def get_device_stats(self: object, chosen: Any) -> dict[str, Any]:
        return dict(getattr(torch, device).memory_stats(chosen))

    def teardown(self: object) -> None:
        getattr(torch, device).empty_cache()

    members = {
        "__doc__": f"The {device} device, brought by opsmith.",
        "__module__": __name__,
        "opsmith_device": device,
        "parse_devices": staticmethod(parse_devices),
        "get_parallel_devices": staticmethod(
            lambda devices: [torch.device(device, index) for index in parse_devices(devices)]
        ),
        # More would need process groups.
        "auto_device_count": staticmethod(lambda: 1),
        "is_available": staticmethod(torch.accelerator.is_available),
        "name": staticmethod(lambda: device),
        "setup_device": setup_device,
        "get_device_stats": get_device_stats,
        "teardown": teardown,
    }
    return type(base)(f"{device.title()}Accelerator", (base,), members)


def _register(registry: str) -> Callable[[ModuleType, str], None]:
    def change(module: ModuleType, device: str) -> None:
        found = part(module, registry)
        if not callable(getattr(found, "register", None)):
            raise changed(module, f"has no {registry}.register")
        base = part(module, "Accelerator")
        found.register(
            device,
            accelerator_class(base, device),
            description=f"{device}, brought by opsmith",
            override=True,
        )

    return change


def _connect(connector: str, precision: str, plugin: str) -> Callable[[ModuleType, str], None]:
    """Changes the class ``connector``, whose attributes have the precision's name and an object for it."""

    def change(module: ModuleType, device: str) -> None:
        single_device = part(module, "SingleDeviceStrategy")
        mixed_precision = part(module, "MixedPrecision")
        own_precision = part(module, "FSDPStrategy"), part(module, "DeepSpeedStrategy")

        def is_ours(self: Any) -> bool:
            return getattr(self.accelerator, "opsmith_device", None) == device

        def make_choice(before: staticmethod[[], str]) -> staticmethod[[], str]:
            def choose() -> str:
                return device

            return staticmethod(functools.wraps(before)(choose))

        def make_strategy(before: Callable[[Any], Any]) -> Callable[[Any], Any]:
            @functools.wraps(before)
            def choose(self: Any) -> Any:
                if is_ours(self) and self._num_nodes_flag <= 1 and len(self._parallel_devices) == 1:
                    return single_device(device=self._parallel_devices[0])
                return before(self)

            return choose

        def make_precision(before: Callable[[Any], Any]) -> Callable[[Any], Any]:
            @functools.wraps(before)
            def check(self: Any) -> Any:
                asked = getattr(self, precision)
                is_mixed = asked in ("16-mixed", "bf16-mixed") and getattr(self, plugin) is None
                if is_ours(self) and is_mixed and not isinstance(self.strategy, own_precision):
                    return mixed_precision(asked, device)
                return before(self)

            return check

        replace_method(module, f"{connector}._choose_auto_accelerator", make_choice)
        replace_method(module, f"{connector}._choose_strategy", make_strategy)
        replace_method(module, f"{connector}._check_and_init_precision", make_precision)

    return change


_TRAINER = _connect("_AcceleratorConnector", "_precision_flag", "_precision_plugin_flag")
_FABRIC = _connect("_Connector", "_precision_input", "_precision_instance")

CHANGES = {
    "lightning": {
        "lightning.fabric.accelerators": _register("ACCELERATOR_REGISTRY"),
        "lightning.fabric.connector": _FABRIC,
        "lightning.pytorch.accelerators": _register("AcceleratorRegistry"),
        "lightning.pytorch.trainer.connectors.accelerator_connector": _TRAINER,
    },
    "pytorch_lightning": {
        "pytorch_lightning.accelerators": _register("AcceleratorRegistry"),
        "pytorch_lightning.trainer.connectors.accelerator_connector": _TRAINER,
    },
    "lightning_fabric": {
        "lightning_fabric.accelerators": _register("ACCELERATOR_REGISTRY"),
        "lightning_fabric.connector": _FABRIC,
    },
}
