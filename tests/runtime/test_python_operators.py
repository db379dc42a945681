"""Custom operators with Python kernels: three styles of autograd, variants, tracing, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

import needs
from opsmith.errors import KernelDuplicate, KernelRejected, OpsmithError, SchemaInvalid
from opsmith.plan import Derivation, Route
from refusal import refusal

pytestmark = pytest.mark.needs("Python.h")

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend
    from opsmith.runtime.python.python_operators import PythonOperator

HERE = Path(__file__)
# opsmith's device is none of those that opcheck's own test of the registration knows.
DIFFERENTIABLE = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def on(*sizes: int) -> Tensor:
    return torch.randn(*sizes).to("sim")


class Cube(torch.autograd.Function):
    """x³, with its gradient; the forward calls the operator itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.ops.pyop.cube(x)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x


@pytest.fixture(scope="module")
def scale(sim: LoadedBackend) -> PythonOperator:
    """Forward and backward registered separately, with an in-place variant."""

    @sim.operator(
        "pyop::scale(Tensor self, float factor=2.0) -> Tensor", same_as="self", inplace=True
    )
    def scale(self: Tensor, factor: float) -> Tensor:
        return (self.cpu() * factor).to(self.device)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.factor = inputs[1]

    def gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None

    scale.backward(gradients, setup_context=keep)
    return scale


@pytest.fixture(scope="module")
def ends(sim: LoadedBackend) -> PythonOperator:
    """Forward only, two results, with a fake implementation."""

    def fake(self: Tensor, count: int) -> tuple[Tensor, Tensor]:
        sizes = (count, *self.shape[1:])
        return self.new_empty(sizes), self.new_empty(sizes)

    @sim.operator("pyop::ends(Tensor self, int count) -> (Tensor first, Tensor last)", fake=fake)
    def ends(self: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return self[:count].clone(), self[-count:].clone()

    return ends


@pytest.fixture(scope="module")
def cube(sim: LoadedBackend) -> PythonOperator:
    """A torch.autograd.Function."""

    @sim.operator("pyop::cube(Tensor x) -> Tensor", same_as="x", autograd=Cube)
    def cube(x: Tensor) -> Tensor:
        return (x.cpu() ** 3).to(x.device)

    return cube


def test_values(scale: PythonOperator, ends: PythonOperator, cube: PythonOperator) -> None:
    x = X.to("sim")
    torch.testing.assert_close(scale(x).cpu(), X * 2)
    torch.testing.assert_close(torch.ops.pyop.scale(x, 3.0).cpu(), X * 3)
    torch.testing.assert_close(cube(x).cpu(), X**3)
    first, last = ends(x, 1)
    torch.testing.assert_close((first.cpu(), last.cpu()), (X[:1], X[-1:]))


def test_derived_variants(sim: LoadedBackend, scale: PythonOperator, ends: PythonOperator) -> None:
    x, out = X.to("sim"), torch.empty(3, 4, device="sim")
    assert torch.ops.pyop.scale(x, 0.5, out=out) is out
    torch.testing.assert_close(out.cpu(), X * 0.5)
    assert torch.ops.pyop.scale_(x, 4.0) is x
    torch.testing.assert_close(x.cpu(), X * 4)
    first, last = torch.empty(2, 4, device="sim"), torch.empty(2, 4, device="sim")
    torch.ops.pyop.ends(x, 2, out0=first, out1=last)
    torch.testing.assert_close((first, last), (x[:2], x[-2:]))

    assert sim.plan.entry("pyop::scale").route is Route.KERNEL
    assert sim.plan.entry("pyop::scale.out").derivation is Derivation.OUT_FROM_FUNCTIONAL
    assert sim.plan.entry("pyop::scale_").derivation is Derivation.INPLACE_FROM_FUNCTIONAL


def gradient(call: Any, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    call(x).sum().backward()
    assert x.grad is not None
    return x.grad.cpu()


def test_gradients(scale: PythonOperator, cube: PythonOperator) -> None:
    x = X.to("sim")
    torch.testing.assert_close(gradient(lambda x: scale(x, 3.0), x), torch.full((3, 4), 3.0))
    torch.testing.assert_close(gradient(cube, x), 3 * X**2)


def test_forward_only_cannot_be_differentiated(ends: PythonOperator) -> None:
    first, _ = ends(on(3, 4).requires_grad_(), 1)
    assert refusal(NotImplementedError, lambda: first.sum().backward()) == (
        "derivative for pyop::ends is not implemented\n"
        "  remedy: give it one with `@ends.backward`, or `autograd=` a torch.autograd.Function"
    )


def test_written_arguments(scale: PythonOperator) -> None:
    x = on(3, 4)
    version = x._version
    torch.ops.pyop.scale_(x, 1.0)
    assert x._version == version + 1
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.ops.pyop.scale_(on(3).requires_grad_() * 1, 1.0)


def test_compiled(scale: PythonOperator, cube: PythonOperator) -> None:
    compiled = torch.compile(lambda x: cube(scale(x, 2.0)), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(gradient(compiled, X.to("sim")), 24 * X**2)


@needs.tracing_of_writers()
def test_opcheck(scale: PythonOperator, ends: PythonOperator, cube: PythonOperator) -> None:
    ops = torch.ops.pyop
    torch.library.opcheck(ops.scale.default, (on(3, 4), 3.0))
    torch.library.opcheck(ops.scale.out, (on(3, 4),), {"out": on(3, 4)})
    torch.library.opcheck(ops.scale_.default, (on(3, 4),))
    torch.library.opcheck(ops.ends.default, (on(3, 4), 2))
    torch.library.opcheck(ops.ends.out, (on(3, 4), 2), {"out0": on(2, 4), "out1": on(2, 4)})
    torch.library.opcheck(ops.cube.default, (on(3, 4),))
    x = on(3, 4).requires_grad_()
    torch.library.opcheck(ops.scale.default, (x, 3.0), test_utils=DIFFERENTIABLE)
    torch.library.opcheck(ops.cube.default, (x,), test_utils=DIFFERENTIABLE)


# ---- refusals


def kernel_of_one(self: Tensor) -> Tensor:
    return self


def refused(sim: LoadedBackend, kind: type[OpsmithError], schema: str, **options: Any) -> str:
    """The refusal of ``kernel_of_one`` with ``schema``, without its place."""
    place = f"{HERE}:{kernel_of_one.__code__.co_firstlineno}: "
    said = refusal(kind, lambda: sim.operator(schema, **options)(kernel_of_one))
    assert said.startswith(place)
    return said.removeprefix(place)


def test_what_is_no_schema(sim: LoadedBackend) -> None:
    assert refused(sim, SchemaInvalid, "scale(Tensor self) -> Tensor", same_as="self") == (
        "`scale` has no namespace\n"
        "  remedy: put your library's before it, e.g. `myop::scale`; for an operator of PyTorch write "
        "`op: scale`"
    )
    unknown = refused(sim, SchemaInvalid, "pyop::bad(Tensr self) -> Tensor", same_as="self")
    assert unknown.splitlines()[0] == "unknown type `Tensr` (did you mean Tensor?)"
    schema = "pyop::bad_(Tensor(a!) self) -> Tensor(a!)"
    assert refused(sim, OpsmithError, schema, same_as="self") == (
        f"`{schema}` is the schema of an operator that writes to its arguments\n"
        "  remedy: declare the functional operator; its out variant is derived, and with `inplace=True` its "
        "in-place one"
    )
    schema = "pyop::bad(Tensor a) -> Tensor"
    assert (
        "has no in-place variant: that needs a first argument `Tensor self` and one result"
        in refused(sim, OpsmithError, schema, same_as="a", inplace=True)
    )


def test_a_result_of_unknown_shape(sim: LoadedBackend) -> None:
    schema = "pyop::bad(Tensor self) -> Tensor"
    assert refused(sim, KernelRejected, schema) == (
        "`pyop::bad` needs one thing to say which shape and dtype its result has\n"
        '  remedy: write `same_as="self"`, naming the argument that the result is like, or `fake=` a '
        "function that makes the result of tensors without data"
    )
    assert "the result of `pyop::bad` cannot be like `sef` (did you mean self?)" in refused(
        sim, OpsmithError, schema, same_as="sef"
    )


def test_parameters_that_do_not_fit(sim: LoadedBackend) -> None:
    schema = "pyop::bad(Tensor self, int n) -> Tensor"
    assert (
        "cannot be called with the arguments of `pyop::bad`: too many positional arguments"
        in refused(sim, KernelRejected, schema, same_as="self")
    )


def test_an_operator_that_exists(sim: LoadedBackend, cube: PythonOperator) -> None:
    schema = "pyop::cube(Tensor self) -> Tensor"
    assert refused(sim, KernelDuplicate, schema, same_as="self") == (
        "PyTorch already has an operator `pyop::cube`\n"
        '  remedy: choose another name, or give that one a kernel: `@backend.kernel("pyop::cube")`'
    )
