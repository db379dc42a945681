"""The random functions of ``torch.<name>`` and ``torch.<name>.random``: those of ``torch.cuda``.

:mod:`opsmith.runtime.device_module` says what a device may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from opsmith.runtime.memory import AnyDevice
from opsmith.runtime.public_module import Submodule


class RandomFunctions:
    """What ``torch.<name>`` and ``torch.<name>.random`` both have."""

    def _index(self, device: AnyDevice) -> int:
        raise NotImplementedError

    def manual_seed(self, seed: int) -> None:
        """Seeds the current device's default generator."""
        self._default_generator(None).manual_seed(int(seed))

    def manual_seed_all(self, seed: int) -> None:
        """Seeds the default generator of every device; ``torch.manual_seed`` calls this."""
        for index in _devices():
            self._default_generator(index).manual_seed(int(seed))

    def seed(self) -> None:
        """Seeds the current device's default generator with a number that differs each time."""
        self._default_generator(None).seed()

    def seed_all(self) -> None:
        """Seeds the default generator of every device with the same number, another each time."""
        self.manual_seed_all(torch.Generator().seed())

    def initial_seed(self) -> int:
        """The seed of the current device's default generator."""
        return self._default_generator(None).initial_seed()

    def get_rng_state(self, device: AnyDevice = None) -> torch.Tensor:
        """The state of the default generator of ``device``, as bytes on the CPU."""
        return self._default_generator(device).get_state()

    def set_rng_state(self, new_state: torch.Tensor, device: AnyDevice = None) -> None:
        """Sets what :meth:`get_rng_state` gave."""
        self._default_generator(device).set_state(new_state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        """The states of all devices, by their indices."""
        return [self.get_rng_state(index) for index in _devices()]

    def set_rng_state_all(self, new_states: Iterable[torch.Tensor]) -> None:
        """Sets what :meth:`get_rng_state_all` gave."""
        for index, state in enumerate(new_states):
            self.set_rng_state(state, index)

    def _default_generator(self, device: AnyDevice) -> torch.Generator:
        generator: torch.Generator = torch.ops.opsmith.default_generator(self._index(device))
        return generator


class RandomModule(Submodule, RandomFunctions):
    """``torch.<name>.random``."""

    def __init__(self, device_type: str, index: Callable[[AnyDevice], int]) -> None:
        super().__init__(
            device_type, "random", f"The random numbers of {device_type} devices.", index
        )


def _devices() -> range:
    return range(torch._C._accelerator_hooks_device_count())
