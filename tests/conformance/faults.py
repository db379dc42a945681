"""Kernels on sim with planted faults, which ``test_conform.py`` has found."""

from __future__ import annotations

import ctypes
import time

import torch
from torch import Tensor

import opsmith

sim = opsmith.load("sim")


@sim.kernel("sinh.out", dtypes=[torch.float64])
def wrong_value(self: Tensor, *, out: Tensor) -> Tensor:
    return out.copy_(self.exp())


@sim.kernel("atan.out", dtypes=[torch.float64])
def wrong_claim(self: Tensor, *, out: Tensor) -> Tensor:
    raise RuntimeError("this unit has no doubles")


@sim.kernel("erfinv.out", dtypes=[torch.float64])
def hang(self: Tensor, *, out: Tensor) -> Tensor:
    while True:
        time.sleep(1)


@sim.kernel("expm1.out", dtypes=[torch.float64])
def crash(self: Tensor, *, out: Tensor) -> Tensor:
    ctypes.string_at(0)
    return out


@sim.kernel("index_select", dtypes=[torch.float64])
def wrong_for_short_indices(self: Tensor, dim: int, index: Tensor) -> Tensor:
    if index.dtype is not torch.int64 or self.dim() == 0:
        return self.clone()
    return torch.stack([self.select(dim, place) for place in index.tolist()], dim)
