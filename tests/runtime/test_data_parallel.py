"""``torch.nn.DataParallel`` and what it is made of, on sim's two devices."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm, gather, parallel_apply, replicate, scatter

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

BOTH = ["sim:0", "sim:1"]


def places(tensors: Iterable[torch.Tensor]) -> list[str]:
    return [str(tensor.device) for tensor in tensors]


def model_of(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def test_a_model_is_trained_on_both_devices(sim: LoadedBackend) -> None:
    single = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    parallel = nn.DataParallel(copy.deepcopy(single).to("sim"))
    x = torch.randn(7, 4)
    expected = single(x)
    expected.square().sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = parallel(x.to("sim"))
        result.square().sum().backward()
    assert places([result]) == BOTH[:1]
    torch.testing.assert_close(result.cpu(), expected)
    for ours, theirs in zip(parallel.parameters(), single.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_each_device_gets_its_part(sim: LoadedBackend) -> None:
    seen = []

    class Places(nn.Module):
        def forward(self, x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
            seen.append((str(x.device), x.shape[0], torch.accelerator.current_device_index()))
            return x * factor

    x = torch.arange(6.0)  # on the CPU: it is scattered on streams of its own
    result = nn.DataParallel(Places())(x, factor=2.0)
    assert sorted(seen) == [(BOTH[0], 3, 0), (BOTH[1], 3, 1)]
    assert (str(result.device), result.tolist()) == (BOTH[0], (x * 2).tolist())


def test_buffers_of_the_first_device_are_kept(sim: LoadedBackend) -> None:
    model = model_of().to("sim")
    parallel = nn.DataParallel(model)
    x = torch.randn(8, 4, device="sim")
    parallel(x)
    first_half = model_of()
    first_half(x[:4].cpu())
    torch.testing.assert_close(model[1].running_mean.cpu(), first_half[1].running_mean)


def test_scatter_and_gather_are_inverse(sim: LoadedBackend) -> None:
    x = torch.randn(5, 3, device="sim:1", requires_grad=True)
    parts = scatter({"x": x, "n": [1, "a"]}, BOTH)
    assert places(part["x"] for part in parts) == BOTH
    assert [part["x"].shape[0] for part in parts] == [3, 2]
    assert parts[1]["n"] == [1, "a"]
    whole = gather([part["x"] for part in parts], "sim:1")
    assert places([whole]) == BOTH[1:]
    assert torch.equal(whole, x)
    (whole * 2).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full_like(x, 2.0))
    assert gather([part["x"] for part in parts], "cpu").is_cpu


def test_complex_tensors_are_scattered(sim: LoadedBackend) -> None:
    x = torch.randn(4, dtype=torch.complex64, device="sim")
    parts = scatter(x, BOTH)
    assert parts[1].dtype == torch.complex64
    assert torch.equal(gather(parts, 0), x)


def test_replicas_are_applied(sim: LoadedBackend) -> None:
    linear = nn.Linear(2, 2).to("sim")
    replicas = replicate(linear, BOTH)
    inputs = [torch.ones(1, 2, device=place) for place in BOTH]
    results = parallel_apply(replicas, inputs, devices=BOTH)
    assert places(results) == BOTH
    torch.stack([result.to("sim:0") for result in results]).sum().backward()
    assert linear.bias.grad is not None
    assert linear.bias.grad.tolist() == [2.0, 2.0]
    detached = replicate(linear, BOTH, detach=True)
    assert not detached[1].weight.requires_grad


def test_autocast_reaches_the_replicas(sim: LoadedBackend) -> None:
    parallel = nn.DataParallel(nn.Linear(2, 2).to("sim"))
    x = torch.ones(4, 2, device="sim")
    with torch.autocast("sim", torch.bfloat16):
        assert parallel(x).dtype == torch.bfloat16
        with torch.autocast("sim", enabled=False):
            assert parallel(x).dtype == torch.float32
    assert parallel(x).dtype == torch.float32


def test_the_functions_of_comm(sim: LoadedBackend) -> None:
    x = torch.arange(4.0, device="sim:0")
    assert places(comm.broadcast(x, BOTH)) == BOTH
    targets = [torch.empty(4, device=place) for place in BOTH]
    assert comm.broadcast(x, out=targets)[1].tolist() == x.tolist()
    assert comm.reduce_add(targets, 1).tolist() == [0.0, 2.0, 4.0, 6.0]
    assert comm.reduce_add_coalesced([[targets[0]], [targets[1]]], 0)[0].tolist() == [
        0.0, 2.0, 4.0, 6.0
    ]  # fmt: skip
    first, second = comm.scatter(x, BOTH, chunk_sizes=[1, 3])
    assert (first.tolist(), second.tolist()) == ([0.0], [1.0, 2.0, 3.0])
    halves = [torch.empty(2, device=place) for place in BOTH]
    assert comm.scatter(x, out=halves)[1].tolist() == [2.0, 3.0]
    assert comm.gather(halves, out=torch.empty(4)).tolist() == x.tolist()
    assert places(comm.scatter(tensor=x, devices=BOTH)) == BOTH
    assert comm.gather(tensors=iter(halves), destination="cpu").tolist() == x.tolist()
    with pytest.raises(ValueError, match="input 1 has invalid size: got 1, but expected 4"):
        comm.reduce_add([x, x[:1]], 0)
    with pytest.raises(RuntimeError, match="exactly one of 'devices' and 'out'"):
        comm.broadcast(x)
    with pytest.raises(ValueError, match="expected a sim device, but got meta"):
        comm.broadcast(x, ["meta"])
