"""Kernels on sim that are wrong for some calls only, which ``test_fuzz.py`` has found by random programs."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

import opsmith

sim = opsmith.load("sim")


@sim.kernel("abs.out", dtypes=[torch.float32])
def wrong_for_negative_numbers(self: Tensor, *, out: Tensor) -> Tensor:
    return out.copy_(self.mul(self))


@sim.kernel("trunc.out", dtypes=[torch.float32])
def crash(self: Tensor, *, out: Tensor) -> Tensor:
    ctypes.string_at(0)
    return out
