"""all_reduce over 2 and 4 processes on sim beside gloo's of CPU tensors, and DDP beside one process.

Both groups have the same ranks, which reduce in turns, so that what else the machine does falls on both.
Without a host window the peer copies the tensor first and back after it.  Figures are rank 0's.  The last
ones are differences: what two processes train, beside one process with twice the batch.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import opsmith
from opsmith.observe.benchmarks.measurements import Measurement, measured, report

ROUNDS, SECONDS = 9, 0.08
GOAL = 1.05
SIZES = {
    "1 KiB": 1 << 10,
    "16 KiB": 1 << 14,
    "64 KiB": 1 << 16,
    "256 KiB": 1 << 18,
    "1 MiB": 1 << 20,
    "4 MiB": 1 << 22,
    "16 MiB": 1 << 24,
    "64 MiB": 1 << 26,
}


def begin(rank: int, ranks: int, store: str, window: str) -> None:
    """Makes this process a rank of a group on the device."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OPSMITH_HOST_WINDOW=window, OMP_NUM_THREADS="1")
    opsmith.load("sim")
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        init_method=f"file://{store}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=60),
    )


def reductions(rank: int, ranks: int, store: str, window: str, results: Connection) -> None:
    """Sends the microseconds of both sides, by size, from rank 0."""
    begin(rank, ranks, store, window)
    import torch
    from torch import distributed

    found: dict[str, tuple[list[float], list[float]]] = {}
    for name, size in SIZES.items():
        ours, peer = torch.ones(size // 4, device="sim"), torch.ones(size // 4)

        def reduce_ours(x: torch.Tensor = ours) -> None:
            distributed.all_reduce(x, distributed.ReduceOp.MAX)

        def reduce_peer(x: torch.Tensor = peer) -> None:
            there = x.clone() if window == "off" else x
            distributed.all_reduce(there, distributed.ReduceOp.MAX)
            if window == "off":
                x.copy_(there)

        found[name] = ([], [])
        for _ in range(ROUNDS):
            for taken, call in zip(found[name], (reduce_ours, reduce_peer), strict=True):
                taken.append(_in_step(call))
    if rank == 0:
        results.send(found)
    distributed.destroy_process_group()


def _in_step(call: Callable[[], None]) -> float:
    """The median microseconds of ``call``, which all ranks make equally often."""
    import torch
    from torch import distributed

    once = torch.tensor([_microseconds(call) for _ in range(2)][1:])
    distributed.all_reduce(once, distributed.ReduceOp.MAX)
    times = min(max(3, int(SECONDS * 1e6 / once.item())), 500)
    return statistics.median(_microseconds(call) for _ in range(times))


def _microseconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - start)


def training(rank: int, ranks: int, store: str, window: str, results: Connection) -> None:
    """Sends the largest difference of a parameter from what one process trains."""
    begin(rank, ranks, store, window)
    import torch
    from torch import distributed, nn

    source = torch.Generator().manual_seed(0)
    images, labels = torch.randn(64, 32, generator=source), torch.randn(64, 8, generator=source)

    def trained(wrap: Callable[[nn.Module], nn.Module], own: slice) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = wrap(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).to("sim"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(10):
            optimizer.zero_grad()
            (model(images[own].to("sim")) - labels[own].to("sim")).square().mean().backward()
            optimizer.step()
        return [each.detach().cpu() for each in model.parameters()]

    together = trained(nn.parallel.DistributedDataParallel, slice(rank, None, ranks))
    alone = trained(lambda model: model, slice(None))
    if rank == 0:
        results.send(max(float((a - b).abs().max()) for a, b in zip(together, alone, strict=True)))
    distributed.destroy_process_group()


def of_ranks(program: Callable[..., None], ranks: int, window: str) -> object:
    """The object that rank 0 of ``program`` sends."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=program, args=(rank, ranks, f"{folder}/store", window, sender))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        sender.close()
        found = receiver.recv()
        for process in processes:
            process.join()
    return found


def main() -> None:
    opsmith.load("sim", progress=lambda step: print(step))
    found: list[Measurement] = []
    for window in ("on", "off"):
        for ranks in (2, 4):
            taken = of_ranks(reductions, ranks, window)
            assert isinstance(taken, dict)
            found += [
                measured(
                    f"all_reduce of {size}, {ranks} processes, window {window}", "µs", *each, GOAL
                )
                for size, each in taken.items()
            ]
        difference = of_ranks(training, 2, window)
        assert isinstance(difference, float)
        found.append(
            measured(f"parameters, DDP, window {window}", "difference", [difference], goal=1e-6)
        )
    report("collectives on sim; peer: gloo on CPU tensors, without a window with two copies", found)


if __name__ == "__main__":
    main()
