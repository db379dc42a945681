"""Nested tensors, whose operators are PyTorch's own kernels where these are made of other operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from loaded import DEVICE
from torch import Tensor
from torch.nn import functional

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"))


def nested(device: str) -> Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.nested.nested_tensor(
        [torch.rand(size, 4, generator=source).to(device) for size in (2, 3)]
    )


def parts(tensor: Tensor) -> list[Tensor]:
    return list(tensor.unbind()) if tensor.is_nested else [tensor]


def embedded(x: Tensor) -> Tensor:
    rows = torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([0])]).to(x.device)
    return functional.embedding(rows, torch.arange(12.0, device=x.device).view(3, 4))


def linear(x: Tensor) -> Tensor:
    weight = torch.arange(20.0, device=x.device).view(5, 4)
    return functional.linear(x, weight, weight[:, 0])


CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: (x - 0.5).relu(),
    "gelu": functional.gelu,
    "softmax": lambda x: x.softmax(-1),
    "linear": linear,
    "add": lambda x: x + x,
    "mul": lambda x: x * 2,
    "div": lambda x: x / 2,
    "matmul": lambda x: x @ x.transpose(1, 2),
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)),
    "to_padded_tensor": lambda x: x.to_padded_tensor(0.5),
    "unbind": lambda x: x.unbind()[1],
    "select": lambda x: x[0],
    "chunk": lambda x: x.chunk(2, -1)[1],
    "cat": lambda x: torch.cat([x, x]),
    "clone": torch.clone,
    "contiguous": lambda x: x.transpose(-1, -2).contiguous(),
    "view": lambda x: x.view(2, -1, 2, 2),
    "double": lambda x: x.double(),
    "cpu": lambda x: x.cpu(),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, 1.0),
    "fill": lambda x: torch.empty_like(x).fill_(2),
    "embedding": embedded,
    "from_mask": lambda x: torch._nested_tensor_from_mask(
        x.to_padded_tensor(0.0),
        torch.tensor([[True, True, False], [True, True, True]], device=x.device),
    ),
    "from_padded": lambda x: torch._nested_from_padded(
        x.to_padded_tensor(0.0), x._nested_tensor_size()
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_are_those_of_the_cpu(name: str) -> None:
    expected, ours = (CALLS[name](nested(device)) for device in ("cpu", DEVICE))
    assert ours.is_nested == expected.is_nested
    assert ours.device.type == ("cpu" if name == "cpu" else DEVICE)
    for mine, other in zip(parts(ours), parts(expected), strict=True):
        torch.testing.assert_close(mine.cpu(), other)


@pytest.mark.parametrize("name", ["relu", "softmax", "linear", "matmul", "bmm"])
def test_gradients_are_those_of_the_cpu(name: str) -> None:
    grads = []
    for device in ("cpu", DEVICE):
        x = nested(device).requires_grad_()
        sum((part * part).sum() for part in parts(CALLS[name](x))).backward()
        assert x.grad is not None
        grads.append(parts(x.grad))
    for theirs, ours in zip(*grads, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def test_a_list_whose_gradient_is_recorded() -> None:
    x = torch.ones(2, 3, device=DEVICE, requires_grad=True)
    made = torch.nested.as_nested_tensor([x, 2 * x])
    assert "device='" in str(made)
    made.unbind()[1].sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), torch.full((2, 3), 2.0))


def test_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="device"):
        nested("cpu") + nested(DEVICE)
    with pytest.raises(RuntimeError, match="device"):
        functional.linear(nested(DEVICE), torch.ones(5, 4))


def test_sizes_on_the_device_are_read_there_or_refused() -> None:
    sizes = torch.tensor([[2, 3], [4, 3]])
    aten = torch.ops.aten
    strides, offsets = aten._nested_compute_contiguous_strides_offsets(sizes.to(DEVICE))
    assert (strides.tolist(), offsets.tolist()) == ([[3, 1], [3, 1]], [0, 6])
    for name, call in {
        "nested_size": lambda: aten._nested_view_from_buffer(
            torch.ones(18, device=DEVICE), sizes.to(DEVICE), strides, offsets
        ),
        "cpu_nested_shape_example": lambda: aten._nested_from_padded(
            torch.ones(2, 4, 4, device=DEVICE), sizes.to(DEVICE)
        ),
    }.items():
        with pytest.raises(RuntimeError, match=f"`{name}` is on {DEVICE}:0, but sizes of nested"):
            call()
