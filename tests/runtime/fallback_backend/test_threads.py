"""Eight threads over shared tensors: reads, writes to disjoint slices, resizes, results handed over."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from loaded import DEVICE
from torch import Tensor

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)

THREADS = 8
ROUNDS = 60


def test_eight_threads_share_tensors() -> None:
    shared = torch.rand(40, 40)
    device_shared = shared.to(DEVICE)
    sums, ordered = shared.cumsum(0), shared.sort(dim=1).values
    rows = torch.zeros(THREADS, 50, device=DEVICE)
    columns = torch.zeros(
        50, THREADS, device=DEVICE
    )  # one thread's elements lie between the others'
    both = torch.zeros(THREADS, 2 * THREADS, device=DEVICE)
    handed_over: queue.Queue[tuple[int, Tensor]] = queue.Queue()
    start = Barrier(THREADS)

    def work(me: int) -> list[str]:
        wrong = []
        own = torch.zeros(1, device=DEVICE)
        one = torch.ones(1, device=DEVICE)
        start.wait()
        for turn in range(ROUNDS):
            if not torch.equal(device_shared.cumsum(0).cpu(), sums):
                wrong.append(f"{turn}: cumsum")
            if not torch.equal(device_shared.sort(dim=1).values.cpu(), ordered):
                wrong.append(f"{turn}: sort")
            rows[me].add_(1)
            columns[:, me].add_(1)
            columns[:, me].index_add_(0, torch.tensor([turn % 50], device=DEVICE), one)
            both[me, :me].add_(1)
            both[:, THREADS + me].add_(1)
            size = 1 + (turn * 37 + me) % 300
            torch.cumsum(torch.ones(size, device=DEVICE), 0, out=own.resize_(0))
            if own.shape != (size,) or own[-1].item() != size:
                wrong.append(f"{turn}: resized to {tuple(own.shape)}")
            handed_over.put(
                (turn + me, torch.full((3,), float(turn + me), device=DEVICE).cumsum(0))
            )
            number, result = handed_over.get()
            if result.cpu().tolist() != [number, 2 * number, 3 * number]:
                wrong.append(f"{turn}: from another thread {result.cpu().tolist()}")
        return wrong

    with ThreadPoolExecutor(THREADS) as pool:
        assert [wrong for wrong in pool.map(work, range(THREADS)) if wrong] == []
    assert (rows.cpu() == ROUNDS).all()
    expected = torch.full((50, THREADS), float(ROUNDS))
    for turn in range(ROUNDS):
        expected[turn % 50] += 1
    assert torch.equal(columns.cpu(), expected)
    lower = torch.ones(THREADS, THREADS).tril(-1) * ROUNDS
    assert torch.equal(both.cpu(), torch.cat([lower, torch.full_like(lower, ROUNDS)], dim=1))


def test_backward_passes_of_several_threads_accumulate() -> None:
    weight = torch.rand(6, 6).requires_grad_()
    device_weight = weight.detach().to(DEVICE).requires_grad_()

    def work(_: int) -> Tensor:
        return torch.autograd.grad(device_weight.cumsum(0).logcumsumexp(1).sum(), device_weight)[0]

    (expected,) = torch.autograd.grad(weight.cumsum(0).logcumsumexp(1).sum(), weight)
    with ThreadPoolExecutor(THREADS) as pool:
        for gradient in pool.map(work, range(4 * THREADS)):
            assert torch.equal(gradient.cpu(), expected)
