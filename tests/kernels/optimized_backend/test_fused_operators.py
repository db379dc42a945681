"""The library's fused operators on a device, against what they are made of, on the CPU: values and gradients.

What they compute is also in ``kernel_suite/custom_samples.py``, in ExecuTorch and without a host window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.library import opcheck
from torch.nn import functional

import opsmith
from fell_back import fell_back
from instruction_sets import skip_unsupported
from refusal import refusal

pytestmark = pytest.mark.isolated(
    OPSMITH_ISA=("", "baseline", "avx2"), nightly=("baseline", "avx2")
)
skip_unsupported()

opsmith.load("sim")
DEVICE = "sim"
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
WIDTH = 70

fused = torch.ops.optimized


# Operators with which tests compare results, on the device.
OF_TESTS = {"masked_select", "sgn"}


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    torch.manual_seed(0)
    start = opsmith.fallbacks()
    yield
    assert fell_back(opsmith.fallbacks(since=start)) <= OF_TESTS


def turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Rotary embedding in ATen's operators."""
    pairs = cos.shape[-1]
    x, rest = x.split((2 * pairs, x.shape[-1] - 2 * pairs), -1)
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else x.chunk(2, -1)
    both = (first * cos - second * sin, second * cos + first * sin)
    whole = torch.stack(both, -1).flatten(-2) if interleaved else torch.cat(both, -1)
    return torch.cat([whole, rest], -1)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    total = x + residual
    return functional.rms_norm(total, [WIDTH], weight, 1e-6), total


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return functional.layer_norm(total, [WIDTH], weight, bias, 1e-3), total


def agree(
    ours: Callable[..., Any], made_of: Callable[..., Any], dtype: torch.dtype, *sizes: Any
) -> None:
    """``ours`` on the device gives what ``made_of`` gives on the CPU, in float64, and so do its gradients.

    A size stands for an operand of it, None for one that is missing.
    """
    operands = [None if size is None else torch.randn(size).to(dtype) for size in sizes]
    there = [each if each is None else each.to(DEVICE).requires_grad_() for each in operands]
    here = [each if each is None else each.double().requires_grad_() for each in operands]
    results, wanted = (
        each if isinstance(each, tuple) else (each,) for each in (ours(*there), made_of(*here))
    )
    weights = [torch.randn(each.shape).to(dtype) for each in wanted]
    torch.autograd.backward(results, [each.to(DEVICE) for each in weights])
    torch.autograd.backward(wanted, [each.double() for each in weights])
    pairs = [*zip(results, wanted, strict=True)]
    pairs += [
        (a.grad, b.grad)
        for a, b in zip(there, here, strict=True)
        if a is not None and b is not None
    ]
    for actual, exact in pairs:
        assert actual.dtype == dtype
        bound = {torch.bfloat16: 3e-2, torch.float16: 4e-3}.get(dtype, 3e-6)
        largest = exact.detach().abs().max().item()
        torch.testing.assert_close(
            actual.detach().cpu().double(), exact.detach(), rtol=bound, atol=bound * largest
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_residual_is_added_and_normalized(dtype: torch.dtype) -> None:
    x = (3, 4, WIDTH)
    for weight in (WIDTH, None):

        def by_rms(x: Tensor, residual: Tensor, weight: Tensor | None) -> Any:
            return fused.add_rms_norm(x, residual, [WIDTH], weight, 1e-6)

        agree(by_rms, add_rms_norm, dtype, x, x, weight)
        for bias in (WIDTH, None):

            def by_layer(
                x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None
            ) -> Any:
                return fused.add_layer_norm(x, residual, [WIDTH], weight, bias, 1e-3)

            agree(by_layer, add_layer_norm, dtype, x, x, weight, bias)


def test_gradients_of_one_result_alone() -> None:
    x = torch.randn(4, WIDTH, device=DEVICE, requires_grad=True)
    residual = torch.randn(4, WIDTH, device=DEVICE)
    weight = torch.rand(WIDTH, device=DEVICE)
    _, total = fused.add_rms_norm(x, residual, [WIDTH], weight)
    total.sum().backward()
    assert torch.equal(x.grad.cpu(), torch.ones(4, WIDTH))
    x = x.detach().requires_grad_()
    normed, _ = fused.add_layer_norm(x, residual, [WIDTH], weight)
    normed.sum().backward()
    assert x.grad is not None
    own = x.detach().cpu().requires_grad_()
    functional.layer_norm(own + residual.cpu(), [WIDTH], weight.cpu()).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), own.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["none", "tanh"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_of_what_a_bias_is_added_to(dtype: torch.dtype, how: str) -> None:
    def ours(x: Tensor, bias: Tensor) -> Tensor:
        return fused.bias_gelu(x, bias, how)  # type: ignore[no-any-return]

    def made_of(x: Tensor, bias: Tensor) -> Tensor:
        return functional.gelu(x + bias, approximate=how)

    agree(ours, made_of, dtype, (3, 4, WIDTH), (WIDTH,))
    agree(ours, made_of, dtype, (WIDTH,), (WIDTH,))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rotary_embeddings(dtype: torch.dtype, interleaved: bool) -> None:
    for size, own in (
        ((2, 5, 3, 64), (5, 1, 32)),
        ((2, 3, 5, 70), (2, 1, 5, 35)),
        ((4, 20), (4, 7)),
    ):
        angle = torch.randn(own)
        cos, sin = angle.cos(), angle.sin()

        def ours(x: Tensor, cos: Tensor = cos, sin: Tensor = sin) -> Tensor:
            return fused.rope(x, cos.to(DEVICE), sin.to(DEVICE), interleaved)  # type: ignore[no-any-return]

        def made_of(x: Tensor, cos: Tensor = cos, sin: Tensor = sin) -> Tensor:
            return turned(x, cos.double(), sin.double(), interleaved)

        agree(ours, made_of, dtype, size)


def test_gradients_of_gradients() -> None:
    x, bias = (torch.randn(size, device=DEVICE, requires_grad=True) for size in ((3, 8), (8,)))
    (grad,) = torch.autograd.grad(fused.bias_gelu(x, bias).sum(), x, create_graph=True)
    own, own_bias = (each.detach().cpu().requires_grad_() for each in (x, bias))
    (wanted,) = torch.autograd.grad(functional.gelu(own + own_bias).sum(), own, create_graph=True)
    grad.sum().backward()
    wanted.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), own.grad, rtol=1e-4, atol=1e-5)


class Block(nn.Module):
    """A layer of a model that is written with all four."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 40, bias=False), nn.Linear(40, 16)
        self.bias = nn.Parameter(torch.randn(40))
        self.scales = nn.ParameterList(torch.rand(16) for _ in range(3))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = fused.rope(x.unflatten(-1, (2, 8)), cos, sin).flatten(-2)
        normed, x = fused.add_rms_norm(y, x, [16], self.scales[0], 1e-6)
        y = self.down(fused.bias_gelu(self.up(normed), self.bias, "tanh"))
        normed, x = fused.add_layer_norm(y, x, [16], self.scales[1], self.scales[2])
        return normed + x  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_models_call_them(backend: str) -> None:
    block, angle = Block().to(DEVICE), torch.randn(5, 1, 4)
    x = torch.randn(2, 5, 16, device=DEVICE)
    cos, sin = angle.cos().to(DEVICE), angle.sin().to(DEVICE)
    expected = block(x, cos, sin)
    expected.square().sum().backward()
    gradients = [each.grad for each in block.parameters()]
    block.zero_grad()
    result = torch.compile(block, fullgraph=True, backend=backend)(x, cos, sin)
    result.square().sum().backward()
    torch.testing.assert_close(result, expected)
    for parameter, gradient in zip(block.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_they_keep_what_pytorch_asks_of_operators() -> None:
    def given(*size: int) -> Tensor:
        return torch.randn(size, device=DEVICE, requires_grad=True)

    def check(operator: torch._ops.OpOverload, *arguments: Any) -> None:
        # The fourth, of registrations for autograd, knows PyTorch's own devices only.
        tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
        opcheck(operator, arguments, test_utils=tests)

    angle = torch.randn(4, 8, device=DEVICE)
    check(fused.add_rms_norm.default, given(4, 16), given(4, 16), [16], given(16), 1e-6)
    check(fused.add_layer_norm.default, given(4, 16), given(4, 16), [16], given(16), given(16))
    check(fused.bias_gelu.default, given(4, 16), given(16))
    check(fused.rope.default, given(4, 16), angle.cos(), angle.sin(), True)


def test_what_they_refuse() -> None:
    x = torch.randn(4, 16, device=DEVICE)
    angle = torch.randn(4, 9, device=DEVICE)
    message = refusal(RuntimeError, fused.rope, x, angle, angle)
    assert message.splitlines()[0] == (
        "optimized::rope: its kernel `opsmith::optimized::native::rope_out` (library optimized) refuses the "
        "call: rope: cos and sin have one shape, which broadcasts to x but for the last dimension, and that "
        "is at most half of x's"
    )
    message = refusal(RuntimeError, fused.bias_gelu, x, torch.ones(16, device=DEVICE), "fast")
    assert "refuses the call: approximate argument must be either none or tanh." in message
    cos = angle[:, :8].clone().requires_grad_()
    message = refusal(NotImplementedError, fused.rope, x, cos, angle[:, :8])
    assert message.splitlines()[0] == (
        "optimized::rope has no gradients for cos and sin: detach() them"
    )
