"""The states of the device's generators in a file of their own, beside a library's checkpoint."""

from __future__ import annotations

import os


def save_random_states(device: str, path: str) -> None:
    """Writes the states of the generators of all devices of the type ``device``."""
    import torch

    torch.save(getattr(torch, device).get_rng_state_all(), path)


def restore_random_states(device: str, path: str) -> None:
    """Sets the generators to the states in ``path``, which a checkpoint made without the device has not."""
    import torch

    if os.path.isfile(path):
        states = torch.load(path, map_location="cpu", weights_only=True)
        getattr(torch, device).set_rng_state_all(states)
