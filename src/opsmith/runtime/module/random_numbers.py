"""The random functions of ``torch.<name>`` and ``torch.<name>.random``: those of ``torch.cuda``.

:mod:`opsmith.runtime.module.device_module` says what a device may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from opsmith.runtime.module.memory import AnyDevice
from opsmith.runtime.module.public_module import Submodule
from opsmith.schema.torch_names import _accelerator_hooks_device_count


class PhiloxNumbers(NamedTuple):
    """The numbers that a call may draw: those of the stream of ``seed`` from ``offset`` on, a multiple of 4.

    Number ``n`` of a stream is the one of index ``n % 4`` that Philox 4x32 with ten rounds makes of the
    counter ``n // 4`` and the key ``seed``.  Both are below ``2**64``.
    """

    seed: int
    offset: int


class RandomFunctions:
    """Functions that ``torch.<name>`` and ``torch.<name>.random`` share."""

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

    def _get_rng_state_offset(self, device: AnyDevice = None) -> int:
        """How many numbers were taken from the default generator of ``device`` since it was seeded."""
        return int(self._default_generator(device).get_offset())

    def _set_rng_state_offset(self, offset: int, device: AnyDevice = None) -> None:
        """Sets what :meth:`_get_rng_state_offset` gave, a multiple of 4."""
        self._default_generator(device).set_offset(offset)

    def _default_generator(self, device: AnyDevice) -> torch.Generator:
        generator: torch.Generator = torch.ops.opsmith.default_generator(self._index(device))
        return generator


class RandomModule(Submodule, RandomFunctions):
    """``torch.<name>.random``."""

    def __init__(self, device_type: str, index: Callable[[AnyDevice], int]) -> None:
        super().__init__(
            device_type, "random", f"The random numbers of {device_type} devices.", index
        )

    def take_philox_numbers(
        self, count: int, generator: torch.Generator | None = None, device: AnyDevice = None
    ) -> PhiloxNumbers:
        """The next ``count`` numbers of 32 bits of ``generator``, for a kernel that makes them itself.

        ``generator`` is by default that of ``device``, which is by default the current one.  The next call
        gets what follows, after up to three numbers that nobody gets.

        Raises ValueError for a negative ``count``, RuntimeError for a generator of another device, and
        NotImplementedError where the backend's numbers are the CPU's (``rng: cpu``).
        """
        index = self._index(device)
        seed, offset = torch.ops.opsmith.take_philox_numbers(count, generator, index)
        return PhiloxNumbers(seed % 2**64, offset % 2**64)


def _devices() -> range:
    return range(_accelerator_hooks_device_count())
