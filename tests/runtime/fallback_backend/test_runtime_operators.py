"""The runtime's own operators: factories, views, resizing, set_, copies, item(), convolution, dropout."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import loaded  # noqa: F401  (makes the device)
import pytest
import torch
from torch import Tensor

import opsmith
from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


# ---- factories ----


def test_empty_has_what_was_asked_for() -> None:
    tensor = torch.empty(2, 3, 4, 5, device="sim", memory_format=torch.channels_last)
    assert tensor.dtype == torch.get_default_dtype()
    assert tensor.device == torch.device("sim:0")
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    strided = torch.empty_strided((2, 3), (1, 2), dtype=torch.int16, device="sim:1")
    assert (strided.stride(), strided.dtype, strided.device.index) == ((1, 2), torch.int16, 1)
    assert strided.untyped_storage().nbytes() == 12


@pytest.mark.usefixtures("deterministic")
def test_deterministic_algorithms_fill_what_is_new() -> None:
    assert torch.empty(3, device="sim").isnan().all()
    assert (torch.empty_strided((2,), (3,), dtype=torch.uint8, device="sim").cpu() == 255).all()
    grown = torch.zeros(1, device="sim").resize_(3).cpu()
    assert grown[0] == 0
    assert grown[1:].isnan().all()


def test_only_cpu_tensors_can_be_pinned() -> None:
    assert refusal(RuntimeError, torch.empty, 2, device="sim", pin_memory=True) == (
        "aten::empty.memory_format: only CPU tensors can be pinned, and this one is asked for on "
        'sim. Leave `pin_memory` out, or make the tensor with device="cpu".'
    )


@pytest.mark.parametrize("arguments", [(6,), (6, False), (6, True, 9.0)])
def test_windows_that_only_the_cpu_computes(arguments: tuple[Any, ...]) -> None:
    window = torch.kaiser_window(*arguments, device="sim")
    assert window.device == torch.device("sim:0")
    assert torch.equal(window.cpu(), torch.kaiser_window(*arguments))


# ---- views ----

VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.view(6, 4),
    lambda x: x.reshape(4, -1),
    lambda x: x.transpose(0, 2),
    lambda x: x[1],
    lambda x: x[:, ::2, 1:],
    lambda x: x.permute(2, 0, 1)[1:],
    lambda x: x.unsqueeze(0).squeeze(1),
    lambda x: x.diagonal(dim1=1, dim2=2),
    lambda x: x.unfold(2, 2, 1),
    lambda x: x.as_strided((3, 2), (2, 5), 1),
    lambda x: x.expand(5, 2, 3, 4),
    lambda x: x.view(torch.int32),
    lambda x: x.detach(),
    lambda x: x.narrow(0, 1, 1).view(-1),
]


@pytest.mark.parametrize("make", VIEWS)
def test_a_view_shares_memory(make: Callable[[Tensor], Tensor]) -> None:
    base = torch.arange(24.0).view(2, 3, 4)
    device_base = base.to("sim")
    view, device_view = make(base), make(device_base)
    assert (device_view.shape, device_view.stride()) == (view.shape, view.stride())
    assert device_view.storage_offset() == view.storage_offset()
    assert device_view.untyped_storage().data_ptr() == device_base.untyped_storage().data_ptr()
    assert torch.equal(device_view.cpu(), view)
    device_base.add_(1)
    base.add_(1)
    assert torch.equal(device_view.cpu(), view)


def test_a_view_that_does_not_fit() -> None:
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        torch.ones(3, 4, device="sim").t().view(12)
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        torch.ones(3, device="sim").as_strided((4,), (1,))


# ---- resizing ----


def test_resize_keeps_what_fits() -> None:
    tensor = torch.arange(6.0, device="sim")
    alias = tensor[2:]
    assert tensor.resize_(2, 5) is tensor
    assert tensor.untyped_storage().nbytes() == 40
    assert torch.equal(tensor.flatten()[:6].cpu(), torch.arange(6.0))
    tensor[0, 2] = 9
    assert alias[0].item() == 9  # still the same storage
    tensor.resize_(3)
    assert torch.equal(tensor.cpu(), torch.tensor([0.0, 1.0, 9.0]))
    assert tensor.untyped_storage().nbytes() == 40  # shrinking frees nothing


def test_a_resize_without_memory_leaves_the_tensor_as_it_was() -> None:
    tensor, other = torch.arange(4.0, device="sim"), torch.ones(2, device="sim")
    for call, arguments in (
        (tensor.resize_, (1 << 44,)),
        (tensor.set_, (other.untyped_storage(), 1 << 44, (3,))),
        (tensor.set_, (other.untyped_storage(), 0, (1 << 44,), (1,))),
    ):
        refusal(torch.OutOfMemoryError, call, *arguments)
        assert tensor.tolist() == [0, 1, 2, 3]
    assert other.untyped_storage().nbytes() == 8


def test_an_out_is_resized_on_its_device() -> None:
    out = torch.empty(0, device="sim:1")
    resized = torch.ops.aten._resize_output_
    assert resized(out, [2, 3], torch.device("sim:1")) is out
    assert out.shape == (2, 3)
    assert refusal(RuntimeError, resized, out, [2], torch.device("sim:0")) == (
        "_resize_output_: the tensor is on sim:1, and is expected on sim:0"
    )


def test_resize_takes_a_memory_format() -> None:
    tensor = torch.empty(0, device="sim").resize_(2, 3, 4, 4, memory_format=torch.channels_last)
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    assert refusal(RuntimeError, tensor.resize_, 1, memory_format=torch.preserve_format) == (
        "resize_: unsupported memory format Preserve on sim:0. Name the format that the resized "
        "tensor shall have."
    )
    with pytest.raises(RuntimeError, match="negative dimension"):
        tensor.resize_(-1)


def test_a_storage_can_be_resized() -> None:
    tensor = torch.arange(4.0, device="sim:1")
    storage = tensor.untyped_storage()
    storage.resize_(32)
    assert storage.nbytes() == 32
    assert torch.equal(tensor.cpu(), torch.arange(4.0))
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(16)
    tensor.fill_(3)
    assert torch.equal(tensor.cpu(), torch.full((4,), 3.0))


def test_parts_of_complex_numbers_are_views_on_the_device() -> None:
    numbers = torch.tensor([[1 + 2j, 3 - 4j]], device="sim")
    with opsmith.count_fallbacks() as block:
        parts = torch.view_as_real(numbers)
        again = torch.view_as_complex(parts)
        imaginary = numbers.imag
    assert str(block.fallbacks) == "no operator ran on the CPU"
    assert again.is_set_to(numbers)
    parts.copy_(torch.tensor([[[5.0, 6.0], [7.0, 8.0]]]))
    assert numbers.cpu().tolist() == [[5 + 6j, 7 + 8j]]
    assert imaginary.cpu().tolist() == [[6, 8]]


# ---- set_ ----


def test_set_takes_over_a_tensor_or_a_storage() -> None:
    source = torch.arange(12.0, device="sim")
    tensor = torch.empty(0, device="sim")
    assert tensor.set_(source[2:5]) is tensor
    assert tensor.is_set_to(source[2:5])
    assert not tensor.is_set_to(source[1:4])
    tensor.set_(source.untyped_storage())
    assert torch.equal(tensor.cpu(), torch.arange(12.0))
    tensor.set_(source.untyped_storage(), 1, (2, 3), (1, 4))
    assert torch.equal(tensor.cpu(), torch.arange(12.0).as_strided((2, 3), (1, 4), 1))
    tensor.set_(source.untyped_storage(), 3, (2, 2))
    assert tensor.stride() == (2, 1)
    tensor.fill_(0)
    assert source.sum().item() == 0 + 1 + 2 + 7 + 8 + 9 + 10 + 11


def test_set_stays_on_its_device() -> None:
    tensor = torch.ones(2, device="sim:0")
    with pytest.raises(RuntimeError, match="the devices must match"):
        tensor.set_(torch.ones(2, device="sim:1"))
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        tensor.set_(tensor.untyped_storage(), 1, (2,))


# ---- copies ----

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "stepped": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(3, -1),
}
DIRECTIONS = [("cpu", "sim"), ("sim", "cpu"), ("sim", "sim"), ("sim", "sim:1"), ("sim:1", "sim")]


def laid_out(data: Tensor, layout: str, device: str) -> Tensor:
    """``data`` on ``device`` in a layout, without relying on strided copies between devices."""
    host = LAYOUTS[layout](data)
    flat = torch.empty(0, dtype=data.dtype).set_(host.untyped_storage()).to(device)
    return flat.as_strided(host.shape, host.stride(), host.storage_offset())


@pytest.mark.parametrize("destination_layout", ["contiguous", "transposed", "stepped"])
@pytest.mark.parametrize("source_layout", LAYOUTS)
@pytest.mark.parametrize(("source_device", "destination_device"), DIRECTIONS)
def test_copies_between_layouts(
    source_device: str, destination_device: str, source_layout: str, destination_layout: str
) -> None:
    # Shapes such that each layout gives 3 x 4.
    shapes = {"contiguous": (3, 4), "transposed": (4, 3), "stepped": (3, 8), "expanded": (3, 4)}
    for source_dtype in DTYPES:
        for dtype in DTYPES:
            values = torch.arange(24).remainder(5)
            numel = torch.Size(shapes[source_layout]).numel()
            data = values[:numel].view(shapes[source_layout]).to(source_dtype)
            source = laid_out(data, source_layout, source_device)
            background = torch.full(shapes[destination_layout], 1, dtype=dtype)
            destination = laid_out(background, destination_layout, destination_device)
            assert destination.copy_(source) is destination
            expected = LAYOUTS[source_layout](data).to(dtype)
            assert torch.equal(destination.cpu(), expected)
            # The memory between the elements is untouched.
            if destination_layout == "stepped":
                between = destination.as_strided((3, 4), (8, 2), 1)
                assert (between.cpu() == 1).all()


def test_large_copies_of_parts_leave_the_rest_alone() -> None:
    # More than is ever copied whole: without a window only the bytes concerned may travel.
    base = torch.zeros(1 << 20, device="sim")
    base[5:1000:3].copy_(torch.ones(332, dtype=torch.float64))
    base[-4:].copy_(torch.arange(4))
    assert base.sum().item() == 332 + 6
    assert base[5:1000:3].sum().item() == 332


def test_copies_broadcast() -> None:
    tensor = torch.zeros(2, 3, device="sim")
    tensor.copy_(torch.arange(3))
    assert torch.equal(tensor.cpu(), torch.tensor([[0.0, 1.0, 2.0]]).expand(2, 3))
    tensor.copy_(torch.tensor(7, device="sim:1"))
    assert (tensor.cpu() == 7).all()
    with pytest.raises(RuntimeError) as error:
        tensor.copy_(torch.ones(4))
    assert "The size of tensor a (3) must match the size of tensor b (4)" in str(error.value)
    assert refusal(RuntimeError, lambda: tensor.copy_(torch.ones(5, 2, 3))) == (
        "output with shape [2, 3] doesn't match the broadcast shape [5, 2, 3]"
    )
    assert torch.empty(0, 3, device="sim").copy_(torch.ones(3)).shape == (0, 3)


def test_copies_within_one_storage() -> None:
    tensor = torch.arange(6.0, device="sim")
    tensor[:3].copy_(tensor[3:])
    assert torch.equal(tensor.cpu(), torch.tensor([3.0, 4, 5, 3, 4, 5]))
    square = torch.arange(4.0, device="sim").view(2, 2)
    assert torch.equal(square.copy_(square).cpu(), torch.arange(4.0).view(2, 2))
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        tensor[1:].copy_(tensor[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1, device="sim").expand(3).copy_(torch.ones(3))


@pytest.mark.parametrize(("source_device", "destination_device"), DIRECTIONS)
def test_conj_and_neg_survive_copies(source_device: str, destination_device: str) -> None:
    data = torch.randn(3, 4, dtype=torch.complex64)
    moved = data.to(source_device)
    for lazy, expected in [
        (moved.conj(), data.conj()),
        (moved.conj().imag, data.conj().imag),  # the neg flag
        (moved.mT.conj(), data.mT.conj()),
    ]:
        assert torch.equal(lazy.to(destination_device).cpu(), expected.resolve_conj().resolve_neg())
        into = torch.empty_like(expected.resolve_conj().resolve_neg()).to(destination_device)
        assert torch.equal(into.copy_(lazy).cpu(), expected.resolve_conj().resolve_neg())
    into = torch.zeros(3, 4, dtype=torch.complex64, device=destination_device)
    into.conj().copy_(moved)
    assert torch.equal(into.cpu(), data.conj().resolve_conj())
    into.imag.neg_()
    assert torch.equal(into.cpu(), data)


def test_pinned_copies_may_be_asynchronous() -> None:
    host = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    copies = [host.to("sim", non_blocking=True) for _ in range(4)]
    back = torch.empty_like(host, pin_memory=True)
    back.copy_(copies[3].add_(1), non_blocking=True)
    del host  # its memory may be used until the copies are done
    filler = torch.zeros(1 << 20).pin_memory()
    torch.accelerator.synchronize()
    assert torch.equal(back, torch.arange(1 << 20, dtype=torch.float32) + 1)
    assert torch.equal(copies[0].cpu(), torch.arange(1 << 20, dtype=torch.float32))
    assert filler.sum() == 0


def test_a_host_kernel_waits_for_what_is_queued() -> None:
    data = torch.randn(1 << 18)
    tensor = torch.zeros(1 << 18, device="sim")
    for _ in range(5):
        tensor.copy_(data.to("sim:1"), non_blocking=True)
        assert torch.equal(tensor.cumsum(0).cpu(), data.cumsum(0))
        tensor.zero_()


def test_copies_are_recorded_by_autograd() -> None:
    leaf = torch.randn(3, requires_grad=True)
    (leaf.to("sim").double().to("sim:1") * 2).sum().cpu().backward()
    assert leaf.grad is not None
    assert leaf.grad.device.type == "cpu"
    assert torch.equal(leaf.grad, torch.full((3,), 2.0))


def test_what_is_not_strided_is_not_copied_to_what_is() -> None:
    with pytest.raises(NotImplementedError, match="no data"):
        torch.ones(2, device="sim").copy_(torch.ones(2, device="meta"))
    with pytest.raises((NotImplementedError, RuntimeError)):
        torch.ones(2, device="sim").copy_(torch.ones(2).to_sparse())


# ---- copies on write ----


@pytest.mark.parametrize("written", ["self", "copy"])
def test_a_lazy_clone_is_copied_when_one_of_both_is_written(written: str) -> None:
    tensor = torch.arange(4.0, device="sim")
    copy = torch._lazy_clone(tensor)
    before = copy.sum().item()
    (tensor if written == "self" else copy).add_(1)
    assert before == 6
    assert (tensor.tolist() == [1, 2, 3, 4]) == (written == "self")
    assert (copy.tolist() == [1, 2, 3, 4]) == (written == "copy")


@pytest.mark.parametrize(
    "read", [torch.Tensor.cpu, torch.median, torch.fft.fft, lambda t: t.to(torch.complex64) + 1]
)
def test_reading_copies_no_lazy_clone(read: Callable[[Tensor], Tensor]) -> None:
    tensor = torch.arange(4.0, device="sim")
    copy = torch._lazy_clone(tensor)
    assert read(copy).cpu().equal(read(torch.arange(4.0)))
    assert torch._C._is_cow_tensor(tensor) and torch._C._is_cow_tensor(copy)


def test_a_lazy_clone_that_a_call_reads_and_then_writes() -> None:
    tensor = torch.arange(4.0, device="sim")
    copy = torch._lazy_clone(tensor)
    torch.add(copy[2:], 10, out=copy[:2])
    assert copy.tolist() == [12, 13, 2, 3] and tensor.tolist() == [0, 1, 2, 3]


def test_statistics_that_a_schema_does_not_mark_are_written_to_a_lazy_clone() -> None:
    mean, var = torch.zeros(3, device="sim"), torch.ones(3, device="sim")
    copy = torch._lazy_clone(mean)
    images = torch.arange(24.0, device="sim").view(2, 3, 4)
    torch.native_batch_norm(images, None, None, copy, var, True, 0.5, 1e-5)
    assert mean.tolist() == [0, 0, 0] and copy.tolist() == [3.75, 5.75, 7.75]


# ---- item ----


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128, torch.float16])
def test_item(dtype: torch.dtype) -> None:
    data = torch.tensor([0, 1, 3]).to(dtype)
    tensor = data.to("sim")
    assert tensor[2].item() == data[2].item()
    assert isinstance(tensor[2].item(), type(data[2].item()))
    assert tensor.tolist() == data.tolist()
    assert bool(tensor[1])


def test_item_of_conj_and_neg() -> None:
    tensor = torch.tensor([1 + 2j], device="sim")
    assert tensor.conj().item() == 1 - 2j
    assert tensor.conj().imag.item() == -2
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.ones(2, device="sim").item()
    with pytest.raises(RuntimeError, match="_local_scalar_dense: Empty tensor not supported"):
        torch.ops.aten._local_scalar_dense(torch.ones(0, device="sim"))
    assert torch.ops.aten._local_scalar_dense(torch.tensor([3, 4], device="sim")) == 3


# ---- convolution and dropout ----

CONVOLUTIONS: list[Callable[[], torch.nn.Module]] = [
    lambda: torch.nn.Conv1d(4, 6, 3, padding=1),
    lambda: torch.nn.Conv2d(4, 6, 3, stride=2, bias=False),
    lambda: torch.nn.Conv2d(4, 8, (3, 1), groups=2, dilation=2),
    lambda: torch.nn.Conv3d(4, 2, 2),
    lambda: torch.nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2),
]


@pytest.mark.parametrize("make", CONVOLUTIONS)
def test_convolution(make: Callable[[], torch.nn.Module]) -> None:
    layer = make()
    dims = layer.weight.dim() - 2
    device_layer = make().to("sim")
    device_layer.load_state_dict(layer.state_dict())
    data = torch.randn(2, 4, *[7] * dims)
    leaf, device_leaf = data.clone().requires_grad_(), data.to("sim").requires_grad_()
    result, device_result = layer(leaf), device_layer(device_leaf)
    assert device_result.device.type == "sim"
    torch.testing.assert_close(device_result.cpu(), result)
    result.square().sum().backward()
    device_result.square().sum().backward()
    torch.testing.assert_close(device_leaf.grad.cpu(), leaf.grad)
    for parameter, device_parameter in zip(
        layer.parameters(), device_layer.parameters(), strict=True
    ):
        torch.testing.assert_close(device_parameter.grad.cpu(), parameter.grad)


def test_convolution_computes_only_the_gradients_asked_for() -> None:
    ones = torch.ones(1, 1, 3, 3, device="sim")
    gradients = torch.ops.aten.convolution_backward_overrideable(
        ones, ones, ones[..., :1, :1], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, True]
    )
    assert gradients[0] is None
    assert gradients[1].item() == 9
    assert gradients[2].tolist() == [9]


def test_dropout_draws_from_the_device() -> None:
    data = torch.ones(1000, device="sim")
    cpu_state = torch.get_rng_state()
    torch.sim.manual_seed(3)
    first = torch.nn.functional.dropout(data, 0.3)
    second = torch.nn.functional.dropout(data, 0.3)
    torch.sim.manual_seed(3)
    assert torch.equal(torch.nn.functional.dropout(data, 0.3).cpu(), first.cpu())
    assert not torch.equal(first.cpu(), second.cpu())
    assert torch.equal(torch.get_rng_state(), cpu_state)
    kept = first.cpu()[first.cpu() != 0]
    assert torch.allclose(kept, torch.tensor(1 / 0.7))
    assert 600 < len(kept) < 800


def test_dropout_at_its_ends() -> None:
    data = torch.arange(4.0, device="sim")
    assert torch.nn.functional.dropout(data, 1.0).tolist() == [0, 0, 0, 0]
    assert torch.nn.functional.dropout(data, 0.5, training=False).tolist() == [0, 1, 2, 3]
    result, mask = torch.native_dropout(data, 0.5, False)
    assert result.tolist() == [0, 1, 2, 3]
    assert mask.dtype == torch.bool
    assert mask.all()


# ---- histograms of integers, which the CPU refuses ----


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_are_counted_as_gpus_count_them(dtype: torch.dtype) -> None:
    data = torch.tensor([[0, 1, 1], [3, 7, 9], [10, 11, 100]], dtype=dtype)
    counts = torch.histc(data.to("sim"), 5, 0, 10)
    # A bin is [2 n, 2 n + 2), and the last one has 10, too; 11 and 100 are outside.
    assert (counts.tolist(), counts.dtype) == ([3, 1, 0, 1, 2], dtype)
    of_all = torch.histc(data.t().to("sim"), 4)
    assert of_all.tolist() == [8, 0, 0, 1]
    out = torch.empty(4, dtype=dtype, device="sim")
    assert torch.histc(data.to("sim"), 4, out=out) is out
    assert out.tolist() == of_all.tolist()


def test_histograms_of_few_integers() -> None:
    same = torch.tensor([7, 7], device="sim")
    assert torch.histc(same, 2).tolist() == [0, 2]
    assert torch.histc(same[:0], 3).tolist() == [0, 0, 0]
    assert torch.histc(same, 2, 0.9, 7.9).tolist() == [0, 2]  # from 0 to 7


def test_large_integers_lie_in_their_bins() -> None:
    first = 2**61
    data = torch.tensor([first, first + 1, first + 2], device="sim")
    assert torch.histc(data, 3, 2.0**61, 2.0**61 + 1024).tolist() == [3, 0, 0]
    assert torch.histc(data, 3).tolist() == [1, 1, 1]


def test_histograms_that_cannot_be_made() -> None:
    data = torch.tensor([-(2**62), 2**62], device="sim")
    assert refusal(RuntimeError, torch.histc, data, 0) == (
        "torch.histc(): bins must be > 0, but got 0 for dimension 0"
    )
    assert refusal(RuntimeError, torch.histc, data, 3, 5, 2) == (
        "torch.histc(): max must be larger than min, but got min 5 and max 2"
    )
    assert refusal(RuntimeError, torch.histc, data, 4) == (
        f"torch.histc(): the range from {-(2**62)} to {2**62} in 4 bins is more than 64-bit integers can "
        "count\n  remedy: count self.double()"
    )


# ---- zero gradients, streams, counting ----


def test_gradients_known_to_be_zero() -> None:
    leaf = torch.randn(3, device="sim", requires_grad=True)
    leaf.sgn().sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [0, 0, 0]


def test_memory_recorded_for_a_stream_outlives_its_tensor() -> None:
    stream = torch.Stream(device="sim")
    tensor = torch.ones(1 << 18, device="sim")
    with stream:
        copy = torch.empty_like(tensor)
        copy.copy_(tensor)
    tensor.record_stream(stream)
    del tensor
    filler = torch.zeros(1 << 18, device="sim")
    stream.synchronize()
    assert copy.sum().item() == 1 << 18
    assert filler.sum().item() == 0
