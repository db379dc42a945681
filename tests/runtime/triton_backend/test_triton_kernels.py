"""Kernels of Triton's that a manifest names, interpreted and compiled: values, variants, refusals, counts."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from needs import require
from opsmith.errors import KernelRejected
from opsmith.plan import Place

require("Triton")
HERE = Path(__file__).parent
pytestmark = pytest.mark.isolated(
    TRITON_KERNELS=("interpreted", "compiled", "interpreted, discrete", "compiled, discrete"),
    nightly=("interpreted, discrete", "compiled, discrete"),
)
HOW = os.environ.get("TRITON_KERNELS", "interpreted")
if "discrete" in HOW:
    os.environ["OPSMITH_HOST_WINDOW"] = "off"
IS_COMPILED = "compiled" in HOW
SIM = opsmith.load(str(HERE / ("compiled.yaml" if IS_COMPILED else "backend.yaml")))
S_INTERPRETER = "'s interpreter cannot run"
# Calls that the host is told to have computed, of one of a kernel.
BY_HOST = 0 if IS_COMPILED else 1


def moved(value: Any) -> Any:
    return value.to("sim") if isinstance(value, Tensor) and value.dim() else value


def agree(function: Callable[..., Tensor], *args: Any, **close: float) -> None:
    """The device's result has the CPU's values, dtype and strides, and one of ours has computed it."""
    there = [moved(each) for each in args]
    with opsmith.count_fallbacks(callers=False) as block:
        found = function(*there)
    theirs = function(*args)
    assert sum(each.kernel_calls for each in block.fallbacks.counts) == BY_HOST, block.fallbacks
    assert found.stride() == theirs.stride()
    torch.testing.assert_close(found.cpu(), theirs, **close)


def test_the_plan_says_where_they_run() -> None:
    entry = SIM.plan.entry("add.Tensor")
    assert entry.library == "rows"
    assert entry.place is (Place.DEVICE if IS_COMPILED else Place.COPIES)
    assert ("Triton's interpreter runs it" in entry.why) is not IS_COMPILED
    assert entry.next is not None
    assert entry.next.library == "optimized"


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.randn(3, 4), torch.randn(3, 4)),
        (torch.randn(3, 4), torch.randn(4)),
        (torch.randn(3, 1, 2), torch.randn(4, 1)),
        (torch.randn(5, 4).t(), torch.randn(4, 5)),
        (torch.randn(4, 6)[:, ::2], torch.randn(4, 3)),
        (torch.randn(2, 3, 4, 5).permute(0, 3, 1, 2), torch.randn(2, 3, 4, 5).permute(0, 3, 1, 2)),
        (torch.randn(3, 4).double(), torch.tensor(0.1, dtype=torch.double)),
        (torch.arange(5), torch.tensor(2**40)),
        (torch.arange(5), 1.5),
        (torch.tensor([True, False]), torch.tensor([True, True])),
        (torch.randn(4), torch.arange(4)),
        (torch.randn(3000), torch.randn(3000)),
    ],
)
def test_elements(x: Tensor, y: Tensor | float) -> None:
    agree(torch.add, x, y)
    agree(torch.gt, x, y) if isinstance(y, Tensor) else None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_once(dtype: torch.dtype) -> None:
    x, y = (torch.randn(257).to(dtype) for _ in range(2))
    found = torch.add(x.to("sim"), y.to("sim"), alpha=3).cpu()
    assert torch.equal(found, (x.float() + 3 * y.float()).to(dtype))


@pytest.mark.parametrize("mode", [None, "floor"])
def test_words_are_constants(mode: str | None) -> None:
    agree(lambda x, y: torch.div(x, y, rounding_mode=mode), torch.randn(9), torch.randn(9) + 3)


def test_variants_of_a_function_of_elements() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    agree(lambda x, y: x.clone().add_(y, alpha=2), x, y)
    agree(lambda x, y: torch.add(x, y, out=torch.empty(0, device=x.device)), x, y)
    agree(lambda x, y: torch.add(x, y, out=torch.empty(4, 3, device=x.device).t()), x, y)
    device = x.to("sim").requires_grad_()
    torch.add(device, 1).square().sum().backward()
    torch.testing.assert_close(device.grad.cpu(), 2 * (x + 1))


def test_functions_on_pointers() -> None:
    agree(torch.sigmoid, torch.randn(50))
    agree(torch.sigmoid, torch.randn(6, 8)[:, ::2])
    agree(lambda x: torch.sigmoid(x, out=torch.empty(5, 4, device=x.device).t()), torch.randn(4, 5))
    agree(lambda x: x.clone().sigmoid_(), torch.randn(3, 3))
    agree(lambda x: torch.diagonal_copy(x), torch.randn(5, 5))
    agree(lambda x: torch.diagonal_copy(x, out=torch.empty(0, device=x.device)), torch.randn(5, 5))


@pytest.mark.parametrize("function", [torch.fmax, torch.logical_and])
def test_functions_on_pointers_get_operands_of_the_results_shape(
    function: Callable[..., Tensor],
) -> None:
    x, row, number = torch.randn(3, 1, 20), torch.randn(4, 1).round(), torch.tensor(0.5)
    agree(function, x, row)
    agree(function, number, x)
    agree(function, x, torch.tensor(0.5))
    result = function(row, x)
    for out in result, result[:0]:
        agree(lambda x, y, out: function(x, y, out=out), row, x, out.clone())


def test_strides_are_those_in_the_results_shape() -> None:
    row, numbers = torch.zeros(1, device="sim"), torch.arange(6.0)
    assert torch.equal(torch.atan2(row, numbers.to("sim")).cpu(), numbers)


def test_and_or_and_not_are_of_elements() -> None:
    agree(torch.nn.functional.hardshrink, torch.linspace(-2, 2, 21))


def test_truths_are_arguments_and_are_inverted_as_integers_are() -> None:
    x = torch.tensor([1, 2**32 - 1], device="sim")
    assert torch.clamp_min(x, 5).tolist() == [2**32 - 2, 5]


def test_launchers_and_what_they_tune() -> None:
    agree(lambda x: torch.softmax(x, 0), torch.randn(3, 5))
    agree(lambda x: torch.softmax(x, -1), torch.randn(2, 3, 7))


def test_flag_gems_is_given_numbers_as_torch_library_gives_them() -> None:
    from opsmith.runtime.triton.flag_gems import called_by_torch_library

    seen: list[tuple[Any, Any]] = []

    def add(A: Tensor, B: Any, *, alpha: Any = None) -> None:  # noqa: N803
        seen.append((B, alpha))

    schema = "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    function = called_by_torch_library(add, SIM.plan.entry("add.Tensor"), schema)
    x, row = torch.ones(2, device="sim"), torch.ones(1)
    for other in (torch.tensor(0.5), torch.tensor(3), row):
        function(x, other, alpha=2)
    function(x, 0.5, alpha=1)
    assert seen == [(0.5, 2), (3, 2), (row, 2), (0.5, None)]


def test_nothing_is_launched_for_no_elements() -> None:
    x = torch.empty(0, 3, device="sim")
    assert torch.add(x, 1).shape == torch.sigmoid(x).shape == torch.softmax(x, 1).shape == (0, 3)


def test_other_dtypes_are_the_next_library() -> None:
    x = torch.randn(3, 4).double()
    with opsmith.count_fallbacks(callers=False) as block:
        found = torch.softmax(x.to("sim"), 1)
    torch.testing.assert_close(found.cpu(), torch.softmax(x, 1))
    assert "_softmax" not in {each.operator for each in block.fallbacks.counts if each.calls} or (
        SIM.plan.host is Place.COPIES
    )


def test_what_cannot_be_computed_goes_to_the_next_library() -> None:
    x = torch.randn(4, dtype=torch.complex64)
    torch.testing.assert_close((x.to("sim") + x.to("sim")).cpu(), x + x)
    z = torch.randn(5)  # whose kernel calls what Triton has not
    with opsmith.count_fallbacks(callers=False) as block:
        found = torch.tan(z.to("sim"))
    torch.testing.assert_close(found.cpu(), torch.tan(z))
    on_copies = int(
        SIM.plan.host is Place.COPIES
    )  # portable's kernel then, and not the one that refused
    assert sum(each.kernel_calls for each in block.fallbacks.counts) == on_copies
    y = torch.randn(8).bfloat16()  # of which Triton's interpreter makes integers
    torch.testing.assert_close(torch.sigmoid(y.to("sim")).cpu(), torch.sigmoid(y))


def test_refusals_are_told_where_nothing_follows() -> None:
    with pytest.raises(opsmith.Unsupported) as error:
        torch.rsqrt(torch.randn(3, dtype=torch.complex64).to("sim"))
    assert str(error.value) == (
        f"{HERE / 'kernels.yaml'}:8:6: Triton has no torch.complex64, for `kernels.py:inverse_root`, the "
        "kernel of `rsqrt.out`\n"
        "  remedy: limit the entry to the dtypes that it takes (`dtypes`), or let other kernels serve such "
        "calls (`on_error: fallback`)"
    )


def test_a_kernel_that_fails_says_where() -> None:
    with pytest.raises(opsmith.Unsupported) as error:
        torch.erf(torch.ones(2, device="sim"))
    message, _, remedy = str(error.value).rpartition("\n")
    assert message.startswith(
        f"{HERE / 'kernels.yaml'}:23:6: Triton{' cannot compile' if IS_COMPILED else S_INTERPRETER} "
        "`kernels.py:tangent` for this call of `erf.out`: "
    )
    assert "no_such_function" in message
    assert remedy.startswith("  remedy: limit the entry to the dtypes that it takes")


def test_mistakes_in_the_module_are_located() -> None:
    with pytest.raises(KernelRejected) as error:
        torch.sinh(torch.ones(2, device="sim"))
    assert str(error.value) == (
        f"{HERE / 'kernels.yaml'}:20:6: `{HERE / 'kernels.py'}` has no `missing`, the kernel of `sinh.out`\n"
        "  remedy: define it there, or name another"
    )
    with pytest.raises(KernelRejected) as error:
        torch.cosh(torch.ones(2, device="sim"))
    assert str(error.value) == (
        f"{HERE / 'kernels.yaml'}:21:6: `kernels.py:greater` has 2 parameters, and `cosh.out` 1 operands\n"
        "  remedy: write `def greater(self):`, each being one element, or a number"
    )


def test_calls_and_bytes_are_the_hosts_where_it_interprets() -> None:
    x = torch.randn(4, 8, device="sim")
    with opsmith.count_fallbacks(callers=False) as block:
        torch.sigmoid(x)
    if IS_COMPILED:
        assert block.fallbacks.counts == ()
        with opsmith.fallback("deny"):
            torch.sigmoid(x)
        return
    (count,) = block.fallbacks.counts
    assert (count.operator, count.calls, count.kernel_calls) == ("sigmoid", 1, 1)
    assert count.bytes_moved == 4 * x.nbytes  # x and the result, both ways
    with opsmith.fallback("deny"), pytest.raises(NotImplementedError, match="runs on the host"):
        torch.sigmoid(x)


def test_a_kernel_registered_in_python_comes_first() -> None:
    x = torch.ones(3, device="sim")
    with SIM.kernel("sigmoid.out")(lambda self, *, out: out.fill_(7)):
        assert torch.sigmoid(x).tolist() == [7, 7, 7]
    torch.testing.assert_close(torch.sigmoid(x).cpu(), torch.sigmoid(torch.ones(3)))
