"""Every derivation against the CPU: values, and the contract of each variant.

The routes of the operators are checked as well, so that no case passes by another route.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.plan import Derivation, Route
from refusal import outcome, printed_warnings, refusal

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_BACKEND=("windowed", "copying"), nightly=("copying",)
)
MODE = os.environ["OPSMITH_TEST_BACKEND"]
LOADED = opsmith.load(str(Path(__file__).with_name(f"{MODE}.yaml")))
DEVICE = "chip"

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]


def to_device(value: object) -> object:
    """Tensors on the device, everything else as it is."""
    if isinstance(value, Tensor):
        return value.to(DEVICE)
    return value


def agree(ours: object, theirs: object) -> None:
    """Same values, shape, dtype, and the device where it belongs."""
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple) and len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            agree(mine, other)
        return
    assert isinstance(ours, Tensor) and isinstance(theirs, Tensor)
    assert ours.device == torch.device(DEVICE, 0)
    torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True)


def same(call: Callable[..., object], *arguments: object) -> None:
    """The call does on the device what it does on the CPU, be it to raise."""
    theirs = outcome(call, *(a.clone() if isinstance(a, Tensor) else a for a in arguments))
    ours = outcome(call, *map(to_device, arguments))
    if isinstance(theirs, type):
        assert ours is theirs
    else:
        assert not isinstance(ours, type), f"the device raises {ours}"
        agree(ours, theirs)


def test_every_derivation_is_covered() -> None:
    derivations = {
        entry.derivation for entry in LOADED.plan.entries if entry.route is Route.DERIVED
    }
    assert derivations == set(Derivation)


def floats(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


PRODUCTS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], int]] = {
    "mm": (torch.mm, (3, 3), 2),
    "mm.out": (lambda out, a, b: torch.mm(a, b, out=out), (3, 3), 3),
    "mm.out, resized": (lambda a, b: torch.mm(a, b, out=a.new_empty(0).conj()), (3, 3), 2),
    "addmm": (torch.addmm, (3, 3), 3),
    "addmm_": (Tensor.addmm_, (3, 3), 3),
    "addmm.out": (lambda out, a, b, c: torch.addmm(a, b, c, out=out), (3, 3), 4),
    "baddbmm": (torch.baddbmm, (2, 3, 3), 3),
    "baddbmm_": (Tensor.baddbmm_, (2, 3, 3), 3),
    "baddbmm.out": (lambda out, a, b, c: torch.baddbmm(a, b, c, out=out), (2, 3, 3), 4),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_kernels_of_products_get_no_conjugated_operand(name: str) -> None:
    # PyTorch leaves the conj bit to these, and the backend's kernels read memory.
    call, shape, operands = PRODUCTS[name]
    values = [torch.complex(floats(*shape), floats(*shape) + n) for n in range(operands)]
    for conjugated in itertools.product((False, True), repeat=operands):
        ours, theirs = (
            [
                value.to(device, copy=True).conj() if bit else value.to(device, copy=True)
                for value, bit in zip(values, conjugated, strict=True)
            ]
            for device in (DEVICE, "cpu")
        )
        agree((call(*ours), *ours), (call(*theirs), *theirs))


OPERANDS = {
    "like": (floats(3, 4), floats(3, 4)),
    "broadcast": (floats(3, 1), floats(4)),
    "into self": (floats(3, 4), floats(4)),
    "transposed": (floats(4, 3).T, floats(3, 4)),
    "sliced": (floats(3, 8)[:, ::2], floats(3, 4)),
    "empty": (floats(0, 4), floats(0, 4)),
    "0-dim": (floats(), floats()),
    "cpu scalar": (floats(3), 2.5),
    "int and float": (torch.arange(3), floats(3)),
    "float and int": (floats(3), torch.arange(3)),
    "int scalar": (torch.arange(3), 2),
    "float scalar on ints": (torch.arange(3), 2.5),
    "bool": (torch.tensor([True, False]), torch.tensor([True, True])),
    "incompatible": (floats(3), floats(4)),
}


@pytest.mark.parametrize("operands", OPERANDS.values(), ids=OPERANDS)
@pytest.mark.parametrize("name", ["mul", "lt", "add"])
def test_binary(name: str, operands: tuple[object, ...]) -> None:
    same(getattr(torch, name), *operands)
    same(getattr(torch.ops.aten, f"{name}_"), *operands)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool):
        for shape in ((3, 4), (3,), (0,)):
            same(
                lambda *a: getattr(torch, name)(*a[:2], out=a[2]),
                *operands,
                torch.zeros(shape, dtype=dtype),
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_unary(dtype: torch.dtype) -> None:
    values = torch.tensor([[-2, 0, 3], [1, -1, 2]]).to(dtype)
    for tensor in (values, values.T, values[:, ::2], values[:0], values[0, 0]):
        same(torch.relu, tensor)
        same(torch.relu_, tensor)
        same(torch.sigmoid, tensor)
        same(torch.sigmoid_, tensor)
        same(lambda x: torch.fill(x, 3), tensor)
        same(lambda x: x.fill_(3), tensor)
        same(
            lambda x, out: torch.ops.aten.relu.out(x, out=out),
            tensor,
            torch.zeros(2, 3, dtype=dtype),
        )
        same(lambda x, out: torch.sigmoid(x, out=out), tensor, torch.zeros(2, 3))
        same(
            lambda x, out: torch.ops.aten.fill.Scalar_out(x, 3, out=out),
            tensor,
            torch.zeros(1, dtype=dtype),
        )


def test_not_pointwise_in_place_goes_through_a_temporary() -> None:
    same(lambda x: x.cumsum_(0), floats(3, 4))
    same(lambda x: x.cumsum_(1), torch.arange(6).reshape(2, 3))
    same(lambda x: torch.cumsum(x, 0), torch.arange(6).reshape(2, 3))
    same(lambda b, x, y: b.addmm_(x, y), floats(2, 2), floats(2, 3), floats(3, 2))
    same(lambda b, x, y: torch.addmm(b, x, y, alpha=2), floats(2), floats(2, 3), floats(3, 2))
    same(lambda b, x, y: b.addmm_(x, y), floats(2), floats(2, 3), floats(3, 2))


def test_a_result_that_the_meta_function_fills() -> None:
    x, y = floats(2, 3, 4), floats(2, 4, 3)
    for addend in (floats(2, 3, 3), floats(3)):
        same(torch.baddbmm, addend, x, y)
        same(lambda *a: a[0].baddbmm_(*a[1:], beta=2), addend, x, y)
        for shape in ((2, 3, 3), (5,), (0,)):
            same(lambda *a: torch.baddbmm(*a[:3], out=a[3]), addend, x, y, torch.ones(shape))
    square = floats(2, 3, 3)
    (own,) = on_device(square.clone())
    agree(torch.baddbmm(own, own, own, out=own), torch.baddbmm(square, square, square))


def test_two_results() -> None:
    same(lambda x: tuple(torch.topk(x, 2)), floats(3, 5))
    same(lambda x: tuple(x.topk(7)), floats(3, 5))

    def into(x: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.topk(x, 2, out=(values, indices)))

    same(into, floats(3, 5), torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.int64))


def test_three_results() -> None:
    x, weight, bias = floats(4, 6), floats(6), floats(6)
    same(lambda *a: torch.native_layer_norm(a[0], [6], a[1], a[2], 1e-5), x, weight, bias)
    same(lambda x: torch.native_layer_norm(x, [6], None, None, 1e-5), x)
    outs = [torch.zeros(4, 6), torch.zeros(4, 1), torch.zeros(0)]
    same(
        lambda x, *outs: torch.ops.aten.native_layer_norm.out(
            x, [6], None, None, 1e-5, out0=outs[0], out1=outs[1], out2=outs[2]
        ),
        x,
        *outs,
    )


def test_shapes_from_the_meta_kernel() -> None:
    condition = torch.tensor([[True], [False]])
    same(torch.where, condition, floats(2, 3), floats(3))
    same(torch.where, condition, torch.arange(3), floats(2, 3))
    same(torch.logit, torch.rand(2, 3))
    same(torch.logit, torch.tensor([0, 1]))
    same(lambda x: x.logit_(0.1), torch.rand(2, 3))
    same(lambda x: x.logit_(), torch.tensor([0, 1]))


def test_a_kernel_calls_others_without_the_dispatcher() -> None:
    if MODE == "copying":  # they are the device's, and the kernel has copies in host memory
        x = floats(3).to(DEVICE)
        assert refusal(RuntimeError, torch.addcmul, x, x, x) == (
            "Expected all tensors to be on the same device, but found at least two devices, chip:0 and cpu! "
            '(aten::add.out, argument of shape [3])\n  remedy: move it with .to("chip:0")'
        )
        return
    same(lambda a, b, c: torch.addcmul(a, b, c, value=2), floats(3, 4), floats(4), floats(3, 1))
    same(lambda a, b, c: a.addcmul_(b, c), floats(3, 4), floats(4), floats(3, 1))


# ---- lists


def lists(*tensors: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The Tensors on the CPU, and the same on the device."""
    return [t.clone() for t in tensors], [t.to(DEVICE) for t in tensors]


@pytest.mark.parametrize(
    ("name", "arguments"), [("_foreach_mul", (2.5,)), ("_foreach_neg", ()), ("_foreach_sqrt", ())]
)
@pytest.mark.parametrize(
    "tensors",
    [(floats(3).abs(), floats(2, 4).abs()), (torch.arange(3), floats(2).abs())],
    ids=["floats", "int and float"],
)
def test_lists(name: str, arguments: tuple[float, ...], tensors: tuple[Tensor, ...]) -> None:
    base, out = getattr(torch.ops.aten, name), "Scalar_out" if arguments else "out"
    theirs, ours = lists(*tensors)
    agree(tuple(base(ours, *arguments)), tuple(base(theirs, *arguments)))
    results = base(theirs, *arguments)
    mine, others = [torch.empty(0, dtype=r.dtype, device=DEVICE) for r in results], results
    getattr(base, out)(ours, *arguments, out=mine)
    agree(tuple(mine), tuple(others))
    if all(t.is_floating_point() for t in tensors):
        inplace = getattr(torch.ops.aten, f"{name}_")
        inplace(ours, *arguments)
        inplace(theirs, *arguments)
        agree(tuple(ours), tuple(theirs))


def test_lists_keep_the_contract_of_each_variant(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    _, ours = lists(floats(3), torch.arange(3))
    with pytest.raises(RuntimeError, match="result type Float can't be cast to"):
        torch.ops.aten._foreach_sqrt.out(
            ours[:1], out=[torch.zeros(3, dtype=torch.int64, device=DEVICE)]
        )
    with pytest.raises(RuntimeError, match="2 results, but was given a list of 1 tensors"):
        torch.ops.aten._foreach_neg.out(ours, out=ours[:1])
    torch.ops.aten._foreach_neg.out(ours[:1], out=[torch.zeros(2, device=DEVICE)])
    said = printed_warnings(capfd, recwarn)
    assert "An output with one or more elements was resized" in said
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch._foreach_mul_([ours[0][:1].expand(3)], 2)
    with pytest.raises(RuntimeError, match="at least two devices, chip:0 and chip:1!"):
        torch._foreach_neg_([ours[0], floats(3).to("chip:1")])


def test_lists_whose_length_the_operator_decides() -> None:
    theirs, ours = lists(floats(6, 2))
    sizes = [1, 2, 3]
    outs = [torch.empty(0, device=DEVICE) for _ in sizes]
    torch.split_with_sizes_copy(ours[0], sizes, out=outs)
    agree(tuple(outs), torch.split_with_sizes_copy(theirs[0], sizes))


# ---- arguments that change beside the result


def sgd(name: str, lists_of: list[list[Tensor]], **more: object) -> object:
    return getattr(torch.ops.aten, name)(
        *lists_of, weight_decay=0.1, momentum=0.9, lr=0.5, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=False, **more,
    )  # fmt: skip


def test_a_functional_variant_returns_what_the_other_changes() -> None:
    theirs, ours = lists(floats(3), floats(3) + 1, floats(3) + 2)
    before = [t.clone() for t in ours]
    result = sgd("_fused_sgd", [[t] for t in ours])
    expected = sgd("_fused_sgd", [[t] for t in theirs])
    agree(tuple(map(tuple, result)), tuple(map(tuple, expected)))  # type: ignore[call-overload]
    assert all(torch.equal(now, then) for now, then in zip(ours, before, strict=True))


def test_an_out_variant_changes_what_the_in_place_one_does() -> None:
    theirs, ours = lists(floats(3), floats(3) + 1, floats(3) + 2)
    before = ours[0].clone()
    out = torch.empty(0, device=DEVICE)
    # As its schema says. PyTorch's own `_fused_sgd.out` leaves the momentum unchanged.
    torch.ops.aten._fused_sgd.out(
        *[[t] for t in ours], weight_decay=0.1, momentum=0.9, lr=0.5, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=False, out=[out],
    )  # fmt: skip
    sgd("_fused_sgd_", [[t] for t in theirs])
    agree((out, *ours[1:]), tuple(theirs))
    assert torch.equal(ours[0], before)


def test_noise_beside_the_result() -> None:
    x, noise = floats(4, 4), torch.zeros(4, 4)
    for call in (
        lambda x, n: torch.ops.aten.rrelu_with_noise_functional(x, n, 0.1, 0.3, True),
        lambda x, n: (torch.ops.aten.rrelu_with_noise_(x, n, 0.1, 0.3, True), n),
    ):
        torch.manual_seed(5)
        theirs = call(x.clone(), noise.clone())
        torch.manual_seed(5)
        agree(call(x.to(DEVICE), noise.to(DEVICE)), theirs)


# ---- random numbers


def test_random_numbers_are_those_of_the_generator() -> None:
    generator = torch.Generator(DEVICE).manual_seed(7)
    same_on_cpu = torch.Generator().manual_seed(7)
    x = torch.zeros(50)
    for call in (
        lambda x, g: torch.bernoulli(x, 0.5, generator=g),
        lambda x, g: torch.ops.aten.bernoulli.float_out(x, 0.5, generator=g, out=x),
        lambda x, g: torch.normal(x, 2.0, generator=g),
        lambda x, g: torch.normal(x, 2.0, generator=g, out=torch.empty_like(x)),
    ):
        agree(call(x.to(DEVICE), generator), call(x.clone(), same_on_cpu))
    # Each drew as many numbers as the CPU's: the meta kernels drew none.
    assert torch.equal(generator.get_state(), same_on_cpu.get_state())


def test_random_numbers_without_a_generator() -> None:
    torch.manual_seed(9)
    theirs = torch.bernoulli(torch.zeros(50), 0.5)
    torch.manual_seed(9)
    agree(torch.bernoulli(torch.zeros(50, device=DEVICE), 0.5), theirs)


# ---- factories


def test_factories_take_dtype_and_device_from_their_arguments() -> None:
    for dtype in (None, torch.int32, torch.float64):
        agree(torch.arange(1, 7, 2, dtype=dtype, device=DEVICE), torch.arange(1, 7, 2, dtype=dtype))
    agree(torch.arange(0.5, 3, device=DEVICE), torch.arange(0.5, 3))
    assert torch.arange(1, 3, device="chip:1").device == torch.device("chip", 1)
    x = floats(2, 3).to(DEVICE)
    agree(torch.ones_like(x), torch.ones(2, 3))
    agree(torch.ones_like(x, dtype=torch.int8), torch.ones(2, 3, dtype=torch.int8))
    assert torch.ones_like(x, device="chip:1").device == torch.device("chip", 1)
    assert torch.ones_like(x, device="cpu").tolist() == [[1.0] * 3] * 2
    assert torch.ones_like(x, device="cpu").device == torch.device("cpu")
    assert torch.ones_like(x, device="meta").is_meta


def test_factories_keep_the_strides_of_what_they_are_like() -> None:
    x = floats(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch.ones_like(x.to(DEVICE)).stride() == torch.ones_like(x).stride()


def test_an_out_of_a_factory_has_its_own_dtype() -> None:
    out = torch.empty(0, dtype=torch.int16, device="chip:1")
    assert torch.eye(2, 3, out=out) is out
    assert out.device == torch.device("chip", 1)
    assert torch.equal(out.cpu(), torch.eye(2, 3, dtype=torch.int16))


def test_factories_refuse_what_the_device_has_not() -> None:
    with pytest.raises(NotImplementedError) as caught:
        torch.ones_like(floats(2).to(DEVICE), layout=torch.sparse_coo)
    assert str(caught.value).startswith(
        "aten::ones_like: chip has no tensors of layout Sparse, only strided (dense) ones."
    )
    with pytest.raises(RuntimeError, match="only CPU tensors can be pinned"):
        torch.arange(1, 3, device=DEVICE, pin_memory=True)


def test_symint_kernels() -> None:
    same(lambda x: x.new_full((2, 3), 4), floats(1))
    out = torch.empty(0, device=DEVICE)
    torch.ops.aten.new_full.out(floats(1).to(DEVICE), (2, 3), 4, out=out)
    agree(out, torch.full((2, 3), 4.0))


def test_a_complex_scalar_makes_the_result_complex() -> None:
    same(lambda x: x.pow(2.5), floats(3).abs())
    same(lambda x: x.pow(2 + 1j), floats(3).abs())
    same(lambda x: x.pow_(2 + 1j), floats(3).abs())


# ---- structured kernels with their own meta, and with their own casts


def test_a_meta_function_of_its_own_around_pytorchs() -> None:
    same(lambda x, y: x - y, floats(2, 3), floats(3))
    same(lambda x, y: x.sub_(y), floats(3), torch.arange(3))
    (x,) = on_device(floats(2, 2, 2))
    with pytest.raises(RuntimeError, match="chip subtracts matrices at most, not tensors of 3"):
        x - x
    with pytest.raises(RuntimeError, match="chip subtracts matrices at most, not tensors of 3"):
        x.sub_(x)


def test_a_meta_function_of_its_own_alone() -> None:
    same(torch.mm, floats(2, 3), floats(3, 4))
    same(lambda x, y, out: torch.mm(x, y, out=out), floats(2, 3), floats(3, 4), floats(2, 4))
    x, y = on_device(floats(2, 3), floats(2, 3))
    with pytest.raises(RuntimeError, match="chip multiplies matrices that fit"):
        torch.mm(x, y)


def test_a_meta_function_that_computes_for_its_kernel() -> None:
    same(lambda x: tuple(torch.max(x, -1)), floats(2, 3))
    (x,) = on_device(floats(0, 3))
    with pytest.raises(RuntimeError, match="chip has no maximum of nothing"):
        torch.max(x, 0)


def test_a_kernel_that_casts_gets_the_operands_as_they_are() -> None:
    same(torch.maximum, floats(3), torch.arange(3))
    same(
        lambda x, y, out: torch.maximum(x, y, out=out),
        floats(3),
        torch.arange(3),
        floats(3).double(),
    )
    x, y = on_device(floats(3), floats(3))
    with pytest.raises(
        RuntimeError, match="the operands were cast"
    ):  # they are alike to begin with
        torch.maximum(x, y)


def test_gradients_flow_through_derived_variants() -> None:
    def gradient(x: Tensor, y: Tensor) -> Tensor:
        x.requires_grad_()
        (x.mul(y).relu().sigmoid() + x).sum().backward()
        assert x.grad is not None
        return x.grad

    same(gradient, floats(3, 4), floats(4))


# ---- the contract of each variant


def on_device(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(DEVICE) for tensor in tensors]


def test_an_in_place_operator_keeps_its_shape() -> None:
    x, y = on_device(floats(4), floats(3, 4))
    with pytest.raises(RuntimeError, match=r"output with shape \[4\] doesn't match the broadcast"):
        x.mul_(y)
    assert x.shape == (4,)


def test_an_in_place_result_must_fit() -> None:
    x, y = on_device(torch.arange(3), floats(3))
    with pytest.raises(RuntimeError, match="result type Float can't be cast to"):
        x.mul_(y)
    with pytest.raises(RuntimeError, match=r"can't be cast to .* Long \(aten::logit_\)"):
        x.logit_()


def test_partly_overlapping_operands_are_refused() -> None:
    (x,) = on_device(torch.arange(5.0))
    with pytest.raises(RuntimeError, match="unsupported operation: some elements of the input"):
        x[1:].mul_(x[:-1])
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        x[:1].expand(3).mul_(x[:3])
    x.mul_(x)
    assert x.tolist() == [0, 1, 4, 9, 16]


def test_out_is_resized_with_a_warning() -> None:
    for call in (torch.sigmoid, torch.logit, lambda x, out: torch.mul(x, x, out=out)):
        x, out = on_device(floats(3), floats(2))
        with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
            call(x, out=out)
        assert out.shape == (3,)


def test_out_is_returned_itself() -> None:
    x, out = on_device(floats(3), floats(3))
    pointer = out.data_ptr()
    assert torch.mul(x, x, out=out) is out
    assert out.data_ptr() == pointer
    assert x.mul_(2).data_ptr() == x.data_ptr()


def test_an_out_that_cannot_hold_the_result_is_refused() -> None:
    x, out = on_device(floats(3), torch.arange(3))
    with pytest.raises(
        RuntimeError,
        match=r"Expected out tensor to have dtype float, but got .* \(aten::relu.out\)",
    ):
        torch.ops.aten.relu.out(x, out=out)


def test_other_devices_are_refused_with_the_remedy() -> None:
    (x,) = on_device(floats(3))
    assert refusal(RuntimeError, lambda: x.mul_(floats(3))) == (
        "Expected all tensors to be on the same device, but found at least two devices, chip:0 and "
        'cpu! (aten::mul_.Tensor, argument of shape [3])\n  remedy: move it with .to("chip:0")'
    )
    with pytest.raises(RuntimeError, match="at least two devices, chip:0 and chip:1!"):
        torch.mul(x, floats(3).to("chip:1"))


def test_the_device_of_the_operands_is_current_for_the_kernel() -> None:
    x = floats(3).to("chip:1")
    assert (x * x).device == torch.device("chip", 1)
    assert torch.accelerator.current_device_index() == 0


def test_a_host_kernel_waits_for_the_copy_that_it_works_on() -> None:
    driver = ctypes.CDLL(str(LOADED.built.driver))
    tensor = floats(3, 4)
    x, out = on_device(tensor, torch.zeros(3, 4))
    driver.opsmith_sim_inject(b"slow", 20_000)  # every copy on the device takes 20 ms
    try:
        ours = torch.sigmoid(x)
        torch.sigmoid(x, out=out)
        agree((ours, out), (torch.sigmoid(tensor),) * 2)
    finally:
        driver.opsmith_sim_clear_faults()


# ---- dtypes that a kernel does not take


def test_other_dtypes_go_to_the_cpu() -> None:
    same(torch.cos, floats(3))
    same(torch.cos, floats(3).double())
    same(torch.cos_, floats(3).double())
    same(torch.cos, torch.arange(3))  # computes in float32: the kernel's own


def test_other_dtypes_are_denied_with_the_reason() -> None:
    same(torch.tan, floats(3))
    (x,) = on_device(floats(3).double())
    with pytest.raises(NotImplementedError) as caught:
        torch.tan(x)
    folder = Path(__file__).parent
    assert str(caught.value).startswith(
        f"aten::tan is not available on chip: the kernel `chip::tan` ({folder}/kernels.yaml:26:6) takes "
        f"Float only, and the fallback is denied to it ({folder}/{MODE}.yaml:5:25). It was called with "
        "self float64[3] on chip:0. Add a kernel for it to one of the backend's libraries:\n"
    )


def test_denied_operators_name_the_line_to_add() -> None:
    (x,) = on_device(floats(3))
    with pytest.raises(NotImplementedError) as caught:
        torch.sinh(x)
    folder = Path(__file__).parent
    assert str(caught.value) == (
        "aten::sinh.out is not available on chip: no kernel in chiplib, runtime; the fallback is denied "
        f"to it ({folder}/{MODE}.yaml:5:19). It was called with self float32[3] on chip:0, out "
        "float32[3] on chip:0. Add a kernel for it to one of the backend's libraries:\n"
        "  - op: sinh.out\n"
        "    kernel_name: chip::sinh_out\n"
        "or allow the fallback: take sinh.out out of `fallback: {deny: [...]}`."
    )
