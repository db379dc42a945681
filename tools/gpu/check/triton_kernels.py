"""Kernels in Triton on the device of a ``backend.yaml`` beside the CPU's: values, and the times of calls.

``python tools/gpu/check/triton_kernels.py BACKEND`` prints a line for each call and ends with one of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

import opsmith

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: torch.add(x, x, alpha=3),
    "add of columns": lambda x: torch.add(x[:, ::2], 1),
    "gt": lambda x: (x > x.flip(0)).to(x.dtype),
    "div": lambda x: torch.div(x, x.abs() + 1, rounding_mode="floor"),
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: torch.softmax(x.float(), 1),
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def microseconds(call: Callable[[], object], device: str) -> float:
    """The host's time of one call among two hundred, all of which are waited for at the end."""
    call()
    torch.accelerator.synchronize(device)
    start = time.perf_counter()
    for _ in range(200):
        call()
    torch.accelerator.synchronize(device)
    return (time.perf_counter() - start) / 200 * 1e6


def main() -> None:
    device = opsmith.load(sys.argv[1]).name
    torch.manual_seed(0)
    found = []
    for dtype in DTYPES:
        x = torch.randn(64, 1000).to(dtype)
        there = x.to(device)
        for name, call in CALLS.items():
            with opsmith.count_fallbacks(callers=False) as block:
                result = call(there)
            difference = (result.cpu().double() - call(x).double()).abs().max().item()
            close = difference <= (1e-5 if dtype is torch.float32 else 2e-2)
            on_host = [each.operator for each in block.fallbacks.counts]
            us = microseconds(lambda call=call, there=there: call(there), device)  # type: ignore[misc]
            found.append([name, str(dtype), difference, us, on_host, close and not on_host])
            print(*found[-1])
    print(json.dumps({"calls": found}))
    if not all(each[-1] for each in found):
        sys.exit("failed: values differ, or the host computed them")


if __name__ == "__main__":
    main()
