"""Portable kernels that move, look up and order elements, on a device, against the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from beside_the_cpu import FLOATING, REAL, agree, channels_last, no_fallback, numbers, on_device
from torch import Tensor
from torch.nn import functional

# See ``device.py``.
pytestmark = pytest.mark.isolated(OPSMITH_PORTABLE_BACKEND=("sim", "portsim"), nightly=("portsim",))

aten = torch.ops.aten

LAYOUTS = {
    "contiguous": lambda: numbers(4, 5, 6, 7),
    "transposed": lambda: numbers(7, 6, 5, 4).permute(3, 2, 1, 0),
    "channels last": lambda: channels_last(numbers(4, 5, 6, 7)),
    "strided": lambda: numbers(4, 5, 6, 14)[..., ::2],
}


@pytest.fixture(params=LAYOUTS)
def tensor(request: pytest.FixtureRequest) -> Tensor:
    return LAYOUTS[request.param]()


def places(*values: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


# ---- copies of views


def test_copies_of_views(tensor: Tensor) -> None:
    agree(aten.permute_copy, tensor, [2, -1, 0, 1])
    agree(aten.transpose_copy.int, tensor, -3, 3)
    agree(aten.expand_copy, tensor[:, :1], [3, 4, 5, -1, 7])
    agree(aten.view_copy, tensor.contiguous(), [-1, 42])
    agree(aten.slice_copy, tensor, -2, -5, 100, 3)
    agree(aten.slice_copy, tensor, 1, 4, 2)
    agree(aten.select_copy.int, tensor, 2, -1)
    agree(aten.unsqueeze_copy, tensor, -5)
    agree(aten.squeeze_copy.dims, tensor[:1, :, :1], [0, -2])
    agree(aten.diagonal_copy, tensor, -2, 3, 1)
    agree(aten.diagonal_copy, tensor, 50)
    agree(aten.unfold_copy, tensor, 3, 3, 2)
    agree(aten.split_with_sizes_copy, tensor, [1, 0, 4], 1)


def test_rearrangements(tensor: Tensor) -> None:
    agree(torch.flip, tensor, [0, -1])
    agree(torch.roll, tensor, [1, -9], [2, 1], laid_out_as_on_the_cpu=True)
    agree(torch.roll, tensor, 100, laid_out_as_on_the_cpu=True)
    agree(tensor.__class__.repeat, tensor, 2, 1, 3, 0, 2)
    agree(functional.pixel_shuffle, tensor[:, :4], 2, laid_out_as_on_the_cpu=True)
    agree(functional.pixel_unshuffle, tensor[..., :6], 2, laid_out_as_on_the_cpu=True)
    agree(torch.tril, tensor, 1)
    agree(torch.triu, tensor, -3)


def test_cat_promotes_and_passes_over_empty_vectors(tensor: Tensor) -> None:
    agree(torch.cat, [tensor, tensor.to(torch.int32), tensor.bfloat16()], 1)
    agree(torch.cat, [torch.empty(0), tensor, tensor], -1)
    agree(torch.cat, [torch.ones(3, dtype=torch.bool), numbers(4, dtype=torch.uint8)])
    agree(torch.stack, [tensor, tensor], -2)
    with no_fallback():
        agree(torch.cat, [tensor, tensor], 2)
        agree(torch.cat, [tensor[:1], tensor[:1, :, :2], tensor[:1, :, :0]], 2)
        agree(torch.cat, [tensor, tensor[:, 1:]], 1)
        agree(torch.cat, [numbers(3, 40), numbers(1, 40).expand(3, 40), numbers(3, 17)], 1)


def test_parts_are_overwritten(tensor: Tensor) -> None:
    agree(torch.select_scatter, tensor, numbers(4, 5, 7), 2, -2)
    agree(torch.slice_scatter, tensor, numbers(4, 5, 3, 7), 2, 0, 6, 2)
    agree(torch.diagonal_scatter, tensor, numbers(4, 7, 4), 2, 1, 2)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "constant"])
def test_padding(mode: str, tensor: Tensor) -> None:
    agree(functional.pad, tensor, (2, 1, 0, 3), mode, laid_out_as_on_the_cpu=True)
    agree(functional.pad, tensor, (-2, 1, 3, -1), mode, laid_out_as_on_the_cpu=True)
    agree(functional.pad, numbers(2, 3, 9), (4, 8), mode, laid_out_as_on_the_cpu=True)
    agree(
        functional.pad,
        numbers(2, 3, 4, 5, 6),
        (1, 2, 3, 1, 0, 1),
        mode,
        laid_out_as_on_the_cpu=True,
    )


def test_padding_with_a_number_of_the_dtype() -> None:
    agree(functional.pad, numbers(3, 4, dtype=torch.int8), (1, 1), value=-7)
    with pytest.raises(
        RuntimeError, match="value cannot be converted to type int8_t without overflow"
    ):
        on_device(functional.pad, numbers(3, 4, dtype=torch.int8), (1, 1), value=300)


# ---- gather and scatter


@pytest.mark.parametrize("dtype", [*REAL, torch.bool, torch.complex64])
def test_gather_and_scatter(dtype: torch.dtype) -> None:
    x = numbers(4, 6).to(dtype)
    index = torch.tensor([[0, 3, 1], [2, 2, 0]])
    agree(torch.gather, x, 0, index)
    agree(torch.gather, x.t(), -1, index)
    agree(torch.scatter, x, 1, index, x.flip(0)[:2, :3])
    agree(torch.scatter, x, 0, index, 1)
    agree(torch.scatter_add, x, 1, index, x[:2, :3])


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_scatter_reduces_duplicates(reduce: str, include_self: bool, dtype: torch.dtype) -> None:
    x, source = numbers(4, 5, dtype=dtype), numbers(3, 5, dtype=dtype) * 2
    index = torch.tensor([[0, 0, 1, 3, 0]] * 3)
    agree(torch.scatter_reduce, x, 0, index, source, reduce, include_self=include_self)
    agree(torch.scatter_reduce, x.t(), 1, index.t(), source.t(), reduce, include_self=include_self)


def test_scatter_keeps_nan_as_the_largest() -> None:
    source = torch.tensor([1.0, math.nan, 5.0])
    agree(torch.scatter_reduce, torch.zeros(2), 0, places(0, 0, 1), source, "amax")


def test_gather_of_nothing_and_of_a_scalar() -> None:
    agree(torch.gather, numbers(3, 4), 1, torch.empty(0, 4, dtype=torch.int64))
    agree(torch.gather, torch.tensor(5.0), 0, torch.tensor(0))
    agree(torch.scatter_add, torch.tensor(5.0), 0, places(0), torch.tensor([2.0]))


@pytest.mark.parametrize(
    ("call", "args", "reason"),
    [
        (
            torch.gather,
            (0, torch.tensor([[5]])),
            "index 5 is out of bounds for dimension 0 with size 3",
        ),
        (
            torch.gather,
            (0, torch.tensor([[-1]])),
            "index -1 is out of bounds for dimension 0 with size 3",
        ),
        (
            torch.scatter_add,
            (1, torch.tensor([[9]]), torch.ones(1, 1)),
            "index 9 is out of bounds for dimension 1 with size 4",
        ),
        (torch.index_select, (0, places(3)), "index out of range in self"),
    ],
)
def test_wrong_indices_are_refused(call: Any, args: tuple[Any, ...], reason: str) -> None:
    with pytest.raises((RuntimeError, IndexError), match=reason) as raised:
        on_device(call, numbers(3, 4), *args)
    assert f"aten::{call.__name__}" in str(raised.value)


# ---- index, index_put


INDICES: dict[str, tuple[Tensor | None, ...]] = {
    "rows": (places(2, -1, 0, 2),),
    "int32": (places(2, -1, dtype=torch.int32),),
    "second dimension": (None, places(0, -5)),
    "neighbours": (None, places(1, 2), places(-1, 3)),
    "apart": (places(1, 2), None, places(-1, 3)),
    "broadcast": (torch.tensor([[1], [2]]), None, None, places(3, 4, 5)),
    "nothing": (torch.empty(0, dtype=torch.int64),),
    "mask": (torch.tensor([True, False, True, True]),),
    "mask of two dimensions": (None, (numbers(5, 6) > 0)),
}


@pytest.mark.parametrize("which", INDICES)
def test_index_and_index_put(which: str, tensor: Tensor) -> None:
    indices = INDICES[which]
    agree(aten.index.Tensor, tensor, indices)
    shown = aten.index.Tensor(tensor, indices)
    values = numbers(*shown.shape)
    duplicates = which in {"rows"}
    if not duplicates:
        agree(aten.index_put, tensor, indices, values)
    agree(aten.index_put, tensor, indices, values, True)
    agree(aten.index_put, tensor, indices, torch.tensor(7.0), True)


def test_an_index_of_many_places() -> None:
    x, rows, columns = numbers(50, 3), torch.arange(-50, 50).repeat(13), torch.arange(1300) % 3
    agree(aten.index.Tensor, x, (rows,))
    agree(aten.index.Tensor, x, (rows, columns.int()))
    agree(aten.index.Tensor, x[:, 1], (rows.view(13, 100).t(),), laid_out_as_on_the_cpu=True)


def test_an_index_put_out_of_range_is_refused() -> None:
    with pytest.raises(
        (RuntimeError, IndexError), match="index -4 is out of bounds for dimension 0 with size 3"
    ) as raised:
        on_device(aten.index_put, numbers(3, 4), (places(-4),), numbers(4))
    assert "aten::index_put" in str(raised.value)


def test_index_select(tensor: Tensor) -> None:
    for dim in range(4):
        agree(torch.index_select, tensor, dim, places(3, 0, 3))
    agree(torch.index_select, tensor, 1, places(dtype=torch.int32))
    agree(torch.index_select, torch.tensor(3.0), 0, places(0))


def test_masked_scatter() -> None:
    x, mask = numbers(4, 5), numbers(5) > 0
    agree(torch.masked_scatter, x, mask, numbers(40))
    with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
        on_device(torch.masked_scatter, x, mask, numbers(2))


def test_embedding_and_its_gradient() -> None:
    def gradient(weight: Tensor, indices: Tensor, **how: Any) -> Tensor:
        weight = weight.clone().requires_grad_()
        result = functional.embedding(indices, weight, **how)
        return torch.autograd.grad((result * result.detach().cos()).sum(), weight)[0]

    weight, indices = numbers(10, 6), torch.tensor([[1, 9, 1], [0, 1, 3]])
    for dtype in (torch.int64, torch.int32):
        agree(functional.embedding, indices.to(dtype), weight)
        agree(gradient, weight, indices.to(dtype), padding_idx=9)
    agree(gradient, weight, indices, scale_grad_by_freq=True)
    with pytest.raises((RuntimeError, IndexError), match="index out of range in self"):
        on_device(functional.embedding, places(10), weight)


def test_bags_of_embeddings() -> None:
    weight, indices = numbers(10, 6), places(1, 9, 1, 4, 0, 1, 3)
    with no_fallback():
        for mode in ("sum", "mean", "max"):
            for padding in (None, 1):
                for offsets, ends in ((places(0, 2, 2, 5), False), (places(0, 3, 7), True)):
                    agree(
                        functional.embedding_bag,
                        indices,
                        weight,
                        offsets,
                        mode=mode,
                        padding_idx=padding,
                        include_last_offset=ends,
                    )
                given = (indices.int(), places(0, 2, 2, dtype=torch.int32), False)
                for table in (weight, weight.double(), numbers(6, 10).t()):
                    modes = ("sum", "mean", "max").index(mode)
                    padded = -1 if padding is None else padding
                    agree(
                        aten._embedding_bag,
                        table,
                        *given,
                        modes,
                        False,
                        None,
                        False,
                        padded,
                        laid_out_as_on_the_cpu=True,
                    )
        agree(aten._embedding_bag, weight, indices[:0], places(0, 0), False, 2)
        agree(
            functional.embedding_bag,
            indices,
            weight,
            places(0, 2),
            mode="sum",
            per_sample_weights=numbers(7),
        )
    with pytest.raises(RuntimeError, match="offsets\\[0\\] has to be 0"):
        on_device(functional.embedding_bag, indices, weight, places(1, 2))
    with pytest.raises(RuntimeError, match="found idx to be 10"):
        on_device(functional.embedding_bag, places(10), weight, places(0))


@pytest.mark.parametrize("dtype", [*REAL, torch.bool])
def test_places_that_are_not_zero(dtype: torch.dtype, tensor: Tensor) -> None:
    x = tensor.to(dtype)
    with no_fallback():
        for given in (x, x[:0], x[0, 0, 0, 0], x[..., 0]):
            agree(torch.nonzero, given, laid_out_as_on_the_cpu=True)
        agree(torch.masked_select, x, x.transpose(0, 1)[:1, :1] > 0)
    out = torch.empty(2, 7, dtype=torch.int64)
    agree(lambda a, b: torch.nonzero(a, out=b), x, out)


def test_nothing_is_looked_up_in_empty_tensors() -> None:
    for sizes, index in (((0, 1), places(1)), ((0, 3), places(-7)), ((2, 0), places(3))):
        dim = sizes.index(0) ^ 1
        agree(aten.index.Tensor, numbers(*sizes), (None,) * dim + (index,))
    with pytest.raises(IndexError, match="index is out of bounds for dimension with size 0"):
        on_device(aten.index.Tensor, numbers(0, 3), (places(0),))


# ---- order


@pytest.mark.parametrize("dtype", [*REAL, torch.bool])
@pytest.mark.parametrize("descending", [False, True])
def test_order(dtype: torch.dtype, descending: bool) -> None:
    x = numbers(7, 40).to(dtype)
    for dim in (0, -1):
        agree(torch.sort, x, stable=True, dim=dim, descending=descending)
        agree(torch.sort, x.t(), stable=True, dim=dim, descending=descending)
        agree(torch.sort, x, dim, descending)
        if dtype != torch.bool:
            agree(torch.topk, x, 5, dim, descending)


def test_nan_is_the_largest() -> None:
    x = torch.tensor([1.0, math.nan, -math.inf, math.inf, math.nan, 0.0])
    for descending in (False, True):
        agree(torch.sort, x, stable=True, descending=descending)
        agree(torch.topk, x, 3, largest=descending)


def test_order_of_nothing_and_of_a_scalar() -> None:
    agree(torch.sort, torch.tensor(3.0))
    agree(torch.sort, torch.empty(0, 3), 1)
    agree(torch.topk, torch.empty(3, 0), 0)


@pytest.mark.parametrize("dtype", FLOATING)
def test_copies_keep_what_they_copy(dtype: torch.dtype, tensor: Tensor) -> None:
    x = tensor.to(dtype)
    agree(torch.clone, x)
    agree(torch.clone, x, memory_format=torch.channels_last)
    agree(aten.alias_copy, x)
