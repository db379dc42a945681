"""Ten thousand calls give back all that they took, on the device and on the host."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from loaded import DEVICE, fault, statistics
from torch import Tensor

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_BACKEND=("zero_copy_uncached", "copying_uncached"), opinfo=True
)

MATRIX = torch.rand(16, 16, device=DEVICE)
WIDE = torch.rand(16, 16, dtype=torch.complex64, device=DEVICE)
OUT = torch.empty(16, 16, device=DEVICE)
MANY = [torch.rand(5, device=DEVICE) for _ in range(30)]


def raising(call: Callable[[], object]) -> None:
    with suppress(RuntimeError, IndexError):
        call()


def out_of_memory() -> None:
    with fault("allocate"):
        raising(lambda: MATRIX.cumsum(0))


def kept_view() -> Tensor:
    return MATRIX.cumsum(0)[1:].unfold(0, 2, 1)


def backward() -> None:
    leaf = MATRIX.detach().requires_grad_()
    leaf.cumsum(0).logsumexp(1).sum().backward()


MIX: list[Callable[[], object]] = [
    lambda: MATRIX.cumsum(0),
    lambda: MATRIX.sort(dim=1),
    lambda: MATRIX[:, 1:4].cosh_().clamp_(0, 1),
    lambda: torch.cumsum(MATRIX, 1, out=OUT),
    lambda: torch.cumsum(MATRIX, 1, out=torch.empty(0, device=DEVICE)),
    lambda: torch.kthvalue(
        MATRIX, 2, out=(OUT.new_empty(0), OUT.new_empty(0, dtype=torch.long))
    ),
    lambda: torch.linalg.qr(MATRIX),
    lambda: WIDE.mT.conj() @ WIDE,
    lambda: torch._foreach_add_(MANY, 1e-6),
    lambda: torch._foreach_norm(MANY),
    lambda: MATRIX[MATRIX > 0.5],
    lambda: MATRIX.index_put_((torch.tensor([0, 3]),), torch.tensor(0.5)),
    lambda: MATRIX.add(1.5).item() if MATRIX.numel() == 1 else MATRIX[0, 0].item(),
    lambda: torch.multinomial(MATRIX + 1, 2),
    lambda: torch.nn.functional.conv1d(MATRIX[None], MATRIX[:, :, None]),
    kept_view,
    backward,
    lambda: raising(lambda: MATRIX.cumsum(7)),
    lambda: (MATRIX.to_sparse() + MATRIX.to_sparse()).coalesce(),
    lambda: raising(lambda: torch.mm(MATRIX, torch.ones(16, 16))),
    out_of_memory,
]  # fmt: skip


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def run(calls: int) -> None:
    for index in range(calls):
        MIX[index % len(MIX)]()
    gc.collect()


def test_ten_thousand_calls_leak_nothing() -> None:
    run(1_000)  # what is made once: buffers of threads, spare views, gradients' caches
    device, host = statistics(), resident_bytes()
    run(10_000)
    after = statistics()
    assert after.allocations - device.allocations > 5_000
    assert after.live_bytes == device.live_bytes
    assert after.allocations - after.releases == device.allocations - device.releases
    assert resident_bytes() - host < 8 << 20
