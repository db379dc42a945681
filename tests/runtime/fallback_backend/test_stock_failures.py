"""Where PyTorch's own CPU fallback is wrong, one test for each failure."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import pytest
import torch
from loaded import DEVICE
from torch import Tensor

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)


def twice(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """A copy on the CPU and one on the device."""
    return tensor.clone(), tensor.to(DEVICE)


# ---- what is written ----


@pytest.mark.parametrize("overload", ["default", "out"])
def test_batch_norm_writes_its_unmarked_running_statistics(overload: str) -> None:
    data, device_data = twice(torch.randn(4, 3))
    mean, device_mean = (statistics[:, 0] for statistics in twice(torch.zeros(3, 2)))
    variance, device_variance = (statistics[:, 0] for statistics in twice(torch.ones(3, 2)))
    call = getattr(torch.ops.aten.native_batch_norm, overload)

    def outs(like: Tensor) -> dict[str, Tensor]:
        names = ("out", "save_mean", "save_invstd") if overload == "out" else ()
        return {name: like.new_empty(0) for name in names}

    call(data, None, None, mean, variance, True, 0.1, 1e-5, **outs(data))
    call(
        device_data, None, None, device_mean, device_variance, True, 0.1, 1e-5, **outs(device_data)
    )
    assert torch.equal(device_mean.cpu(), mean) and mean.any()
    assert torch.equal(device_variance.cpu(), variance)


def test_instance_norm_writes_its_running_statistics() -> None:
    layer = torch.nn.InstanceNorm1d(3, track_running_stats=True)
    device_layer = torch.nn.InstanceNorm1d(3, track_running_stats=True).to(DEVICE)
    data = torch.randn(2, 3, 5)
    assert torch.equal(device_layer(data.to(DEVICE)).cpu(), layer(data))
    assert torch.equal(device_layer.running_mean.cpu(), layer.running_mean)
    assert torch.equal(device_layer.running_var.cpu(), layer.running_var)


def test_a_list_that_is_written_is_written_back() -> None:
    base, device_base = twice(torch.rand(6))
    for tensor in (base, device_base):
        torch._foreach_atan_([tensor[:2], tensor[2:4]])
        torch._foreach_copy_([tensor[4:]], [tensor[:2]])
    assert torch.equal(device_base.cpu(), base)


def test_foreach_takes_tensor_scalars_from_the_cpu() -> None:
    tensors = [torch.rand(3), torch.rand(2, 2)]
    ours = torch._foreach_mul([t.to(DEVICE) for t in tensors], torch.tensor(2.0))
    assert [t.device.type for t in ours] == [DEVICE, DEVICE]
    for mine, other in zip(ours, torch._foreach_mul(tensors, 2.0), strict=True):
        assert torch.equal(mine.cpu(), other)


def test_foreach_on_many_tensors_that_repeat() -> None:
    base, device_base = twice(torch.rand(60, 3))
    for tensor in (base, device_base):
        rows = list(tensor)  # more than a linear search is good for
        torch._foreach_lerp_([*rows, tensor], [*rows[::-1], tensor], 0.25)
    assert torch.equal(device_base.cpu(), base)


def test_index_put_with_lists_of_optional_indices() -> None:
    data, device_data = twice(torch.zeros(3, 4, 5))
    for tensor, device in ((data, "cpu"), (device_data, DEVICE)):
        rows = torch.tensor([0, 2, 2], device=device)
        values = torch.ones(4, 3, device=device)
        columns = torch.tensor([1, 1, 1])  # on the CPU, as PyTorch allows
        torch.ops.aten.index_put_(tensor.transpose(0, 1), [None, rows, columns], values, True)
        tensor[rows, :, torch.tensor([4, 3, 4], device=device)] = 7
    assert torch.equal(device_data.cpu(), data)
    assert torch.equal(device_data[:, [True, False, True, False]].cpu(), data[:, ::2])


@pytest.mark.parametrize("offset", [0, 3])
def test_out_is_resized_in_a_storage_that_others_see(offset: int) -> None:
    data, device_data = twice(torch.rand(4, 5))
    base, device_base = twice(torch.arange(8.0))
    out, device_out = base[offset:offset], device_base[offset:offset]
    torch.cumsum(data, 0, out=out)
    torch.cumsum(device_data, 0, out=device_out)
    assert torch.equal(device_out.cpu(), out)
    assert torch.equal(device_base.cpu(), base)
    assert device_out.storage_offset() == out.storage_offset()
    assert device_base.untyped_storage().nbytes() == base.untyped_storage().nbytes()
    device_out.fill_(-1)
    assert device_base[offset].item() == -1  # still one storage


def test_out_of_another_dtype_and_strides() -> None:
    data, device_data = twice(torch.randint(0, 9, (4, 5)))
    out, device_out = twice(torch.zeros(10, 4, dtype=torch.float64))
    torch.cumprod(data, 1, dtype=torch.float64, out=out.t()[:, ::2])
    torch.cumprod(device_data, 1, dtype=torch.float64, out=device_out.t()[:, ::2])
    assert torch.equal(device_out.cpu(), out)


def test_what_data_gives_is_resized() -> None:
    matrix, device_matrix = twice(torch.rand(4, 3))
    for tensor in (matrix, device_matrix):
        alias = torch.zeros(2, dtype=torch.long, device=tensor.device).data
        torch.kthvalue(tensor, 2, out=(tensor.new_zeros(1).data, alias))
        assert alias.tolist() == matrix.kthvalue(2).indices.tolist()


# ---- aliasing ----

VIEWS = {
    "unfold": lambda x: x.unfold(0, 3, 1),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(4, 2)),
    "view_as_real": lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 2)))[..., 0],
    "diagonal": lambda x: x.view(4, 2).diagonal(1),
    "alias": torch.ops.aten.alias,
    "split_with_sizes": lambda x: x.split_with_sizes([5, 3])[1],
    "unbind": lambda x: x.view(2, 4).unbind(1)[2],
    "real of conj": lambda x: torch.view_as_complex(x.view(4, 2)).conj().imag,
    "squeeze": lambda x: x.view(1, 8).squeeze(0),
    "as_strided": lambda x: x.as_strided((2, 2), (3, 1), 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_one(name: str) -> None:
    base, device_base = twice(torch.arange(8.0))
    view, device_view = VIEWS[name](base), VIEWS[name](device_base)
    assert device_view._is_view() and device_view._base is device_base
    assert device_view.untyped_storage().data_ptr() == device_base.untyped_storage().data_ptr()
    assert device_view.storage_offset() == view.storage_offset()
    view.zero_()
    device_view.zero_()
    assert torch.equal(device_base.cpu(), base)
    assert device_base._version == base._version


def test_results_that_alias_an_argument_alias_it() -> None:
    data, device_data = twice(torch.rand(3, 3))
    for tensor in (data, device_data):
        assert torch.ops.aten._reshape_alias(tensor, [9], [1])._base is tensor
        assert tensor.contiguous() is tensor
        assert torch.ops.aten.lift_fresh(tensor).data_ptr() == tensor.data_ptr()


def test_overlapping_memory_is_refused() -> None:
    for device in ("cpu", DEVICE):
        base = torch.arange(6.0, device=device)
        expanded = torch.zeros(1, device=device).expand(3)
        with pytest.raises(RuntimeError, match="single memory location"):
            expanded.add_(1)
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.cumsum(base[:3], 0, out=expanded)
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.sinh(base[:4], out=base[1:5])
        assert base.tolist() == [0, 1, 2, 3, 4, 5]


# ---- numbers, flags, optional tensors ----


def test_wrapped_numbers_do_not_promote() -> None:
    halves = torch.ones(2, dtype=torch.bfloat16, device=DEVICE)
    integers = torch.ones(2, dtype=torch.int32, device=DEVICE)
    assert (halves + 1.5).dtype == torch.bfloat16
    assert (integers * 2**40).dtype == torch.int32
    assert (integers * 1.5).dtype == torch.float32
    assert torch.where(halves > 0, 1.0, halves).dtype == torch.bfloat16
    assert torch.copysign(halves, -1.0).dtype == torch.bfloat16
    assert torch.add(halves, torch.tensor(1.0, dtype=torch.float64)).dtype == torch.bfloat16


def test_cpu_scalars_are_read() -> None:
    data, device_data = twice(torch.rand(3))
    number = torch.tensor(0.5)
    assert torch.equal(torch.hypot(device_data, number).cpu(), torch.hypot(data, number))
    assert torch.equal(torch.hypot(number, device_data).cpu(), torch.hypot(number, data))
    assert torch.equal(
        device_data.masked_fill(device_data > 0, number).cpu(), torch.full((3,), 0.5)
    )


def test_conj_and_neg_flags_are_heeded() -> None:
    data, device_data = twice(torch.randn(3, 3, dtype=torch.complex64))
    for tensor in (data, device_data):
        tensor.imag.neg_()
    negative, device_negative = data.conj().imag, device_data.conj().imag
    assert device_negative.is_neg()
    assert torch.equal(device_negative.cumsum(0).cpu(), negative.cumsum(0))
    assert torch.equal((device_data.conj() @ device_data).cpu(), data.conj() @ data)
    device_negative.atan_()  # written through the flag
    negative.atan_()
    assert torch.equal(device_data.cpu(), data)
    out, device_out = twice(torch.zeros(3, 3, dtype=torch.complex64))
    torch.cumsum(data, 0, out=out.conj())
    torch.cumsum(device_data, 0, out=device_out.conj())
    assert torch.equal(device_out.cpu(), out)


def test_optional_tensors() -> None:
    data, device_data = twice(torch.rand(2, 3, 4, 4))
    weight, device_weight = twice(torch.rand(3))
    for arguments in ((weight, None), (None, weight), (None, None)):
        theirs = torch.group_norm(data, 3, *arguments)
        ours = torch.group_norm(
            device_data, 3, *(None if a is None else device_weight for a in arguments)
        )
        torch.testing.assert_close(ours.cpu(), theirs)
    assert torch.equal(
        torch.bincount(device_data.flatten().mul(5).long(), None, 8).cpu(),
        torch.bincount(data.flatten().mul(5).long(), None, 8),
    )
    gradients = torch.ops.aten.native_group_norm_backward(
        device_data, device_data, device_data[..., 0, 0], device_data[..., 0, 0], None,
        2, 3, 16, 3, [True, False, False],
    )  # fmt: skip
    assert gradients[0].device == device_data.device
    assert gradients[1:] == (None, None)


def test_scalars_do_not_remember_the_tensors_before_them() -> None:
    """CPU kernels look at sizes()[0] of tensors that have no sizes, where ours are used again."""
    number, device_number = twice(torch.tensor(-0.007486820220947266))
    matrix = torch.ones(1, 2, 4, 5, device=DEVICE)
    for _ in range(3):
        torch.linalg.vector_norm(matrix, 0.5, 0, True)
        ours = torch.linalg.vector_norm(device_number, 1.2, 0, True)
        assert torch.equal(ours.cpu(), torch.linalg.vector_norm(number, 1.2, 0, True))


# ---- random numbers and devices ----


def test_generators_of_the_device_are_taken() -> None:
    for draw in (
        lambda x, g: x.exponential_(generator=g),
        lambda x, g: torch.multinomial(x.abs() + 1, 2, generator=g),
        lambda x, g: torch.bernoulli(x.sigmoid(), generator=g),
        lambda x, g: torch.randperm(5, generator=g, device=x.device),
        lambda x, g: torch.normal(x, 1.0, generator=g),
    ):
        generators = [torch.Generator(device=device).manual_seed(3) for device in ("cpu", DEVICE)]
        data, device_data = twice(torch.arange(6.0))
        assert torch.equal(draw(device_data, generators[1]).cpu(), draw(data, generators[0]))
        assert torch.equal(generators[1].get_state(), generators[0].get_state())


def test_without_a_generator_the_devices_own_is_drawn_from() -> None:
    torch.sim.manual_seed(11)
    host_state = torch.get_rng_state()
    ours = torch.zeros(5, device=DEVICE).exponential_()
    assert torch.equal(torch.get_rng_state(), host_state)
    torch.manual_seed(11)
    assert torch.equal(ours.cpu(), torch.zeros(5).exponential_())


def test_mixed_devices_are_refused() -> None:
    here, there, host = (torch.ones(2, 2, device=d) for d in ("sim:0", "sim:1", "cpu"))
    for other in (there, host):
        for call in (
            torch.mm,
            torch.hypot,
            lambda a, b: torch._foreach_sub([a, b], [b, a]),
            lambda a, b: a.scatter_(0, torch.zeros(1, 1, dtype=torch.long, device=a.device), b),
            lambda a, b: torch.cumsum(a, 0, out=b),
        ):
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
                call(here, other)
    assert torch.equal(here.cpu(), host)
