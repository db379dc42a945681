"""Sparse and quantized tensors: PyTorch's kernels made of other operators, and the fallback on parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from loaded import DEVICE
from torch import Tensor, nn, optim

import opsmith

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"))

UNFINISHED = ("ignore:Sparse CSR", "ignore:torch.quantize", "ignore:.*invariant")


def dense(device: str) -> Tensor:
    return torch.arange(9.0).view(3, 3).to(device)


def coo(device: str) -> Tensor:
    indices = torch.tensor([[0, 1, 1, 1], [2, 0, 0, 1]], device=device)
    values = torch.tensor([3.0, 4, 5, -1], device=device)
    return torch.sparse_coo_tensor(indices, values, (3, 3))


def no_elements(device: str) -> Tensor:
    return torch.sparse_coo_tensor(size=(3, 3), device=device)


def csr(device: str) -> Tensor:
    return coo(device).to_sparse_csr()


SPARSE: dict[str, Callable[[str], Tensor]] = {
    "made": coo,
    "to the device": lambda device: coo("cpu").to(device),
    "to the CPU": lambda device: coo(device).cpu(),
    "zeros": lambda device: torch.zeros(2, 3, layout=torch.sparse_coo, device=device),
    "coalesce": lambda device: coo(device).coalesce(),
    "to_dense": lambda device: coo(device).to_dense(),
    "to_sparse": lambda device: dense(device).to_sparse(),
    "add": lambda device: coo(device) + coo(device),
    "add out": lambda device: torch.add(coo(device), coo(device), out=coo(device)),
    "add to dense": lambda device: dense(device).add_(coo(device), alpha=2),
    "add_ to nothing": lambda device: coo(device).mul(0).coalesce().add_(coo(device)),
    "add_ to no elements": lambda device: no_elements(device).add_(coo(device)),
    "add_ of no elements": lambda device: coo(device).add_(no_elements(device)),
    "neg_": lambda device: coo(device).neg_(),
    "mul": lambda device: coo(device) * coo(device),
    "mul_": lambda device: coo(device).mul_(coo(device)),
    "zero_": lambda device: coo(device).zero_(),
    "mm": lambda device: coo(device) @ dense(device),
    "sparse mm": lambda device: torch.sparse.mm(coo(device), coo(device)),
    "addmm": lambda device: torch.addmm(dense(device), coo(device), dense(device)),
    "sum": lambda device: torch.sparse.sum(coo(device), 0),
    "softmax": lambda device: torch.sparse.softmax(coo(device).coalesce(), 1),
    "sparse_mask": lambda device: dense(device).sparse_mask(coo(device).coalesce()),
    "sparse_mask of sparse": lambda device: coo(device).sparse_mask(coo(device).coalesce()),
    "index_select": lambda device: coo(device).index_select(0, torch.tensor([0, 1], device=device)),
    "cat": lambda device: torch.cat([coo(device), coo(device)]),
    "CSR": csr,
    "CSR to the device": lambda device: csr("cpu").to(device),
    "CSR to_dense": lambda device: csr(device).to_dense(),
    "CSR mm": lambda device: csr(device) @ dense(device),
    "CSR add": lambda device: csr(device) + csr(device),
    "CSR add of more": lambda device: csr(device).add_(torch.eye(3, device=device).to_sparse_csr()),
    "CSR times CSR": lambda device: csr(device) @ csr(device),
    "CSR abs_": lambda device: csr(device).abs_(),
    "CSR reduce": lambda device: torch.sparse.mm(csr(device), dense(device), "amax"),
    "CSR sampled": lambda device: torch.sparse.sampled_addmm(
        csr(device), dense(device), dense(device)
    ),
    "CSC": lambda device: dense(device).to_sparse_csc(),
    "CSR to CSC": lambda device: csr(device).to_sparse_csc(),
    "CSC to CSR": lambda device: dense(device).to_sparse_csc().to_sparse_csr(),
    "BSR": lambda device: dense(device).to_sparse_bsr((3, 3)),
}


def parts(tensor: Tensor) -> list[Tensor]:
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout is torch.sparse_csc:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor.dequantize(), tensor.int_repr()] if tensor.is_quantized else [tensor]


def compare(call: Callable[[str], Tensor], device: str = DEVICE, result: str = "") -> None:
    ours, theirs = call(device), call("cpu")
    assert (ours.layout, ours.shape, ours.dtype) == (theirs.layout, theirs.shape, theirs.dtype)
    place = torch.empty(0, device=result or device).device
    assert ours.device == place
    if ours.layout is torch.sparse_coo:
        assert ours.is_coalesced() == theirs.is_coalesced()
    for mine, other in zip(parts(ours), parts(theirs), strict=True):
        assert mine.device == place
        assert torch.equal(mine.cpu(), other)


@pytest.mark.filterwarnings(*UNFINISHED)
@pytest.mark.parametrize("device", [DEVICE, f"{DEVICE}:1"])
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_tensors(name: str, device: str) -> None:
    with torch.sparse.check_sparse_tensor_invariants():
        compare(SPARSE[name], device, "cpu" if name == "to the CPU" else "")


def test_indices_that_are_not_sorted_are_no_coalesced_tensor() -> None:
    indices = torch.tensor([[1, 0], [2, 1]], device=DEVICE)
    with pytest.raises(RuntimeError, match="indices correspond to uncoalesced COO tensor"):
        torch.sparse_coo_tensor(
            indices, torch.ones(2, device=DEVICE), (2, 3), is_coalesced=True, check_invariants=True
        )


def quantized(device: str) -> Tensor:
    return torch.quantize_per_tensor(
        torch.linspace(-1, 1, 6).view(2, 3).to(device), 0.1, 3, torch.quint8
    )


def by_channel(device: str) -> Tensor:
    scales, zero_points = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    return torch.quantize_per_channel(
        torch.linspace(-1, 1, 6).view(2, 3).to(device),
        scales.to(device), zero_points.to(device), 0, torch.qint8,
    )  # fmt: skip


QUANTIZED: dict[str, Callable[[str], Tensor]] = {
    "made": quantized,
    "to the device": lambda device: quantized("cpu").to(device),
    "to the CPU": lambda device: quantized(device).cpu(),
    "dequantize": lambda device: quantized(device).dequantize(),
    "view": lambda device: quantized(device).view(6),
    "transpose": lambda device: quantized(device).t(),
    "select": lambda device: quantized(device)[0],
    "clone": lambda device: quantized(device).clone(),
    "cat": lambda device: torch.cat([quantized(device), quantized(device)]),
    "relu": lambda device: torch.relu(quantized(device)),
    "mean": lambda device: quantized(device).mean(-1),
    "copy_": lambda device: quantized(device).copy_(quantized("cpu")),
    "copy_ of floats": lambda device: quantized(device).copy_(torch.ones(2, 3, device=device)),
    "fill_": lambda device: quantized(device).fill_(0.5),
    "by channel": by_channel,
    "by channel to the device": lambda device: by_channel("cpu").to(device),
    "scales": lambda device: by_channel(device).q_per_channel_scales(),
    "copy_ of another scale": lambda device: quantized(device).copy_(
        torch.quantize_per_tensor(torch.ones(2, 3, device=device), 0.5, 1, torch.quint8)
    ),
    "into another scale": lambda device: torch.ops.aten.quantize_per_tensor.out(
        torch.ones(2, 3, device=device), 0.5, 1, torch.quint8, out=quantized(device)
    ),
    "into other scales of channels": lambda device: torch.ops.aten.quantize_per_channel.out(
        torch.ones(2, 3, device=device), torch.tensor([0.5, 0.25], device=device),
        torch.tensor([1, 2], device=device), 0, torch.qint8, out=by_channel(device),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings(*UNFINISHED)
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_tensors(name: str) -> None:
    compare(QUANTIZED[name], "cpu" if name == "to the CPU" else DEVICE)


def trained(device: str, make: Callable[[list[nn.Parameter]], optim.Optimizer]) -> Tensor:
    torch.manual_seed(0)
    embedding = nn.Embedding(10, 3, sparse=True).to(device)
    optimizer = make([*embedding.parameters()])
    for _ in range(2):
        optimizer.zero_grad()
        (embedding(torch.tensor([1, 2, 2, 5], device=device)) ** 2).sum().backward()
        assert embedding.weight.grad is not None
        assert embedding.weight.grad.layout is torch.sparse_coo
        optimizer.step()
    return embedding.weight.detach().cpu()


@pytest.mark.parametrize("name", ["SGD", "SparseAdam", "Adagrad"])
def test_sparse_gradients_train(name: str) -> None:
    make = lambda parameters: getattr(optim, name)(parameters, lr=0.1)  # noqa: E731
    torch.testing.assert_close(trained(DEVICE, make), trained("cpu", make))


@pytest.mark.filterwarnings(*UNFINISHED)
def test_gradients_of_a_sparse_product() -> None:
    grads = []
    for device in ("cpu", DEVICE):
        left, right = csr(device).requires_grad_(), dense(device).requires_grad_()
        torch.sparse.mm(left, right, "amax").sum().backward()
        assert left.grad is not None and right.grad is not None
        grads.append([left.grad.values().cpu(), right.grad.cpu()])
    for theirs, ours in zip(*grads, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.filterwarnings(*UNFINISHED)
def test_the_fallback_of_sparse_tensors_heeds_the_policy() -> None:
    with opsmith.count_fallbacks() as block:
        coo(DEVICE).coalesce()
    assert [each.operator for each in block.fallbacks.counts] == ["_coalesce"]
    with (
        opsmith.fallback("deny"),
        pytest.raises(NotImplementedError, match="aten::_coalesce is not"),
    ):
        coo(DEVICE).coalesce()
