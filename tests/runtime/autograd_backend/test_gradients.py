"""Gradients of the device's own functions against the CPU's, and what autograd promises beside values.

Each case is a row of the table in docs/describe/autograd.md; kernels count their calls, so that no case
passes by another route.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opsmith
from opsmith.plan import AutogradRoute, Route
from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"), nightly=("off",))
LOADED = opsmith.load(str(Path(__file__).with_name("backend.yaml")))
FOLDER = Path(__file__).parent

COUNTED = (
    *(
        "relu",
        "relu_backward",
        "mul_backward both",
        "mul_backward one",
        "linear",
        "linear_backward",
    ),
    *("matmul_out", "Matmul::backward", "Sigmoid::forward", "Tanh::forward", "tanh_"),
    *("SiluInplace::forward", "attention"),
)

Operation = Callable[..., Tensor]


def calls(kernel: str) -> int:
    """How often a kernel ran since this was asked last."""
    return int(torch.ops.chip_test.calls(kernel))


@pytest.fixture(autouse=True)
def forget_calls() -> None:
    """Each test counts its own calls."""
    for kernel in COUNTED:
        calls(kernel)


def floats(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def on_device(*tensors: Tensor, grad: bool = True) -> list[Tensor]:
    return [t.to("chip").requires_grad_(grad and t.is_floating_point()) for t in tensors]


def gradients(operation: Operation, operands: list[Tensor]) -> list[Tensor | None]:
    """The result's values and the operands' gradients, on the CPU."""
    result = operation(*operands)
    result.backward(floats(*result.shape).to(result))
    found: list[Tensor | None] = [result.detach().cpu()]
    return found + [None if x.grad is None else x.grad.cpu() for x in operands]


def same(operation: Operation, *operands: Tensor) -> None:
    """Values and gradients are the CPU's; each operand requires a gradient."""
    ours = gradients(operation, on_device(*operands))
    theirs = gradients(
        operation, [t.clone().requires_grad_(t.is_floating_point()) for t in operands]
    )
    for mine, other in zip(ours, theirs, strict=True):
        if other is None:
            assert mine is None
        else:
            assert mine is not None
            torch.testing.assert_close(mine, other)


def test_every_route_is_covered() -> None:
    routes = {entry.autograd.route for entry in LOADED.plan.entries if entry.autograd}
    assert routes == set(AutogradRoute)


# ---- gradients, row by row


def test_a_kernel_with_a_backward_kernel() -> None:
    same(torch.relu, floats(3, 4))
    assert (calls("relu"), calls("relu_backward")) == (1, 1)
    same(lambda x: torch.relu(x.T)[1:], floats(3, 4))


def test_its_in_place_variant() -> None:
    # On what is no leaf, and twice.
    same(lambda x: x.clone().relu_(), floats(3, 4))
    same(lambda x: x.mul(2).relu_().mul(x).relu_(), floats(3, 4))
    assert calls("relu_backward") == 3


def test_a_structured_kernel_with_a_backward_kernel() -> None:
    same(torch.mul, floats(3, 4), floats(3, 4))
    same(torch.mul, floats(3, 1), floats(4))
    assert (calls("mul_backward both"), calls("mul_backward one")) == (2, 0)
    same(lambda x: x * 2.5, floats(3))
    assert (calls("mul_backward both"), calls("mul_backward one")) == (0, 1)
    same(lambda x, y: x * y, floats(3), torch.arange(3))
    same(lambda x: x.clone().mul_(x), floats(3))


def test_a_backward_kernel_beside_a_derived_forward() -> None:
    entry = LOADED.plan.entry("sinh")
    assert entry.route is Route.DERIVED and entry.autograd is not None
    same(torch.sinh, floats(3, 4))


def test_integer_results_have_no_gradient() -> None:
    same(lambda x: torch.topk(x, 2).values, floats(3, 5))
    (x,) = on_device(floats(3, 5))
    values, indices = torch.topk(x, 2)
    assert values.requires_grad and not indices.requires_grad
    same(lambda x: torch.topk(x, 2, dim=0, largest=False).values, floats(3, 5))


def test_undefined_gradients_are_zeros_and_optional_operands_may_lack() -> None:
    def norm(*operands: Tensor) -> Tensor:
        weight, bias = (*operands[1:], None, None)[:2]
        return torch.native_layer_norm(operands[0], [6], weight, bias, 1e-5)[0]

    same(norm, floats(4, 6), floats(6), floats(6))
    same(norm, floats(4, 6), floats(6))
    same(norm, floats(4, 6))


def test_a_list_of_tensors() -> None:
    same(lambda x, y, z: torch.cat([x, y, z], 1), floats(3, 4), floats(3, 1), floats(3, 2))
    x, y = on_device(floats(2), floats(3))
    z = torch.cat([x, y.detach(), x])
    z.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2] and y.grad is None


def test_a_composite_operator_with_kernel_and_backward_kernel() -> None:
    same(functional.linear, floats(5, 4), floats(3, 4), floats(3))
    same(functional.linear, floats(2, 5, 4), floats(3, 4))
    assert (calls("linear"), calls("linear_backward")) == (2, 2)


def test_a_composite_operator_with_a_function_for_autograd() -> None:
    same(torch.matmul, floats(3, 4), floats(4, 2))
    assert (calls("matmul_out"), calls("Matmul::backward")) == (3, 1)
    # Its out variant has a kernel, from which what is below autograd is derived.
    assert LOADED.plan.entry("matmul").route is Route.DERIVED


def test_a_function_for_autograd_only() -> None:
    same(torch.sigmoid, floats(3, 4))
    assert calls("Sigmoid::forward") == 1
    same(lambda x: x.clone().sigmoid_(), floats(3, 4))
    assert calls("Sigmoid::forward") == 1


def test_a_function_for_autograd_beside_an_in_place_kernel() -> None:
    same(lambda x: x.clone().tanh_(), floats(3, 4))
    assert (calls("Tanh::forward"), calls("tanh_")) == (1, 0)
    (x,) = on_device(floats(3), grad=False)
    x.tanh_()
    assert (calls("Tanh::forward"), calls("tanh_")) == (0, 1)
    torch.testing.assert_close(x.cpu(), floats(3).tanh_())


def test_an_in_place_function_for_autograd_leaves_the_functional_alone() -> None:
    same(lambda x: functional.silu(x.clone(), inplace=True), floats(3, 4))
    assert calls("SiluInplace::forward") == 1
    same(functional.silu, floats(3, 4))
    assert calls("SiluInplace::forward") == 0


def test_out_is_refused_with_a_gradient() -> None:
    x, y, out = on_device(floats(3, 3), floats(3, 3), torch.zeros(3, 3))
    words = r"functions with out=... arguments don't support automatic differentiation"
    for call in (
        lambda: torch.matmul(x, y, out=out.detach()),
        lambda: torch.ops.aten.linear.out(x, y, out=out.detach()),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()
    with torch.no_grad():
        torch.testing.assert_close(torch.matmul(x, y, out=out.detach()).cpu(), x.cpu() @ y.cpu())
    torch.testing.assert_close(
        torch.ops.aten.linear.out(x.detach(), y.detach(), out=out.detach()).cpu(),
        functional.linear(x.cpu(), y.cpu()),
    )


@pytest.mark.parametrize(
    "operation",
    [
        torch.relu,
        torch.sinh,
        lambda x: x * x.T,
        lambda x: torch.topk(x, 2)[0],
        lambda x: torch.native_layer_norm(x, [4], None, None, 1e-5)[0],
        lambda x: torch.cat([x, x.T]),
        lambda x: functional.linear(x, x.T, x[0]),
        lambda x: x.clone().relu_(),
    ],
    ids=["relu", "sinh", "mul", "topk", "layer_norm", "cat", "linear", "relu_"],
)
def test_gradcheck(operation: Operation) -> None:
    (x,) = on_device(floats(4, 4).double())
    assert torch.autograd.gradcheck(operation, (x,))


# ---- without autograd


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_values_without_gradients(mode: Callable[[], torch.no_grad]) -> None:
    with mode():
        x, y = on_device(floats(3, 3), floats(3, 3))
        for operation in (torch.relu, torch.sigmoid, torch.tanh, torch.sinh, torch.square):
            result = operation(x)
            assert not result.requires_grad
            torch.testing.assert_close(result.cpu(), operation(floats(3, 3)))
        torch.testing.assert_close((x @ y).cpu(), floats(3, 3) @ floats(3, 3))
        torch.testing.assert_close(functional.linear(x, y).cpu(), floats(3, 3) @ floats(3, 3).T)
        for name in ("relu_", "sigmoid_", "tanh_", "silu_"):
            op = getattr(torch.ops.aten, name)
            torch.testing.assert_close(op(x.clone()).cpu(), op(floats(3, 3)))
    (x,) = on_device(floats(3))
    with torch.inference_mode():
        before = x._version
        functional.silu(x.detach(), inplace=True)
        torch.testing.assert_close(x.cpu(), functional.silu(floats(3)))
    assert x._version == before + 1


def test_what_serves_below_autograd_is_in_the_plan() -> None:
    routes = {
        name: LOADED.plan.entry(name).route for name in ("sigmoid", "square", "matmul", "tanh")
    }
    assert routes == {
        "sigmoid": Route.FALLBACK,
        "square": Route.COMPOSITE,
        "matmul": Route.DERIVED,
        "tanh": Route.DERIVED,
    }
    # The author's gradient differs from PyTorch's, which proves that it is the one in use.
    (x,) = on_device(torch.tensor([2.0]))
    x.square().backward()
    assert x.grad is not None and x.grad.item() == 6
    with torch.inference_mode():
        assert x.square().item() == 4


# ---- what autograd promises


def test_a_second_derivative_is_refused_with_the_remedy() -> None:
    (x,) = on_device(floats(3))
    (gradient,) = torch.autograd.grad(torch.relu(x).sum(), x, create_graph=True)
    torch.testing.assert_close(gradient.detach().cpu(), (floats(3) > 0).float())
    assert refusal(RuntimeError, lambda: gradient.sum().backward()) == (
        "aten::relu cannot be differentiated twice: its gradient is computed by the kernel "
        f"`chip::relu_backward` ({FOLDER}/kernels.yaml:6:6), which has no gradient of its own\n"
        "  remedy: name a differentiable function with `autograd: …` in the place of `backward`"
    )


def test_a_function_for_autograd_can_be_differentiated_twice() -> None:
    (x,) = on_device(floats(2, 2))
    (first,) = torch.autograd.grad((x @ x).sum(), x, create_graph=True)
    first.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[4, 4], [4, 4]]


def test_another_dtype_than_the_backward_kernel_takes_is_refused() -> None:
    same(torch.tan, floats(3))
    (x,) = on_device(floats(3).double())
    assert refusal(NotImplementedError, lambda: torch.tan(x).sum().backward()).startswith(
        "the gradient of aten::tan is computed by the kernel `chip::tan_backward` "
        f"({FOLDER}/kernels.yaml:19:6), which takes Float only, not Double"
    )


def test_a_saved_tensor_must_not_change() -> None:
    (x,) = on_device(floats(3))
    y = x * 1
    z = torch.relu(y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        z.sum().backward()


def test_the_graph_can_be_kept_or_is_freed() -> None:
    (x,) = on_device(floats(3))
    y = torch.relu(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), 2 * (floats(3) > 0).float())
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_a_leaf_is_not_overwritten() -> None:
    (x,) = on_device(floats(3))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.relu_()
    assert x.tolist() == floats(3).tolist()


def test_an_in_place_result_must_fit() -> None:
    x, y = on_device(floats(3), floats(2, 3))
    with pytest.raises(RuntimeError, match=r"doesn't match the broadcast shape .* \(aten::mul_"):
        x.clone().mul_(y)


def test_forward_mode_is_refused() -> None:
    (x,) = on_device(floats(3), grad=False)
    with pytest.raises(NotImplementedError, match="Trying to use forward AD with aten::relu"):
        torch.func.jvp(torch.relu, (x,), (x,))


def test_the_node_has_a_name() -> None:
    x, y = on_device(floats(3), floats(3))
    assert torch.relu(x).grad_fn.name() == "ReluBackward"
    assert (x * y).grad_fn.name() == "MulTensorBackward"


def test_functorch_and_saved_tensor_hooks() -> None:
    (x,) = on_device(floats(3), grad=False)
    torch.testing.assert_close(
        torch.func.grad(lambda x: torch.relu(x).sum())(x).cpu(), (floats(3) > 0).float()
    )
    packed = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor.cpu()

    (x,) = on_device(floats(3))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.to("chip")):
        y = torch.relu(x)
    y.sum().backward()
    assert len(packed) == 2 and x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), (floats(3) > 0).float())


def test_compile_traces_forward_and_backward() -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(functional.linear(x, w)).mul(x[:, :3])

    same(torch.compile(step, backend="aot_eager", fullgraph=True), floats(5, 4), floats(3, 4))
    assert calls("relu_backward") > 0 and calls("linear_backward") > 0


def test_attention_is_one_call_where_the_description_says_so() -> None:
    """No gradient: there is no kernel for it."""
    attention = functional.scaled_dot_product_attention
    (x,) = on_device(floats(2, 4, 5, 8), grad=False)
    torch.testing.assert_close(attention(x, x, x).cpu(), attention(*(x.cpu(),) * 3))
    assert calls("attention") == 1
    others: tuple[tuple[Tensor, Tensor, dict[str, Any]], ...] = (
        (x.double(), x.double(), {}),
        (x[..., :6], x[..., :6], {}),
        (torch.cat([x, x], -1), torch.cat([x, x], -1), {}),
        (x, x, {"is_causal": True}),
        (x, x, {"dropout_p": 0.5}),
        (x, x, {"attn_mask": torch.ones(5, 5, device="chip", dtype=torch.bool)}),
        (x, x[:, :2], {"enable_gqa": True}),
        (x.clone().requires_grad_(), x, {}),
    )
    for query, key, options in others:
        assert attention(query, key, key, **options).shape == query.shape
        assert calls("attention") == 0, options
