"""Operators served through filled stubs against the CPU: values, and who is told what.

The routes are checked as well, so that no case passes by another route.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.plan import Route
from refusal import outcome

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_BACKEND=("windowed", "copying"), nightly=("copying",)
)
MODE = os.environ["OPSMITH_TEST_BACKEND"]
LOADED = opsmith.load(str(Path(__file__).with_name(f"{MODE}.yaml")))
KERNELS = ctypes.CDLL(str(LOADED.built.library))
DEVICE = "chip"


def floats(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def same(call: Callable[..., object], *arguments: object) -> None:
    """The call does on the device what it does on the CPU, be it to raise; its Tensors are compared too."""
    host = [a.clone() if isinstance(a, Tensor) else a for a in arguments]
    device = [a.clone().to(DEVICE) if isinstance(a, Tensor) else a for a in arguments]
    theirs, ours = outcome(call, *host), outcome(call, *device)
    if isinstance(theirs, type):
        assert ours is theirs
        return
    assert not isinstance(ours, type), f"the device raises {ours}"
    for mine, other in zip(
        torch.utils._pytree.tree_leaves((ours, device)),
        torch.utils._pytree.tree_leaves((theirs, host)),
        strict=True,
    ):
        if isinstance(other, Tensor):
            assert mine.device == torch.device(DEVICE, 0)
            torch.testing.assert_close(mine.cpu(), other, equal_nan=True)


UNARY = {
    "abs": torch.abs,
    "sin": torch.sin,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "leaky_relu": torch.nn.functional.leaky_relu,
    "round": torch.round,
    "round to decimals": lambda x: torch.round(x, decimals=2),
    "sign": torch.sign,
    "add": lambda x: torch.add(x, x, alpha=3),
    "mul": lambda x: x * x,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "sum": lambda x: x.sum(0),
    "sum to float": lambda x: x.sum((0, 1), dtype=torch.float32),
    "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: tuple(torch.sort(x, dim=0, stable=True)),
    "masked_fill": lambda x: x.masked_fill(x > 0, 2),
}
INPUTS = {
    "like": floats(3, 4),
    "transposed": floats(4, 3).T,
    "sliced": floats(3, 8)[:, ::2],
    "empty": floats(0, 4),
    "double": floats(3, 4).double(),
    "bfloat16": floats(3, 4).bfloat16(),
    "int": torch.arange(-6, 6).reshape(3, 4),
    "bool": floats(3, 4) > 0,
}


@pytest.mark.parametrize("value", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("call", UNARY.values(), ids=UNARY)
def test_values(call: Callable[[Tensor], object], value: Tensor) -> None:
    same(call, value)


OPERANDS = {
    "like": (floats(3, 4), floats(3, 4)),
    "broadcast": (floats(3, 1), floats(4)),
    "cpu scalar": (floats(3), 2.5),
    "int and float": (torch.arange(3), floats(3)),
    "float and int": (floats(3), torch.arange(3)),
    "float and double": (floats(3), floats(3).double()),
    "float scalar on ints": (torch.arange(3), 2.5),
    "bool": (torch.tensor([True, False]), torch.tensor([True, True])),
    "incompatible": (floats(3), floats(4)),
}


@pytest.mark.parametrize("operands", OPERANDS.values(), ids=OPERANDS)
@pytest.mark.parametrize("name", ["add", "mul", "lt"])
def test_operands_reach_the_kernel_in_the_common_dtype(
    name: str, operands: tuple[object, object]
) -> None:
    same(getattr(torch, name), *operands)
    same(getattr(torch.ops.aten, f"{name}_"), *operands)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool):
        same(
            lambda a, b, out: getattr(torch, name)(a, b, out=out),
            *operands,
            torch.zeros(3, dtype=dtype),
        )


def test_in_place_and_out() -> None:
    same(lambda x: x.abs_(), floats(3, 4))
    same(lambda x: x.sin_(), floats(3, 4).T)
    same(lambda x: x.sin_(), torch.arange(3))  # a float result does not fit
    same(lambda x: x.masked_fill_(x > 0, 2), floats(3, 4))
    same(lambda x, out: torch.sin(x, out=out), floats(3, 4), torch.zeros(2))
    same(lambda x, out: torch.sum(x, 1, out=out), floats(3, 4), torch.zeros(3))
    same(lambda x, out: torch.abs(x, out=out), floats(3, 4), torch.zeros(3, 4).double())


def test_random_numbers_come_from_the_kernel() -> None:
    drawn = torch.empty(50, device=DEVICE).uniform_(2, 3)
    assert 2 <= float(drawn.min()) < float(drawn.max()) < 3


def test_gradients_flow() -> None:
    x = floats(3, 4).to(DEVICE).requires_grad_()
    (x.sin() * x).sum().backward()
    y = floats(3, 4).requires_grad_()
    (y.sin() * y).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), y.grad)


def test_a_dtype_that_the_stub_lacks_is_refused_where_the_policy_says_so() -> None:
    with pytest.raises(NotImplementedError) as refused:
        torch.cos(floats(3).double().to(DEVICE))
    assert "aten::cos" in str(refused.value)
    assert "takes Float only, and the fallback is denied to it" in str(refused.value)
    same(torch.cos, floats(3))


ROUTES = {
    "abs.out": Route.STUB,
    "abs": Route.DERIVED,
    "abs_": Route.DERIVED,
    "sin.out": Route.STUB,
    "sin": Route.STUB,
    "sin_": Route.STUB,
    "add.Tensor": Route.STUB,
    "sum.IntList_out": Route.STUB,
    "sum.dim_IntList": Route.STUB,
    "cumsum": Route.STUB,
    "sort.stable": Route.STUB,
    "round.decimals": Route.STUB,
    "sgn.out": Route.FALLBACK,
    "leaky_relu": Route.STUB,
    "addcmul_": Route.STUB,
    "masked_fill_.Scalar": Route.STUB,
    "uniform_": Route.STUB,
}


@pytest.mark.parametrize("name", ROUTES)
def test_routes(name: str) -> None:
    assert LOADED.plan.entry(name).route is ROUTES[name]


def test_the_plan_names_the_stub_that_is_missing() -> None:
    assert LOADED.plan.entry("sgn.out").why.endswith(
        "; to be served through stubs it needs `sgn_stub` as well"
    )


@pytest.mark.parametrize("call", [*UNARY.values(), Tensor.uniform_], ids=[*UNARY, "uniform"])
def test_the_kernel_is_really_called(call: Callable[[Tensor], object]) -> None:
    x = floats(3, 4).to(DEVICE)
    before = KERNELS.chip_stub_calls()
    call(x)
    assert KERNELS.chip_stub_calls() > before
