"""Calls that PyTorch refuses or warns of: sim does so with the words that PyTorch's own tests look for."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

pytestmark = pytest.mark.usefixtures("sim")

REFUSING = {info.full_name: info for info in op_db if info.error_inputs_func is not None}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSING)
def test_what_pytorch_refuses_is_refused_alike(name: str) -> None:
    unlike = []
    for wanted, there in zip(questions(name, "cpu"), questions(name, "sim"), strict=False):
        if wanted.error_regex == there.error_regex and answers(name, wanted):
            error = raised(name, there)
            if not fits(there, error):
                unlike.append(f"{there.error_regex}: {error!r}")
    assert not unlike


def questions(name: str, device: str) -> Iterator[Any]:
    """The calls that the operator refuses; some are about the CPU, or about other devices, only."""
    torch.manual_seed(0)
    return iter(REFUSING[name].error_inputs(device))


def answers(name: str, question: Any) -> bool:
    """Whether the CPU raises what is expected: some declarations are out of date."""
    return fits(question, raised(name, question))


def raised(name: str, question: Any) -> Exception | None:
    sample = question.sample_input
    try:
        REFUSING[name](sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return error
    return None


def fits(question: Any, error: Exception | None) -> bool:
    return isinstance(error, question.error_type) and bool(
        re.search(question.error_regex, str(error))
    )


REFUSED: dict[str, tuple[Callable[[str], object], str]] = {
    "indices of a bag": (
        lambda device: torch.embedding_bag(
            torch.zeros(2, 6, device=device), torch.zeros(1, 1, 1, dtype=torch.long, device=device),
            torch.zeros(1, dtype=torch.long, device=device),
        ),
        "input has to be a 1D or 2D Tensor, but got Tensor of dimension 3",
    ),
    "gradient of another rank": (
        lambda device: torch.ops.aten._adaptive_avg_pool2d_backward(
            torch.zeros(1, 2, 7, device=device), torch.zeros(1, 2, 3, 3, device=device)
        ),
        "Expected dimensions 4 for `grad_output` but got dimensions 3",
    ),
    "gradient of another rank, of volumes": (
        lambda device: torch.ops.aten._adaptive_avg_pool3d_backward(
            torch.zeros(1, 2, 7, 7, device=device), torch.zeros(1, 2, 3, 3, 3, device=device)
        ),
        "Expected dimensions 5 for `grad(Output_|_output)` but got dimensions 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorchs_other_tests_look_for_is_said(name: str, device: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(RuntimeError, match=text):
        call(device)


MIXED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "std": lambda x, out: torch.std(x, 0, out=out),
    "mean": lambda x, out: torch.mean(x, 0, out=out),
    "max": lambda x, out: torch.max(x, out=out),
    "sort": lambda x, out: torch.sort(x, out=(out, out.long())),
    "slice_scatter": lambda x, out: torch.slice_scatter(x, x, out=out),
    "floor_divide": lambda x, out: torch.floor_divide(x, 2, out=out),
    "logical_not": lambda x, out: torch.logical_not(x, out=out),
    "add": lambda x, out: torch.add(x, 1, out=out),
    "add_": lambda x, out: out.add_(x),
    "cumsum": lambda x, out: torch.ops.aten.cumsum.out(x, 0, out=out),
}
MIXED_OPERANDS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "add": torch.add,
    "floor_divide": torch.floor_divide,
    "floor_divide_": lambda x, other: x.floor_divide_(other),
    "masked_fill": lambda x, other: x.masked_fill(other > 0, x[0]),
}


@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("name", MIXED)
def test_a_result_on_the_cpu_is_refused(name: str, shape: tuple[int, ...]) -> None:
    x, out = torch.ones(shape, device="sim"), torch.zeros(shape)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        MIXED[name](x, out)
    assert torch.equal(out, torch.zeros(shape))


@pytest.mark.parametrize("name", MIXED_OPERANDS)
def test_an_operand_on_the_cpu_is_refused_but_for_numbers(name: str) -> None:
    x, other = torch.ones(2, device="sim"), torch.ones(2)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        MIXED_OPERANDS[name](x, other)
    assert torch.equal(torch.floor_divide(x, torch.tensor(2.0)).cpu(), torch.zeros(2))
    assert torch.equal(x.masked_fill(x > 0, torch.tensor(3.0)).cpu(), torch.full((2,), 3.0))


WARNED: dict[str, Callable[[str], object]] = {
    "var": lambda device: torch.rand(3, 2, device=device).var(1, correction=2),
    "std": lambda device: torch.rand(1, device=device).std(),
    "std.out": lambda device: torch.std(
        torch.rand(1, device=device), 0, out=torch.empty((), device=device)
    ),
    "var_mean": lambda device: torch.var_mean(torch.rand(3, 0, device=device), 1),
    "where": lambda device: torch.where(torch.ones(2, dtype=torch.uint8, device=device), 1.0, 2.0),
    "index": lambda device: torch.rand(2, device=device)[
        torch.ones(2, dtype=torch.uint8, device=device)
    ],
    "arange": lambda device: torch.arange(0, 3, out=torch.empty(5, device=device)),
    "random_": lambda device: torch.empty(3, device=device, dtype=torch.half).random_(0, 1 << 12),
    "index_fill_": lambda device: (
        torch.zeros(1, device=device).expand(3).index_fill_(0, torch.tensor([0], device=device), 1)
    ),
    "complex": lambda device: torch.ones(2, device=device, dtype=torch.complex64).to(torch.float32),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_pytorch_warns_of_is_warned_of_alike(name: str) -> None:
    assert warned(name, "sim") == warned(name, "cpu") != []


def warned(name: str, device: str) -> list[str]:
    """The warnings of the call, without the place in PyTorch's sources."""
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            WARNED[name](device)
    finally:
        torch.set_warn_always(False)
    return [str(warning.message).partition(" (Triggered")[0] for warning in caught]
