"""The products of ``cublas`` on the device of ``backend.yaml`` beside the CPU's; prints what differs.

Run by ``test_cublas.py`` against the stand-in of NVIDIA's libraries; where there is a GPU, tools/gpu/check
runs it with a backend of its own, the one argument.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import opsmith

here = str(Path(__file__).with_name("backend.yaml"))
device = opsmith.load(sys.argv[1] if sys.argv[1:] else here).name
ORDERS = ((0, 1, 2), (0, 2, 1), (1, 2, 0))
TOLERANCES = {
    torch.float32: 1e-4,
    torch.float64: 1e-9,
    torch.float16: 2e-2,
    torch.bfloat16: 2e-1,
}


def laid(sizes: tuple[int, ...], order: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Random numbers whose dimensions lie in memory in this order."""
    places = [order.index(dim) for dim in range(3)]
    return torch.randn([sizes[dim] for dim in order]).to(dtype).permute(places)


def into(order: tuple[int, ...], beta: float, alpha: float, *operands: Tensor) -> Tensor:
    """The sum of the products of batches, in a result that lies in this order."""
    sizes = (operands[1].shape[0], operands[1].shape[1], operands[2].shape[2])
    out = torch.empty([sizes[dim] for dim in order], dtype=operands[0].dtype).to(operands[0].device)
    places = [order.index(dim) for dim in range(3)]
    return torch.baddbmm(*operands, beta=beta, alpha=alpha, out=out.permute(places))


def compare(dtype: torch.dtype, call: Callable[..., Tensor], *operands: Tensor) -> int:
    """1 where the device gives something else than the CPU."""
    expected = call(*operands).double()
    found = call(*(each.to(device) for each in operands)).cpu().double()
    tolerance = TOLERANCES[dtype]
    if torch.allclose(found, expected, rtol=tolerance, atol=tolerance):
        return 0
    print(f"{call} {dtype} {[tuple(each.shape) for each in operands]} differs")
    return 1


wrong = compared = 0
torch.manual_seed(0)
for dtype in TOLERANCES:
    for m, k, n in ((1, 1, 1), (3, 0, 4), (0, 3, 4), (1, 5, 1), (5, 1, 7), (6, 7, 8)):
        for order_a, order_b in itertools.product(ORDERS, ORDERS):
            a, b = laid((3, m, k), order_a, dtype), laid((3, k, n), order_b, dtype)
            found = [compare(dtype, torch.mm, a[0], b[0]), compare(dtype, torch.bmm, a, b)]
            for beta, alpha in ((1, 1), (0, 2), (0.5, 2)):
                row = torch.randn(n).to(dtype) * (float("nan") if beta == 0 else 1)
                add = partial(torch.addmm, beta=beta, alpha=alpha)
                found += [
                    compare(dtype, add, row, a[0], b[0]),
                    compare(dtype, partial(into, order_a, beta, alpha), row, a, b),
                ]
            wrong, compared = wrong + sum(found), compared + len(found)
fell_back = {each.operator for each in opsmith.fallbacks().counts}
print(
    f"{wrong} of {compared} differ; on the CPU: {sorted(each for each in fell_back if 'mm' in each)}"
)
sys.exit(wrong > 0)
