"""The loaded sim driver, for tests that inject faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sim_driver import SimDriver

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend


@pytest.fixture
def driver(sim: LoadedBackend) -> Iterator[SimDriver]:
    """Without any faults before and after the test, when both devices have done their work."""
    import torch

    loaded = SimDriver(sim.built.driver)
    loaded.clear_faults()
    yield loaded
    loaded.clear_faults()
    for device in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(device)
