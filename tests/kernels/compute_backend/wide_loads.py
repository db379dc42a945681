"""Kernels of ``compute`` that move several elements at once, beside the CPU's; prints what differs.

Lengths are those at which loads, the registers of a row and the size of a group change.  Run by
``test_compute_on_a_gpu.py`` against the stand-in of NVIDIA's libraries; where there is a GPU it runs
as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import opsmith

opsmith.load("cuda_driver")
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 6e-2}
LENGTHS = (1, 7, 8, 64, 257, 4096, 20_000, 20_001)


def with_gradients(call: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """The result of ``call``, and the gradients of all that it is given."""

    def called(*given: Tensor) -> list[Tensor]:
        leaves = [each.detach().requires_grad_() for each in given]
        result = call(*leaves)
        weights = torch.linspace(-1, 1, result.numel(), dtype=torch.float64)
        weights = weights.to(result.dtype).view(result.shape).to(result.device)
        return [result, *torch.autograd.grad(result, leaves, weights)]

    return called


def differs(call: Callable[..., Any], *operands: Tensor, exact: bool = False) -> bool:
    """Whether the device gives something else than the CPU, which computes in float64 where ``exact``."""
    expected = call(*(each.double() if exact else each for each in operands))
    found = call(*(each.to("cuda_driver") for each in operands))
    if isinstance(expected, Tensor):
        expected, found = [expected], [found]
    for one, other in zip(expected, found, strict=True):
        if not exact and one.dtype != other.dtype:
            return True
        wanted, given = one.detach().double(), other.detach().cpu().double()
        tolerance = TOLERANCES.get(other.dtype, 0) * max(1.0, wanted.abs().max().item())
        if not torch.allclose(given, wanted, rtol=0, atol=tolerance, equal_nan=True):
            return True
    return False


# The CPU adds up in half precision.
differs_in_half = partial(differs, exact=True)


def elementwise(dtype: torch.dtype, length: int) -> dict[str, bool]:
    a, b = (torch.randn(3, length) * 5).to(dtype), (torch.randn(3, length) * 5).to(dtype)
    single = torch.randn(3, length)
    return {
        "sum": differs(torch.add, a, b),
        "comparison": differs(torch.gt, a, b),
        "two dtypes": differs(torch.mul, a, single),
        "a number": differs(lambda x: x + 2, a),
        "from an odd place": differs(lambda x, y: x.view(-1)[1:] + y.view(-1)[1:], a, b),
        "a row for each": differs(lambda x, y: x + y[0], a, b),
        "a column for each": differs(lambda x, y: x + y[:, :1], a, b),
        "transposed": differs(lambda x, y: x.t() + y.t(), a, b),
        "a cast": differs(lambda x: x.to(torch.bfloat16), a),
        "positions": differs(lambda x: torch.arange(length, device=x.device), a),
    }


def rows(dtype: torch.dtype, length: int) -> dict[str, bool]:
    a = torch.randn(3, length).to(dtype)
    weight, bias = torch.randn(length).to(dtype), torch.randn(length).to(dtype)
    many = torch.randn(200, min(length, 300)).to(dtype)
    tall = torch.randn(1500, many.shape[1]).to(dtype)
    image = torch.randn(4, 3, min(length, 300)).to(dtype)

    def norm(x: Tensor, *parameters: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[1:], *parameters)

    def batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return functional.batch_norm(x, None, None, w, b, training=True)

    found = {
        "rows' sums": differs(lambda x: x.sum(-1), a),
        "columns' sums": differs(lambda x: x.sum(0), a),
        "sums from an odd place": differs(lambda x: x[:, 1:].sum(-1), a),
        "largest": differs(lambda x: x.max(-1), a),
        "many rows' sum": differs_in_half(lambda x: x.sum(0), tall),
        "many rows' largest": differs(lambda x: x.max(0), tall),
        "many rows' variance": differs_in_half(lambda x: x.var(0), tall),
        "all rows of images": differs_in_half(lambda x: x.sum((0, 1)), tall.view(10, 150, -1)),
        "softmax": differs_in_half(with_gradients(lambda x: x.softmax(-1)), a),
        "log_softmax": differs_in_half(with_gradients(lambda x: x.log_softmax(-1)), a),
        "softmax of columns": differs_in_half(with_gradients(lambda x: x.softmax(0)), a),
        "layer_norm of many rows": differs_in_half(
            with_gradients(norm), many, weight[: many.shape[1]], bias[: many.shape[1]]
        ),
    }
    if length > 1:
        found["layer_norm"] = differs_in_half(with_gradients(norm), a, weight, bias)
        found["batch_norm"] = differs_in_half(
            with_gradients(batch_norm), image, weight[:3], bias[:3]
        )
    return found


torch.manual_seed(0)
compared: dict[tuple[str, torch.dtype, int], bool] = {}
for length in LENGTHS:
    for dtype in (*TOLERANCES, torch.int64, torch.int32, torch.uint8, torch.bool):
        found = elementwise(dtype, length)
        if dtype in TOLERANCES:
            found |= rows(dtype, length)
        compared |= {(name, dtype, length): each for name, each in found.items()}
wrong = [f"{name} of {length} {dtype}" for (name, dtype, length), each in compared.items() if each]
print(*wrong, sep="\n")
print(f"{len(wrong)} of {len(compared)} differ")
