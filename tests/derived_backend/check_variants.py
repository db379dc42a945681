"""Every derivation against the CPU: values, and the contract of each variant.

Runs in a process of its own, because a process loads one backend: ``tests/test_derived.py`` starts
it.  The routes of the operators are checked as well, so that no case passes by another road.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.plan import Derivation, Route

LOADED = opsmith.load(str(Path(__file__).with_name("backend.yaml")))
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


def outcome(call: Callable[..., object], *arguments: object) -> object:
    """What the call returns, or the type of what it raises."""
    try:
        return call(*arguments)
    except Exception as error:
        return type(error)


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
        RuntimeError, match=r"result type Float can't be cast .* \(aten::relu.out\)"
    ):
        torch.ops.aten.relu.out(x, out=out)


def test_other_devices_are_refused_with_the_remedy() -> None:
    (x,) = on_device(floats(3))
    with pytest.raises(RuntimeError) as caught:
        x.mul_(floats(3))
    assert str(caught.value) == (
        "Expected all tensors to be on the same device, but found at least two devices, chip:0 and "
        'cpu! (aten::mul_.Tensor, argument of shape [3])\n  remedy: move it with .to("chip:0")'
    )
    with pytest.raises(RuntimeError, match="at least two devices, chip:0 and chip:1!"):
        torch.mul(x, floats(3).to("chip:1"))


def test_the_device_of_the_operands_is_current_for_the_kernel() -> None:
    x = floats(3).to("chip:1")
    assert (x * x).device == torch.device("chip", 1)
    assert torch.accelerator.current_device_index() == 0


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
        f"aten::tan is not available on chip: the kernel `chip::tan` ({folder}/kernels.yaml:24:6) takes "
        f"Float only, and the fallback is denied to it ({folder}/backend.yaml:5:25). It was called with "
        "self float64[3] on chip:0. Add a kernel for it to one of the backend's libraries:\n"
    )


def test_denied_operators_name_the_line_to_add() -> None:
    (x,) = on_device(floats(3))
    with pytest.raises(NotImplementedError) as caught:
        torch.sinh(x)
    folder = Path(__file__).parent
    assert str(caught.value) == (
        "aten::sinh.out is not available on chip: no kernel in chiplib, runtime; the fallback is denied "
        f"to it ({folder}/backend.yaml:5:19). It was called with self float32[3] on chip:0, out "
        "float32[3] on chip:0. Add a kernel for it to one of the backend's libraries:\n"
        "  - op: sinh.out\n"
        "    kernel_name: chip::sinh_out\n"
        "or allow the fallback: take sinh.out out of `fallback: {deny: [...]}`."
    )
