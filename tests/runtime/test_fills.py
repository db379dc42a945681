"""fill_ and zero_ on sim: every dtype, every layout, on the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import opsmith

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128,
    torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz,
    torch.float8_e8m0fnu,
)  # fmt: skip
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t(),
    "with gaps": lambda x: x[:, ::2],
    "a row": lambda x: x[1],
    "expanded": lambda x: x[:1].expand(4, 6),
    "0-dim": lambda x: x[2, 3],
    "empty": lambda x: x[:0],
}


def of_bytes(dtype: torch.dtype, device: str) -> Tensor:
    """A 4 × 6 tensor in which no byte is 0."""
    return torch.full((4, 6 * dtype.itemsize), 1, dtype=torch.uint8).view(dtype).to(device)


def bits(tensor: Tensor) -> list[int]:
    return list(bytes(tensor.cpu().contiguous().view(torch.uint8).flatten().tolist()))


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_memory_is_as_on_the_cpu(dtype: torch.dtype, view: Callable[[Tensor], Tensor]) -> None:
    device, cpu = of_bytes(dtype, "sim"), of_bytes(dtype, "cpu")
    for value in 2 - 3j if dtype.is_complex else 2, 0:
        with opsmith.count_fallbacks() as block:
            view(device).fill_(value) if value else view(device).zero_()
        view(cpu).fill_(value)
        assert bits(device) == bits(cpu)
        if view is not VIEWS["expanded"]:  # kernels on lean tensors write to no element twice
            assert str(block.fallbacks) == "no operator ran on the CPU"


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("size", [(), (2,)])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.float16, 1e10),
        (torch.bfloat16, 1e39),
        (torch.float32, 1e300),
        (torch.int8, 300),
        (torch.uint8, -5),
        (torch.uint16, 70000),
        (torch.complex64, 1e300j),
    ],
)
def test_a_number_that_does_not_fit_is_refused_as_on_the_cpu(
    dtype: torch.dtype, value: complex, size: tuple[int, ...]
) -> None:
    results = []
    for device in "sim", "cpu":
        try:
            results.append(str(torch.ones(size, dtype=dtype, device=device).fill_(value).cpu()))
        except RuntimeError as error:
            results.append(str(error))
    assert results[0].endswith(results[1])  # a refusal names the operator and its kernel first


@pytest.mark.parametrize("dtype", [torch.complex64, torch.uint16, torch.float8_e5m2])
def test_an_out_of_another_dtype_is_refused(dtype: torch.dtype) -> None:
    x = torch.zeros(3, dtype=dtype, device="sim")
    out = torch.zeros(3, dtype=torch.int32, device="sim")
    with pytest.raises(RuntimeError, match=r"^Expected out tensor to have dtype .*, but got int"):
        torch.ops.aten.fill.Scalar_out(x, 2, out=out)
    assert out.tolist() == [0, 0, 0]
