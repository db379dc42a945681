"""Checks ``torch.distributed`` by the driver's library of collectives: values, and a step of training.

``python tools/gpu/check/collectives.py BACKEND``: a group of one rank; of two, where there are two devices;
of two on one device, which the library may refuse in words; and one without the library. All groups run at
once, each rank in a process. The last line of JSON has what each rank found.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

import opsmith
from opsmith.driver import OpenedDriver
from opsmith.vendor.driver_check.targets import find_target

Found = dict[str, Any]
_SECONDS = 25.0
DTYPES = "float32 float64 float16 bfloat16 int64 int32 int8 uint8".split()
REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "SUM": lambda each: each.sum(0),
    "PRODUCT": lambda each: each.prod(0),
    "MIN": lambda each: each.amin(0),
    "MAX": lambda each: each.amax(0),
}


def wrong(device: torch.device) -> list[str]:
    """The collectives whose values are not the CPU's."""
    rank, size = dist.get_rank(), dist.get_world_size()
    found = []

    def compare(name: str, result: Tensor, expected: Tensor) -> None:
        if not torch.equal(result.cpu(), expected.to(result.dtype)):
            found.append(name)

    for count, dtype in (*((6, dtype) for dtype in DTYPES), (600_000, "float32")):
        # Of each rank, as many elements for each.
        everyone = torch.stack([torch.arange(count * size) % 5 + 1 + each for each in range(size)])
        ours = everyone[rank].to(getattr(torch, dtype)).to(device)
        mine = slice(rank * count, (rank + 1) * count)
        for reduction, reduced in REDUCTIONS.items():
            op = getattr(dist.ReduceOp, reduction)
            x, part = ours.clone(), ours[:count].clone()
            dist.all_reduce(x, op)
            compare(f"all_reduce {reduction} of {count} {dtype}", x, reduced(everyone))
            dist.reduce_scatter_tensor(part, ours, op)
            compare(f"reduce_scatter {reduction} of {count} {dtype}", part, reduced(everyone)[mine])
        x = ours.clone()
        dist.broadcast(x, size - 1)
        compare(f"broadcast of {count} {dtype}", x, everyone[-1])
        dist.all_gather_into_tensor(x, ours[:count])
        compare(f"all_gather of {count} {dtype}", x, everyone[:, :count].flatten())
        for x in (torch.empty_like(ours), ours):
            dist.all_to_all_single(x, ours)
            compare(f"all_to_all of {count} {dtype}", x, everyone[:, mine].flatten())
    return found


def trained(device: torch.device, rank: int, size: int) -> Tensor:
    """The parameters after a step of this rank's share of a batch."""
    torch.manual_seed(0)
    images, labels = torch.randn(8, 8), torch.randn(8, 4)
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    model = network if device.type == "cpu" else nn.parallel.DistributedDataParallel(network)
    loss = model(images[rank::size].to(device)) - labels[rank::size].to(device)
    loss.square().mean().backward()
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    return torch.cat([each.detach().cpu().flatten() for each in network.parameters()])


def run_rank(backend: str, device: int, rank: int, size: int, store: str) -> Found:
    """In a process of its own."""
    name = opsmith.load(backend).name
    place = torch.device(name, device)
    torch.accelerator.set_device_index(device)
    try:
        dist.init_process_group(
            init_method=f"file://{store}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=_SECONDS * patience()),
        )
        dist.all_reduce(torch.ones(1, device=place))
    except RuntimeError as error:
        return {"says": str(error)}
    bad = wrong(place)
    ours, alone = trained(place, rank, size), trained(torch.device("cpu"), 0, 1)
    dist.destroy_process_group()
    return {"wrong": bad, "step differs by": (ours - alone).abs().max().item()}


def patience() -> float:
    return float(os.environ.get("OPSMITH_CHECK_PATIENCE", "1"))


def all_groups(backend: str, folder: Path) -> dict[str, list[Found]]:
    """The findings of each rank of each group."""
    library = find_target(backend, lambda *_: None).library
    if not hasattr(ctypes.CDLL(str(library)), "opsmith_get_collectives"):
        return {}
    missing = {"OPSMITH_NCCL_LIBRARY": "/none/libnccl.so.2"}
    groups: dict[str, tuple[list[int], dict[str, str]]] = {
        "one": ([0], {}),
        "two on a device": ([0, 0], {}),
        "missing": ([0], missing),
    }
    if OpenedDriver(library).device_count() > 1:
        groups["two"] = ([0, 1], {})
    ranks = {}
    for group, (devices, settings) in groups.items():
        for rank, device in enumerate(devices):
            place = [str(each) for each in (device, rank, len(devices), folder / group)]
            ranks[group, rank] = subprocess.Popen(
                [sys.executable, __file__, backend, "--rank", *place],
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **settings},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
    found: dict[str, list[Found]] = {}
    end = time.monotonic() + _SECONDS * patience()
    for (group, _), process in ranks.items():
        try:
            output, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        told = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        found.setdefault(group, []).extend(told or [{"said": output[-2000:]}])
    return found


def is_well(group: str, each: Found) -> bool:
    """Whether a rank has found what it should, or was refused in words where it may be."""
    if group in ("missing", "two on a device") and "says" in each:
        return "OPSMITH_COLLECTIVES=off" in each["says"]
    return each.get("wrong") == [] and each["step differs by"] < 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("backend", help="a name or a backend.yaml")
    parser.add_argument("--rank", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        *place, store = options.rank
        device, rank, size = map(int, place)
        print(json.dumps(run_rank(options.backend, device, rank, size, store)), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = all_groups(options.backend, Path(folder))
    for group, ranks in found.items():
        print(f"{group}: {ranks}")
    print(json.dumps(found))
    if bad := [
        group for group, ranks in found.items() if not all(is_well(group, r) for r in ranks)
    ]:
        sys.exit(f"failed: {', '.join(bad)}")


if __name__ == "__main__":
    main()
