"""Kernels that use what Triton's language has beside arithmetic on elements."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def rows(x, largest, where, sums, counted, n, WIDE: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    at = tl.arange(0, WIDE)
    best = tl.full((WIDE,), -float("inf"), tl.float32)
    for first in range(0, n, WIDE):
        best = tl.maximum(best, tl.load(x + row * n + first + at, mask=first + at < n, other=-1e9))
    tl.store(largest + row, tl.max(best, 0))
    values = tl.load(x + row * n + at, mask=at < n, other=-1e9)
    tl.store(where + row, tl.argmax(values, 0))
    tl.store(sums + row * n + at, tl.cumsum(tl.where(at < n, values, 0.0), 0), mask=at < n)
    tl.atomic_add(counted, tl.sum((values > 0).to(tl.int32), 0))


@triton.jit
def products(a, b, out, N: tl.constexpr):  # noqa: N803
    down, along = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    left = tl.load(a + down * N + along)
    right = tl.trans(tl.load(b + down * N + along))
    product = tl.dot(left, right, input_precision="ieee")
    if tl.program_id(0) == 0:
        product = -product
    tl.store(out + tl.program_id(0) * N * N + down * N + along, product.to(out.dtype.element_ty))


@triton.jit
def integers(x, y, out, halvings, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n), tl.load(y + at, mask=at < n)  # beyond `n` divided by 0
    tl.store(out + at, a // b + (a % b) * 100 + ((a << 2) ^ (b >> 1)), mask=at < n)
    left, count = n, 0
    while left > 1:
        left = left // 2
        count += 1
    tl.store(halvings, tl.maximum(count, -5))


@triton.jit
def mathematics(x, out, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.5)
    value = libdevice.tanh(value) + tl.math.erf(value) + libdevice.log1p(tl.abs(value))
    value, _ = tl.split(tl.join(value, -value))
    value = libdevice.pow(value, 2) + libdevice.div_rz(value, 3.0 * value / value)
    tl.store(out + at, tl.fma(value, value, tl.sigmoid(value)), mask=at < n)
