"""Differentiation by the description's own functions: what the plan allows, refuses and says.

The gradients themselves: see ``autograd_backend/test_gradients.py``, which runs on a backend of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith.description import read_backend
from opsmith.emit import declaration
from opsmith.errors import KernelRejected, SyntaxInvalid
from opsmith.plan import AutogradRoute, Plan, Route, resolve
from opsmith.schema import Catalogue, Operator, Variant, gradient_operator

Describe = Callable[..., Path]


def planned(path: Path, catalogue: Catalogue) -> Plan:
    return resolve(read_backend(path, catalogue), catalogue)


def routes(plan: Plan, *names: str) -> dict[str, tuple[Route, AutogradRoute | None]]:
    entries = [plan.entry(name) for name in names]
    return {e.name: (e.route, e.autograd.route if e.autograd else None) for e in entries}


# ---- the table of docs/describe/autograd.md

RELU = ("relu", "relu_", "relu.out")
MATMUL = ("matmul", "matmul.out")


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        (
            ["{op: relu, kernel_name: chip::f, backward: chip::b}"],
            {
                "relu": (Route.KERNEL, AutogradRoute.BACKWARD),
                "relu_": (Route.DERIVED, AutogradRoute.INPLACE_OR_COPY),
                "relu.out": (Route.DERIVED, None),
            },
        ),
        (
            ["{op: relu, kernel_name: chip::f, autograd: chip::a}"],
            {
                "relu": (Route.KERNEL, AutogradRoute.FUNCTION),
                "relu_": (Route.DERIVED, AutogradRoute.INPLACE_OR_COPY),
                "relu.out": (Route.DERIVED, None),
            },
        ),
        (
            ["{op: relu, autograd: chip::a}"],
            {
                "relu": (Route.FALLBACK, AutogradRoute.FUNCTION),
                "relu_": (Route.FALLBACK, AutogradRoute.INPLACE_BY_COPY),
                "relu.out": (Route.COMPOSITE, None),
            },
        ),
        (
            ["{op: relu, autograd: chip::a}", "{op: relu_, kernel_name: chip::f}"],
            {
                "relu": (Route.DERIVED, AutogradRoute.FUNCTION),
                "relu_": (Route.KERNEL, AutogradRoute.INPLACE_OR_COPY),
                "relu.out": (Route.DERIVED, None),
            },
        ),
        (
            ["{op: relu, kernel_name: chip::f}", "{op: relu_, autograd: chip::a}"],
            {
                "relu": (Route.KERNEL, None),
                "relu_": (Route.DERIVED, AutogradRoute.FUNCTION),
                "relu.out": (Route.DERIVED, None),
            },
        ),
        (
            ["{op: relu, backward: chip::b}", "{op: relu_, autograd: chip::a}"],
            {
                "relu": (Route.FALLBACK, AutogradRoute.BACKWARD),
                "relu_": (Route.FALLBACK, AutogradRoute.FUNCTION),
                "relu.out": (Route.COMPOSITE, None),
            },
        ),
        (
            ["{op: matmul, kernel_name: chip::f, backward: chip::b}"],
            {
                "matmul": (Route.KERNEL, AutogradRoute.BACKWARD),
                "matmul.out": (Route.DERIVED, AutogradRoute.OUT),
            },
        ),
        (
            ["{op: matmul, autograd: chip::a}"],
            {
                "matmul": (Route.COMPOSITE, AutogradRoute.FUNCTION),
                "matmul.out": (Route.COMPOSITE, None),
            },
        ),
        (
            ["{op: matmul, autograd: chip::a}", "{op: matmul.out, kernel_name: chip::f}"],
            {
                "matmul": (Route.DERIVED, AutogradRoute.FUNCTION),
                "matmul.out": (Route.KERNEL, AutogradRoute.OUT),
            },
        ),
        (
            ["{op: mul.out, kernel_name: chip::f, structured: true, backward: chip::b}"],
            {
                "mul.Tensor": (Route.STRUCTURED, AutogradRoute.BACKWARD),
                "mul_.Tensor": (Route.STRUCTURED, AutogradRoute.INPLACE_OR_COPY),
                "mul.out": (Route.STRUCTURED, None),
            },
        ),
    ],
)
def test_what_may_be_mixed(
    kernels: list[str],
    expected: dict[str, tuple[Route, AutogradRoute | None]],
    describe: Describe,
    catalogue: Catalogue,
) -> None:
    plan = planned(describe("\n".join(f"- {kernel}" for kernel in kernels)), catalogue)
    assert routes(plan, *expected) == expected


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


# ---- refusals

COMPOSITE = (
    "`{}` is CompositeImplicitAutograd: a kernel for the device would take the place of the decomposition "
    "that makes it differentiable\n  remedy: give kernels for the operators it decomposes into, or say "
    "how it is differentiated: add `backward: …` or `autograd: …` to {}"
)
BY_HAND = (
    "  remedy: write a torch::autograd::Function yourself and name the function that applies it: "
    "`autograd: …`"
)


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (["{op: linear, kernel_name: f}"], COMPOSITE.format("linear", "this kernel")),
        (
            ["{op: matmul.out, kernel_name: f}"],
            COMPOSITE.format("matmul.out", "the kernel of `matmul`"),
        ),
        (
            ["{op: square_, kernel_name: f}", "{op: square, autograd: a}"],
            "`square_` is CompositeImplicitAutograd: below autograd nothing would count the change of "
            "self, on which PyTorch's check of saved Tensors relies\n"
            "  remedy: remove this kernel: the variant is made of `square`, which has a gradient",
        ),
        (
            ["{op: relu.out, kernel_name: f, autograd: a}"],
            "`relu.out` is an out variant, and PyTorch differentiates none: `autograd` would never be "
            "used\n  remedy: write it at `op: relu`",
        ),
        (
            ["{op: relu_, kernel_name: f, backward: b}"],
            "no gradient can be generated around `relu_`: it overwrites the self that its backward "
            "kernel would be given\n"
            "  remedy: write it at `op: relu`; the in-place variant is made of it",
        ),
        (
            ["{op: view, kernel_name: f, backward: b}"],
            "no gradient can be generated around `view`: its result shares self's storage, and autograd "
            f"treats views in its own way\n{BY_HAND}",
        ),
        (
            ["{op: unbind_copy.int, backward: b}"],
            "no gradient can be generated around `unbind_copy.int`: it does not return a fixed number of "
            f"Tensors\n{BY_HAND}",
        ),
        (
            ["{op: new_zeros, backward: b}"],
            "no gradient can be generated around `new_zeros`: it takes the dtype and the device of its "
            f"result as arguments\n{BY_HAND}",
        ),
        (
            ["{op: topk, backward: b, saves: [values, index]}"],
            "`topk` has no result `index` to save (did you mean indices?)\n"
            "  remedy: its results are values, indices; its arguments are saved anyway",
        ),
        (
            ["{op: _fused_sgd_, backward: b}"],
            "no gradient can be generated around `_fused_sgd_`: it overwrites the self that its backward "
            f"kernel would be given\n{BY_HAND}",
        ),
    ],
)
def test_what_is_refused(
    kernels: list[str], message: str, describe: Describe, catalogue: Catalogue
) -> None:
    path = describe("\n".join(f"- {kernel}" for kernel in kernels))
    with pytest.raises(KernelRejected) as caught:
        planned(path, catalogue)
    assert str(caught.value) == f"{path.parent}/kernels.yaml:5:6: {message}"


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            "{op: relu, kernel_name: f, autograd: a, backward: b}",
            "45: `autograd` and `backward` exclude one another: the first is a whole differentiable "
            "function, the second the gradient of the kernel\n  remedy: keep one of the two",
        ),
        (
            "{op: mul.out, structured: true, backward: b}",
            "19: `structured: true` describes a kernel, and none is named\n"
            "  remedy: add `kernel_name: …` here, or remove `structured: true`",
        ),
        (
            "{op: relu, kernel_name: f, saves: []}",
            "32: `saves` lists the results that a backward kernel is given, and none is named\n"
            "  remedy: add `backward: …` here, or remove `saves`",
        ),
        (
            "{op: relu, kernel_name: f, backward: b-c}",
            "32: `b-c` is not a C++ function's qualified name\n"
            "  remedy: write it like my_namespace::my_kernel",
        ),
    ],
)
def test_entries_that_cannot_be_meant(
    kernel: str, message: str, describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(f"- {kernel}")
    with pytest.raises(SyntaxInvalid) as caught:
        planned(path, catalogue)
    assert str(caught.value) == f"{path.parent}/kernels.yaml:5:{message}"


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
