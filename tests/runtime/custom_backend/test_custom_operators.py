"""Custom operators on a device: values against the CPU, tracing, autograd, and PyTorch's own opcheck."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing._internal.optests.generate_tests import OpCheckError

import needs
import opsmith
from opsmith.observe.explain.explanation import Explanation, explain
from refusal import printed_warnings, refusal

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"), nightly=("off",))
LOADED = opsmith.load(str(Path(__file__).with_name("backend.yaml")))
FOLDER = Path(__file__).parent
DEVICE = "chip"
myop = torch.ops.myop


def floats(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def on(*shape: int) -> Tensor:
    return floats(*shape).to(DEVICE)


def gelu_mul(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x) * y


def agree(ours: Tensor, theirs: Tensor) -> None:
    assert ours.device == torch.device(DEVICE, 0)
    torch.testing.assert_close(ours.cpu(), theirs)


# ---- values of each variant, whichever was written


def test_a_functional_kernel_and_what_is_derived_from_it() -> None:
    x = floats(3, 4)
    agree(myop.scale(x.to(DEVICE), 3.0), x * 3)
    agree(myop.scale(x.to(DEVICE)), x * 2)
    out = torch.empty(0, device=DEVICE)
    assert myop.scale(x.to(DEVICE), 3.0, out=out) is out
    agree(out, x * 3)
    self = x.to(DEVICE)
    assert myop.scale_(self, 3.0) is self
    agree(self, x * 3)


def test_an_out_kernel_and_what_is_derived_from_it() -> None:
    x, y = floats(3, 4), floats(4)
    agree(myop.gelu_mul(x.to(DEVICE), y.to(DEVICE)), gelu_mul(x, y))
    agree(myop.gelu_mul(x.to(DEVICE), y.to(DEVICE).double()), gelu_mul(x, y.double()))
    out = torch.empty(3, 4, device=DEVICE)
    myop.gelu_mul(x.to(DEVICE), y.to(DEVICE), out=out)
    agree(out, gelu_mul(x, y))
    self = x.to(DEVICE)
    myop.gelu_mul_(self, y.to(DEVICE))
    agree(self, gelu_mul(x, y))


def test_an_in_place_kernel_and_what_is_derived_from_it() -> None:
    x = floats(3)
    agree(myop.bump(x.to(DEVICE)), x + 1)
    agree(myop.bump_(x.to(DEVICE), 2.5), x + 2.5)
    out = torch.empty(3, device=DEVICE)
    agree(myop.bump(x.to(DEVICE), 2, out=out), x + 2)


def test_several_results() -> None:
    x = floats(3, 5)
    values, indices = myop.top(x.to(DEVICE), 2)
    agree(values, x.topk(2).values)
    agree(indices, x.topk(2).indices)
    outs = torch.empty(3, 2, device=DEVICE), torch.empty(3, 2, device=DEVICE, dtype=torch.int64)
    myop.top(x.to(DEVICE), 2, values=outs[0], indices=outs[1])
    agree(outs[0], x.topk(2).values)
    agree(outs[1], x.topk(2).indices)


def mixed(tensors: list[Tensor], weight: Tensor | None, size: int) -> Tensor:
    result = torch.stack(tensors).sum(0)
    return (result if weight is None else result * weight).sum().expand(size).contiguous()


def test_every_kind_of_argument() -> None:
    tensors, weight = [floats(3), floats(3) + 1], floats(3)
    there = [tensor.to(DEVICE) for tensor in tensors]
    agree(myop.mix(there, None, 4), mixed(tensors, None, 4))
    agree(myop.mix(there, weight.to(DEVICE), 2), mixed(tensors, weight, 2))
    agree(myop.mix(there, None, 2, [2, 3]), mixed(tensors, None, 2) * 6)
    agree(myop.mix(there, None, 2, how="mean"), mixed(tensors, None, 2) / 2)
    agree(myop.mix(there, None, 2, negate=True), -mixed(tensors, None, 2))
    agree(myop.mix(there, None, 2, shape=[0.5]), mixed(tensors, None, 2) + 0.5)
    agree(myop.mix(there, None, 2, dtype=torch.float64), mixed(tensors, None, 2).double())
    out = torch.empty(2, device=DEVICE)
    agree(myop.mix(there, None, 2, negate=True, out=out), -mixed(tensors, None, 2))


def test_a_list_of_results() -> None:
    tensors = [floats(3), floats(2, 2)]
    for ours, tensor in zip(myop.double_all([t.to(DEVICE) for t in tensors]), tensors, strict=True):
        agree(ours, tensor * 2)


def test_an_argument_that_is_written() -> None:
    total, value = floats(3), floats(3) + 1
    there = total.to(DEVICE)
    assert myop.accumulate(there, value.to(DEVICE)) is None
    agree(there, total + value)


def test_an_argument_that_is_written_beside_a_result() -> None:
    slot, value = floats(3), floats(3) + 1
    there = slot.to(DEVICE)
    agree(myop.exchange(there, value.to(DEVICE)), slot)
    agree(there, value)


def test_an_operator_of_pytorch_beside_them() -> None:
    agree(on(3) * on(3), floats(3) * floats(3))


# ---- the contract of each variant


def test_in_place_keeps_its_shape_and_dtype() -> None:
    with pytest.raises(RuntimeError, match=r"output with shape \[4\] doesn't match the broadcast"):
        myop.gelu_mul_(on(4), on(3, 4))
    with pytest.raises(RuntimeError, match=r"result type Double can't be cast to .* Long"):
        myop.gelu_mul_(torch.ones(3, dtype=torch.int64, device=DEVICE), on(3).double())


def test_out_is_resized_with_a_warning(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    out = torch.empty(2, device=DEVICE)
    agree(myop.scale(on(3), out=out), floats(3) * 2)
    said = printed_warnings(capfd, recwarn)
    assert "An output with one or more elements was resized" in said


def test_what_is_written_gets_a_new_version() -> None:
    x, out = on(3), on(3)
    myop.scale_(x)
    myop.bump_(x)
    myop.accumulate(x, on(3))
    myop.scale(x, out=out)
    assert (x._version, out._version) == (3, 1)


def test_other_devices_are_refused() -> None:
    with pytest.raises(
        RuntimeError, match=r"at least two devices, chip:0 and cpu! \(myop::gelu_mul,"
    ):
        myop.gelu_mul(on(3), floats(3))
    assert refusal(NotImplementedError, lambda: myop.scale(floats(3))).startswith(
        "Could not run 'myop::scale' with arguments from the 'CPU' backend."
    )


def test_other_dtypes_are_refused_with_the_reason() -> None:
    agree(myop.float_only(on(3)), floats(3))
    for call in (myop.float_only, lambda x: myop.float_only(x, out=torch.empty_like(x))):
        with pytest.raises(NotImplementedError) as caught:
            call(on(3).double())
        assert (
            f"the kernel `chip::float_only` ({FOLDER}/kernels.yaml:41:5) takes Float only, and there is "
            "no CPU kernel to fall back on. It was called with self float64[3] on chip:0"
        ) in str(caught.value)


def test_a_cpu_kernel_of_somebody_else_is_fallen_back_on() -> None:
    def explained() -> Explanation:
        return explain(LOADED.plan, "myop::float_only", loaded=True)

    assert "the fallback runs it on the CPU where a library has a CPU kernel for it (" in (
        explained().entry.why
    )
    assert explained().cannot_fall_back
    library = torch.library.Library("myop", "IMPL")
    library.impl("float_only", lambda x: x + 0, "CPU")
    agree(myop.float_only(on(3).double()), floats(3).double())
    assert not explained().cannot_fall_back
    library._destroy()


# ---- autograd: forward only


def test_a_gradient_that_nobody_wrote_is_refused() -> None:
    x = on(3).requires_grad_()
    result = myop.scale(x)
    assert result.requires_grad
    with pytest.raises(RuntimeError) as caught:
        result.sum().backward()
    assert str(caught.value) == "derivative for myop::scale is not implemented"
    with pytest.raises(RuntimeError, match="derivative for myop::top is not implemented"):
        myop.top(on(2, 3).requires_grad_(), 2)[0].sum().backward()
    with pytest.raises(
        RuntimeError, match="a leaf Variable that requires grad is being used in an in"
    ):
        myop.scale_(x)
    assert refusal(RuntimeError, lambda: myop.accumulate(on(3), x)) == (
        "derivative for myop::accumulate is not implemented, and its argument value requires a gradient, "
        "which what it writes would lack. Call it under torch.no_grad(), or with value.detach()."
    )
    with torch.no_grad():
        agree(myop.scale(x), floats(3) * 2)
        myop.accumulate(on(3), x)


# ---- autograd: a backward kernel, and a torch::autograd::Function


def gradients(call: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    result = call(*leaves)
    return (result, *torch.autograd.grad((result * result).sum(), leaves))


STYLES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "backward": (myop.weigh, lambda x, y: x * y, (floats(3, 4), floats(3, 4) + 1)),
    "backward, derived in-place": (
        lambda x, y: myop.weigh_(x.clone(), y), lambda x, y: x * y, (floats(3, 4), floats(3, 4) + 1)
    ),
    "autograd": (lambda x: myop.cube(x, 2.0), lambda x: 2 * x**3, (floats(3, 4),)),
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(style: str, compiled: bool) -> None:
    ours, theirs, inputs = STYLES[style]
    call = torch.compile(ours, backend="aot_eager", fullgraph=True) if compiled else ours
    there = gradients(call, *(tensor.to(DEVICE) for tensor in inputs))
    for mine, other in zip(there, gradients(theirs, *inputs), strict=True):
        agree(mine, other)


@needs.tracing_of_writers()
def test_opcheck_of_differentiable_operators() -> None:
    utils = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    x, y = on(3, 4).requires_grad_(), on(3, 4).requires_grad_()
    torch.library.opcheck(myop.weigh.default, (x, y), test_utils=utils)
    torch.library.opcheck(myop.cube.default, (x, 2.0), test_utils=utils)
    torch.library.opcheck(myop.weigh_.default, (x.detach(), y.detach()))
    torch.library.opcheck(myop.cube.out, (x.detach(), 2.0), {"out": on(3, 4)})
    on_cpu = floats(3).requires_grad_()
    torch.library.opcheck(myop.cube.default, (on_cpu,), test_utils="test_autograd_registration")


# ---- tracing

CALLS: dict[str, tuple[object, Callable[[], tuple[object, ...]], dict[str, object]]] = {
    "functional": (myop.scale.default, lambda: (on(3, 4), 3.0), {}),
    "functional, derived out": (myop.scale.out, lambda: (on(3, 4),), {"out": (3, 4)}),
    "functional, derived in-place": (myop.scale_.default, lambda: (on(3, 4),), {}),
    "out": (myop.gelu_mul.out, lambda: (on(3, 4), on(4)), {"out": (3, 4)}),
    "out, derived functional": (myop.gelu_mul.default, lambda: (on(3, 4), on(4)), {}),
    "out, derived in-place": (myop.gelu_mul_.default, lambda: (on(3, 4), on(4)), {}),
    "in-place": (myop.bump_.default, lambda: (on(3, 4),), {}),
    "in-place, derived functional": (myop.bump.default, lambda: (on(3, 4), 2.5), {}),
    "in-place, derived out": (myop.bump.out, lambda: (on(3, 4),), {"out": (3, 4)}),
    "several results": (myop.top.default, lambda: (on(3, 5), 2), {}),
    "arguments": (myop.mix.default, lambda: ([on(3), on(3)], on(3), 4, [2, 1]), {"how": "mean"}),
    "arguments, derived out": (myop.mix.out, lambda: ([on(3)], None, 4), {"out": (4,)}),
    "a list of results": (myop.double_all.default, lambda: ([on(3), on(2, 2)],), {}),
    "written argument": (myop.accumulate.default, lambda: (on(3), on(3)), {}),
}


def keywords(given: dict[str, object]) -> dict[str, object]:
    return {
        name: torch.empty(value, device=DEVICE) if isinstance(value, tuple) else value
        for name, value in given.items()
    }


@needs.tracing_of_writers()
@pytest.mark.parametrize("case", CALLS)
def test_opcheck(case: str) -> None:
    operator, arguments, given = CALLS[case]
    torch.library.opcheck(operator, arguments(), keywords(given))


def test_opcheck_with_gradients() -> None:
    # opcheck's own test of the registration knows CPU, CUDA and XPU only.
    utils = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    x = on(3, 4).requires_grad_()
    with pytest.raises(OpCheckError, match="derivative"):
        torch.library.opcheck(myop.scale.default, (x,), test_utils=utils)
    torch.library.opcheck(
        myop.scale.default, (floats(3).requires_grad_(),), test_utils="test_autograd_registration"
    )


def test_meta_tensors() -> None:
    def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, device="meta", dtype=dtype)

    result = myop.gelu_mul(meta(3, 1), meta(4, dtype=torch.float64))
    assert (result.shape, result.dtype) == ((3, 4), torch.float64)
    assert myop.scale(meta(4, 3).T).stride() == (1, 3)
    assert [tuple(t.shape) for t in myop.top(meta(3, 5), 2)] == [(3, 2), (3, 2)]
    out = meta(0)
    myop.scale(meta(3), out=out)
    assert out.shape == (3,)
    with pytest.raises(RuntimeError, match=r"doesn't match the broadcast shape \[3, 4\]"):
        myop.gelu_mul_(meta(4), meta(3, 4))
    with pytest.raises(NotImplementedError, match="there was no fake impl or Meta kernel"):
        myop.untraced(meta(3))


def network(x: Tensor, y: Tensor) -> Tensor:
    x = myop.scale(x, 3.0) * y
    x = myop.gelu_mul(x, y)
    myop.scale_(x, 0.5)
    myop.accumulate(x, y)
    values, _ = myop.top(x, 2)
    out = torch.empty_like(values)
    myop.scale(values, 2.0, out=out)
    return myop.mix([out, values], None, x.shape[0])


@needs.tracing_of_writers()
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool) -> None:
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (3, 4, 5) if dynamic else (3,):
        x, y = on(rows, 6), on(rows, 6) + 1
        torch.testing.assert_close(compiled(x.clone(), y).cpu(), network(x, y).cpu())


@needs.tracing_of_writers()
def test_export() -> None:
    class Network(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return network(x, y)

    x, y = on(3, 6), on(3, 6)
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(Network(), (x, y), dynamic_shapes=({0: rows}, {0: rows}))
    x, y = on(5, 6), on(5, 6)
    torch.testing.assert_close(program.module()(x, y).cpu(), network(x, y).cpu())
    functional = program.run_decompositions({})
    torch.testing.assert_close(functional.module()(x, y).cpu(), network(x, y).cpu())


def test_an_operator_without_meta_breaks_the_graph() -> None:
    def call(x: Tensor) -> Tensor:
        return myop.untraced(x) + 1

    compiled = torch.compile(call, backend="aot_eager")
    torch.testing.assert_close(compiled(on(3)).cpu(), floats(3) + 1)
    torch._dynamo.reset()  # else the code compiled above would be found
    with pytest.raises(Exception, match=re.escape("unsupported operator: myop.untraced.default")):
        torch.compile(call, backend="aot_eager", fullgraph=True)(on(3))


def test_somebody_may_give_the_meta_in_python() -> None:
    torch.library.register_fake("myop::untraced")(torch.empty_like)
    torch.library.opcheck(myop.untraced.default, (on(3),))


@needs.tracing_of_writers()
def test_out_variants_are_found_by_pytorch() -> None:
    from torch._library._out_variant import to_out_variant

    assert to_out_variant(myop.scale.default) is myop.scale.out
    assert to_out_variant(myop.gelu_mul.default) is myop.gelu_mul.out


def test_a_kernel_draws_from_the_generator_that_it_is_given() -> None:
    generator = torch.Generator(DEVICE).manual_seed(0)
    drawn = myop.noise(on(5), generator=generator)
    # Random123's known answer for a counter and a key of zeros.
    assert drawn[0].item() == (0x6627E8D5 >> 8) / 2**24
    assert generator.get_offset() == 8
    torch.manual_seed(0)
    assert torch.equal(myop.noise(on(5)), drawn)
    assert not torch.equal(myop.noise(on(5)), drawn)


# ---- autocast, whose lists the description changes


def test_autocast_casts_as_the_description_says() -> None:
    half, full = on(4, 4).bfloat16(), on(4, 4)
    with torch.autocast(DEVICE):
        dtypes = {
            "the default": torch.get_autocast_dtype(DEVICE),
            "a custom operator": myop.scale(full).dtype,
            "lower precision": torch.lerp(full, full, 0.5).dtype,
            "float32": half.sin().dtype,
            "float32, told": half.mean().dtype,
            "told another": half.mean(dtype=torch.float64).dtype,
            "widest": torch.maximum(half, full).dtype,
            "widest of equals": torch.maximum(half, half).dtype,
            "unchanged, else lower": torch.mm(full, full).dtype,
            "unchanged, else float32": half.exp().dtype,
            "unchanged, else told": half.cumsum(0).dtype,
            "PyTorch's lists": torch.bmm(full[None], full[None]).dtype,
        }
        torch.nn.functional.binary_cross_entropy(
            full.sigmoid(), full.sigmoid()
        )  # unchanged: not refused
    assert dtypes == {
        "the default": torch.bfloat16,
        "a custom operator": torch.bfloat16,
        "lower precision": torch.bfloat16,
        "float32": torch.float32,
        "float32, told": torch.float32,
        "told another": torch.float64,
        "widest": torch.float32,
        "widest of equals": torch.bfloat16,
        "unchanged, else lower": torch.float32,
        "unchanged, else float32": torch.bfloat16,
        "unchanged, else told": torch.bfloat16,
        "PyTorch's lists": torch.bfloat16,
    }
    assert torch.get_device_module(DEVICE).get_amp_supported_dtype() == [torch.bfloat16, torch.half]
