"""Adding in place beside adding."""

import time

import torch

from opsmith.inspect.measurements import measured, report


def rounds(call):
    for _ in range(9):
        start = time.perf_counter()
        call()
        yield 1e6 * (time.perf_counter() - start)


x = torch.rand(1000)
report(
    "adding 1,000 elements; peer: out of place",
    [
        measured(
            "in place",
            "µs",
            list(rounds(lambda: x.add_(1))),
            list(rounds(lambda: x + 1)),
            goal=1.5,
            operator="add_.Tensor",
        )
    ],
)
