"""What the fallback refuses, with the operator, the reason and what to do instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from loaded import DEVICE
from torch import Tensor

import opsmith
from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)

REMEDY = (
    f"and {DEVICE} serves it for strided (dense) ones only. Call it on the CPU: "
    "move its arguments there with .cpu()."
)


def sparse() -> Tensor:
    return torch.eye(3).to_sparse()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("operator", "what", "call"),
    [
        ("mm", "argument or result is a sparse", lambda x: torch.mm(sparse(), x)),
        ("mm", "argument or result is a sparse", lambda x: torch.mm(x, sparse())),
        ("mm.out", "argument or result is a sparse", lambda x: torch.mm(sparse().to_sparse_csr(), x)),
        ("add.Tensor", "argument or result is a sparse", lambda x: x + sparse()),
        ("_copy_from", "argument or result is a sparse", lambda x: x.copy_(sparse())),
        ("sparse_mask", "argument or result is a sparse", lambda x: x.sparse_mask(sparse())),
        (
            "_sparse_coo_tensor_with_dims_and_tensors",
            "argument or result is a sparse",
            lambda x: sparse().to(x.device),
        ),
        (
            "empty.memory_format",
            "argument or result is a sparse",
            lambda x: torch.zeros(2, layout=torch.sparse_coo, device=x.device),
        ),
        ("_to_sparse", "result is a sparse", lambda x: x.to_sparse()),
        ("_to_sparse_csr", "result is a sparse", lambda x: x.to_sparse_csr()),
        ("_to_sparse_bsc", "result is a sparse", lambda x: x.to_sparse_bsc((3, 3))),
        (
            "quantize_per_tensor",
            "result is a quantized",
            lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        ),
        (
            "_copy_from",
            "argument or result is a quantized",
            lambda x: x.copy_(torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8)),
        ),
        (
            "sum.dim_IntList",
            "argument or result is a nested",
            lambda x: torch.nested.nested_tensor([x, x]).sum(-1, keepdim=True),
        ),
        ("to_mkldnn", "result is a mkldnn", lambda x: x.to_mkldnn()),
    ],
)  # fmt: skip
def test_only_strided_tensors(operator: str, what: str, call: Callable[[Tensor], object]) -> None:
    tensor = torch.ones(3, 3, device=DEVICE)
    assert (
        refusal(NotImplementedError, call, tensor)
        == f"aten::{operator} is not available on {DEVICE}: its {what} tensor, {REMEDY}"
    )
    assert torch.equal(tensor.cpu(), torch.ones(3, 3))


def test_mkldnn_tensors_do_not_mix_with_the_devices() -> None:
    tensor = torch.ones(3, 3, device=DEVICE)
    for call in (torch.add, torch.mul, torch.mm):
        with pytest.raises(RuntimeError, match=r"(?i)mkl-?dnn"):
            call(torch.ones(3, 3).to_mkldnn(), tensor)


def test_deny_covers_convolutions() -> None:
    x = torch.ones(1, 2, 3, device=DEVICE)
    with opsmith.fallback("deny"), pytest.raises(NotImplementedError) as error:
        torch.nn.functional.conv1d(x, x)
    assert str(error.value).startswith(
        f"aten::convolution_overrideable is not available on {DEVICE}: it would fall back to the CPU, "
    )


def test_a_sparse_gradient_is_refused() -> None:
    table = torch.ones(3, 2, device=DEVICE, requires_grad=True)
    rows = torch.nn.functional.embedding(torch.tensor([0, 2], device=DEVICE), table, sparse=True)
    with pytest.raises(NotImplementedError, match="_sparse_coo_tensor_with_dims_and_tensors"):
        rows.sum().backward()
    assert table.grad is None


def test_tensors_in_a_dictionary_would_stay_on_the_cpu() -> None:
    library = torch.library.Library("guards", "DEF")
    library.define("named(Tensor x) -> Dict(str, Tensor)")
    library.impl("named", lambda x: {"one": x + 1}, "CPU")
    library.define("several(Tensor x) -> (Tensor, Tensor[], int)")
    library.impl("several", lambda x: (x + 1, [x + 2], 3), "CPU")
    tensor = torch.ones(2, device=DEVICE)
    assert refusal(NotImplementedError, torch.ops.guards.named, tensor) == (
        f"guards::named is not available on {DEVICE}: it falls back to the CPU, and its result is a "
        "Dict[str, Tensor], in which tensors would stay there. Let the operator return Tensor or Tensor[], "
        "or call it on the CPU: move its arguments there with .cpu()."
    )
    one, (two,), three = torch.ops.guards.several(tensor)
    assert (one.device, two.device, three) == (tensor.device, tensor.device, 3)
    assert two.tolist() == [3, 3]
