"""Differentiation by the description's own functions: what the plan allows, refuses and says.

The gradients themselves: see ``autograd_backend/test_gradients.py``, which runs on a backend of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith.description import read_backend
from opsmith.emit import declaration
from opsmith.plan import AutogradRoute, Plan, resolve
from opsmith.schema import Catalogue, Operator, Variant, gradient_operator

Describe = Callable[..., Path]


def planned(path: Path, catalogue: Catalogue) -> Plan:
    return resolve(read_backend(path, catalogue), catalogue)


# ---- the table of docs/describe/autograd.md

# The kernels, and what becomes of each variant: its route, and its gradient's.
MIXED = """
{op: relu, kernel_name: chip::f, backward: chip::b}
  relu KERNEL BACKWARD, relu_ DERIVED INPLACE_OR_COPY, relu.out DERIVED -
{op: relu, kernel_name: chip::f, autograd: chip::a}
  relu KERNEL FUNCTION, relu_ DERIVED INPLACE_OR_COPY, relu.out DERIVED -
{op: relu, autograd: chip::a}
  relu FALLBACK FUNCTION, relu_ FALLBACK INPLACE_BY_COPY, relu.out COMPOSITE -
{op: relu, autograd: chip::a}, {op: relu_, kernel_name: chip::f}
  relu DERIVED FUNCTION, relu_ KERNEL INPLACE_OR_COPY, relu.out DERIVED -
{op: relu, kernel_name: chip::f}, {op: relu_, autograd: chip::a}
  relu KERNEL -, relu_ DERIVED FUNCTION, relu.out DERIVED -
{op: relu, backward: chip::b}, {op: relu_, autograd: chip::a}
  relu FALLBACK BACKWARD, relu_ FALLBACK FUNCTION, relu.out COMPOSITE -
{op: matmul, kernel_name: chip::f, backward: chip::b}
  matmul KERNEL BACKWARD, matmul.out DERIVED OUT
{op: matmul, autograd: chip::a}
  matmul COMPOSITE FUNCTION, matmul.out COMPOSITE -
{op: matmul, autograd: chip::a}, {op: matmul.out, kernel_name: chip::f}
  matmul DERIVED FUNCTION, matmul.out KERNEL OUT
{op: mul.out, kernel_name: chip::f, structured: true, backward: chip::b}
  mul.Tensor STRUCTURED BACKWARD, mul_.Tensor STRUCTURED INPLACE_OR_COPY, mul.out STRUCTURED -
"""


@pytest.mark.parametrize(("kernels", "expected"), re.findall(r"(.*)\n  (.*)\n", MIXED))
def test_what_may_be_mixed(
    kernels: str, expected: str, describe: Describe, catalogue: Catalogue
) -> None:
    plan = planned(describe(kernels.replace("{", "- {").replace("}, ", "}\n")), catalogue)
    rows = [row.split() for row in expected.split(", ")]
    entries = [plan.entry(name) for name, _, _ in rows]
    gradients = [entry.autograd.route.name if entry.autograd else "-" for entry in entries]
    found = [[e.name, e.route.name, each] for e, each in zip(entries, gradients, strict=True)]
    assert found == rows


def test_two_libraries_may_share_an_operator(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: relu, backward: chip::b}")
    (path.parent / "second.yaml").write_text(
        "library: second\nkernels: [{op: relu, kernel_name: b::relu, autograd: b::a}]\n"
    )
    path.write_text(path.read_text().replace("[kernels.yaml]", "[kernels.yaml, second.yaml]"))
    entry = planned(path, catalogue).entry("relu")
    assert entry.kernel is not None and entry.kernel.symbol == "b::relu"
    assert entry.autograd is not None and entry.autograd.route is AutogradRoute.BACKWARD


def test_the_reasons(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        """
        - {op: matmul, kernel_name: chip::f, backward: chip::b}
        - {op: relu, autograd: chip::a}
        """
    )
    plan = planned(path, catalogue)
    why = {
        name: autograd.why.replace(str(path.parent), "DIR")
        for name in ("matmul", "matmul.out", "relu", "relu_")
        if (autograd := plan.entry(name).autograd)
    }
    assert why == {
        "matmul": "what is served below autograd runs; `chip::b` (DIR/kernels.yaml:5:6) computes the "
        "gradients from the saved Tensors, scalars and results",
        "matmul.out": "refuses arguments that require a gradient, as PyTorch's own out= does",
        "relu": "`chip::a` (DIR/kernels.yaml:6:6) runs and differentiates it",
        "relu_": "`relu`, with its own gradient, on a copy of self where a gradient is needed; the "
        "result is copied into self",
    }


# ---- the operator that a backward kernel is registered as


def schema_of(name: str, catalogue: Catalogue) -> str:
    return gradient_operator(catalogue.operators[name], "opsmith_chip").schema


def test_the_gradient_operator(catalogue: Catalogue) -> None:
    assert schema_of("relu", catalogue) == (
        "relu_backward(Tensor grad_result, Tensor self, Tensor result, bool[1] needs) -> Tensor"
    )
    assert schema_of("native_layer_norm", catalogue) == (
        "native_layer_norm_backward(Tensor grad_result0, Tensor grad_result1, Tensor grad_result2, "
        "Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps, Tensor "
        "result0, Tensor result1, Tensor result2, bool[3] needs) -> (Tensor, Tensor, Tensor)"
    )
    assert schema_of("max.dim", catalogue) == (
        "max_dim_backward(Tensor grad_values, Tensor grad_indices, Tensor self, int dim, bool keepdim, "
        "Tensor values, Tensor indices, bool[1] needs) -> Tensor"
    )
    assert schema_of("cat", catalogue) == (
        "cat_backward(Tensor grad_result, Tensor[] tensors, int dim, Tensor result, bool[1] needs) "
        "-> Tensor[]"
    )


def test_what_a_missing_function_must_look_like(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        """
        - {op: relu, kernel_name: chip::f, backward: chip::b, saves: []}
        - {op: sigmoid, autograd: chip::a}
        """
    )
    plan = planned(path, catalogue)
    kernels = {name: plan.entry(name).autograd.kernel for name in ("relu", "sigmoid")}
    assert declaration(plan, kernels["relu"], "chip::f") == (
        "at::Tensor chip::f(const at::Tensor & self)"
    )
    assert declaration(plan, kernels["relu"], "chip::b") == (
        "at::Tensor chip::b(const at::Tensor & grad_result, const at::Tensor & self, "
        "::std::array<bool,1> needs)"
    )
    assert declaration(plan, kernels["sigmoid"], "chip::a") == (
        "at::Tensor chip::a(const at::Tensor & self)"
    )


def test_only_the_saved_results_are_taken(catalogue: Catalogue) -> None:
    topk = catalogue.operators["topk"]
    assert gradient_operator(topk, "opsmith_chip", ["indices"]).schema == (
        "topk_backward(Tensor grad_values, Tensor grad_indices, Tensor self, SymInt k, int dim, bool "
        "largest, bool sorted, Tensor indices, bool[1] needs) -> Tensor"
    )


def test_the_gradient_operator_of_a_custom_operator() -> None:
    scale = Operator(
        name="myop::scale.by",
        schema="scale.by(Tensor x, float factor=2.0, *, Tensor? bias=None) -> Tensor",
        variant=Variant.FUNCTIONAL,
        namespace="myop",
    )
    gradient = gradient_operator(scale, "opsmith_chip")
    assert gradient.name == "opsmith_chip::myop_scale_by_backward"
    assert gradient.schema == (
        "myop_scale_by_backward(Tensor grad_result, Tensor x, float factor, Tensor? bias, Tensor "
        "result, bool[2] needs) -> (Tensor, Tensor)"
    )
