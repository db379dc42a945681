"""The kernels of this backend, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, alpha):
    return x + alpha * y


@triton.jit
def greater(x, y):
    return x > y


@triton.jit
def quotient(x, y, rounding_mode):
    quotient = x / y
    if rounding_mode == "floor":
        quotient = tl.floor(quotient)
    return quotient


@triton.jit
def inverse_root(x):
    return 1 / tl.sqrt(x)


@triton.jit
def tangent(x):
    return tl.no_such_function(x)


@triton.jit
def curve(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def sigmoid(self, out, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, curve(tl.load(self + at, mask=mask)), mask=mask)


@triton.jit
def larger(self, other, out, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(self + at, mask=at < n), tl.load(other + at, mask=at < n)
    tl.store(out + at, tl.maximum(x, y), mask=at < n)


@triton.jit
def both(self, other, out, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(self + at, mask=at < n), tl.load(other + at, mask=at < n)
    tl.store(out + at, (x != 0) & (y != 0), mask=at < n)


@triton.jit
def first_with_stride(self, other, out, step, to):
    at = tl.program_id(0)
    tl.store(out + at * to, tl.load(self + at * step) + tl.load(other + at))


@triton.jit
def shrink(self, out, n, lambd, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(self + at, mask=at < n and at >= 0)
    kept = x > lambd.to(tl.float32) or not (x >= -lambd)
    tl.store(out + at, tl.where(kept, x, 0.0), mask=at < n and not at >= n)


@triton.jit
def raise_rows(self, out, columns, least, inverts, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    x = tl.load(self + at, mask=at < columns)
    other = tl.broadcast_to(columns.to(tl.float32) != columns.to(tl.float32), (BLOCK,))
    x = tl.where(inverts.to(tl.int1) & ~other, (~x.to(tl.uint32)).to(tl.int64), x)
    tl.store(out + at, tl.maximum(x, least), mask=at < columns)


def raised(self, min):
    out = torch.empty_like(self)
    raise_rows[(1,)](self.contiguous(), out, self.numel(), min, True, BLOCK=16)
    return out


@triton.jit
def copy_diagonal(self, out, step, to):
    at = tl.program_id(0)
    tl.store(out + at * to, tl.load(self + at * step))


@triton.autotune([triton.Config({"SPARE": spare}) for spare in (1, 2)], key=["columns"])
@triton.jit
def softmax_of_rows(x, out, columns, BLOCK: tl.constexpr, SPARE: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


def softmax(self, dim, half_to_float, *, out):
    x = self.movedim(dim, -1).contiguous()
    result = torch.empty_like(x)
    columns = x.shape[-1]
    if x.numel():
        softmax_of_rows[(x.numel() // columns,)](
            x, result, columns, BLOCK=triton.next_power_of_2(columns)
        )
    out.copy_(result.movedim(-1, dim))
