"""The CPU fallback: values, aliasing, what is written, random numbers, devices, refusals, threads."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from loaded import LOADED
from torch import Tensor
from torch.testing._internal.common_methods_invocations import OpInfo, op_db

import opsmith
from opsmith.schema import read_catalogue
from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)


# ---- values ----

CALLS: list[Callable[[Tensor], object]] = [
    lambda x: x.cumsum(1),
    lambda x: x.sort(dim=0, descending=True),
    lambda x: x.topk(2),
    lambda x: x.kthvalue(2),
    lambda x: torch.histc(x, 5, -1.0, 1.0),
    lambda x: torch.linalg.qr(x),
    lambda x: torch.fft.rfft(x),
    lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2.0),
    lambda x: x.unique(return_counts=True),
    lambda x: x.nonzero(),
    lambda x: x.t().logcumsumexp(0),
    lambda x: x[:, ::2].cummax(0),
    lambda x: x.expand(2, 4, 5).cumsum(0),
    lambda x: x[:0].cumsum(0),
    lambda x: x[0, 0].cumsum(0),
    lambda x: x.equal(x + 0),
    lambda x: torch._foreach_sinh([x, x[1], x.double()]),
    lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]).to(x.device)),
    lambda x: x.index_add(0, torch.tensor([0, 0, 1], device=x.device), x[:3]),
    lambda x: x[torch.tensor([2, 0])],  # a CPU index, as PyTorch allows
    lambda x: x[x > 0],
    lambda x: torch.heaviside(x, torch.tensor(0.5)),  # a CPU scalar
    lambda x: torch.stft(
        x.flatten(), 8, window=torch.ones(8, device=x.device), return_complex=True
    ),
]


def on_cpu(value: object) -> object:
    if isinstance(value, Tensor):
        assert value.device.type == "sim"
        return value.cpu()
    if isinstance(value, list | tuple):
        return [on_cpu(element) for element in value]
    return value


@pytest.mark.parametrize("call", CALLS)
def test_values_are_the_cpus(call: Callable[[Tensor], object]) -> None:
    data = torch.randn(4, 5)
    expected = call(data)
    result = on_cpu(call(data.to("sim")))
    torch.testing.assert_close(
        result, list(expected) if isinstance(expected, tuple) else expected, rtol=0, atol=0
    )


def test_results_keep_strides_conj_and_dtype() -> None:
    data = torch.randn(3, 4, 5)
    expected, result = data.mT.cumsum(0), data.to("sim").mT.cumsum(0)
    assert (result.stride(), result.dtype) == (expected.stride(), expected.dtype)
    # This operator leaves its result lazily conjugated.
    matrix = torch.randn(3, 3, dtype=torch.complex64)
    factors, pivots = torch.linalg.lu_factor(matrix)
    solved = torch.linalg.lu_solve(factors, pivots, matrix, left=False)
    device_solved = torch.linalg.lu_solve(
        factors.to("sim"), pivots.to("sim"), matrix.to("sim"), left=False
    )
    assert device_solved.is_conj() == solved.is_conj()
    assert torch.equal(device_solved.cpu(), solved.resolve_conj())


def test_a_lazy_conjugate_is_seen_as_one() -> None:
    data = torch.randn(4, 4, dtype=torch.complex64)
    assert torch.equal(data.to("sim").mT.conj().cumsum(0).cpu(), data.mT.conj().cumsum(0))
    assert torch.equal(
        torch.vdot(data.to("sim")[0].conj(), data.to("sim")[1]).cpu(),
        torch.vdot(data[0].conj(), data[1]),
    )


def test_numbers_do_not_promote() -> None:
    halves = torch.ones(3, dtype=torch.float16, device="sim")
    assert torch.float_power(halves, 2).dtype == torch.float64
    assert torch.hypot(halves, halves).dtype == torch.float16
    assert torch.special.xlogy(2.5, halves).dtype == torch.float16
    assert torch.logaddexp(halves.float(), torch.tensor(1.0).double()).dtype == torch.float32


# ---- aliasing and writing ----


def test_aliases_stay_aliases() -> None:
    data = torch.arange(8.0, device="sim")
    even, odd = data[::2], data[1::2]
    torch._foreach_cosh_([even, odd])
    torch.testing.assert_close(data.cpu(), torch.arange(8.0).cosh())
    window = data.unfold(0, 4, 2)
    assert window.untyped_storage().data_ptr() == data.untyped_storage().data_ptr()
    interleaved = torch.view_as_complex(data.view(4, 2))
    interleaved.real.fill_(-1)
    assert data[::2].tolist() == [-1] * 4
    same = torch.arange(3.0, device="sim")
    assert same.hypot_(same) is same
    torch.testing.assert_close(same.cpu(), torch.arange(3.0) * 2**0.5)


def test_in_place_returns_the_very_tensor() -> None:
    tensor = torch.rand(3, 4, device="sim")
    expected = tensor.cpu().t().cumsum_(0)
    view = tensor.t()
    assert view.cumsum_(0) is view
    torch.testing.assert_close(tensor.cpu().t(), expected)
    assert tensor.cumprod_(0)._version == view._version > 0


def test_out_is_resized_and_returned() -> None:
    data = torch.rand(3, 4, device="sim")
    out = torch.empty(0, device="sim")
    assert torch.cumsum(data, 1, out=out) is out
    assert torch.equal(out.cpu(), data.cpu().cumsum(1))
    assert out.untyped_storage().nbytes() == 48
    values, indices = torch.empty(0, device="sim"), torch.empty(0, dtype=torch.long, device="sim")
    result = torch.sort(data, out=(values, indices))
    assert result[0] is values
    assert result[1] is indices
    assert torch.equal(values.cpu(), data.cpu().sort().values)
    with pytest.warns(UserWarning, match="was resized"):
        torch.cumsum(data, 0, out=torch.empty(1, device="sim"))


def test_out_may_be_a_strided_view() -> None:
    data = torch.rand(3, 4, device="sim")
    base = torch.zeros(4, 6, device="sim")
    torch.cumsum(data, 1, out=base[:, :3].t())
    assert torch.equal(base[:, :3].t().cpu(), data.cpu().cumsum(1))
    assert base[:, 3:].abs().sum().item() == 0


def test_a_growing_out_keeps_the_rest_of_its_storage() -> None:
    base = torch.arange(600_000.0, device="sim")  # more than is ever copied whole
    out = base[:0]
    data = torch.rand(700_000, device="sim")
    torch.cumsum(data, 0, out=out)
    assert torch.equal(out.cpu(), data.cpu().cumsum(0))
    assert base.untyped_storage().nbytes() == out.untyped_storage().nbytes() == 2_800_000
    out = base[100:102]
    torch.cumsum(torch.ones(2, device="sim"), 0, out=out)
    expected = data.cpu().cumsum(0)[:600_000]
    expected[100:102] = torch.tensor([1.0, 2.0])
    assert torch.equal(base.cpu(), expected)


def structured_with_out() -> list[OpInfo]:
    """One entry of PyTorch's database for each structured operator that takes `out`."""
    structured = {
        group.functional.partition(".")[0]
        for group in read_catalogue().groups
        if group.structured and group.functional is not None
    }
    entries = {
        info.aten_name: info
        for info in op_db
        if info.aten_name in structured
        and info.supports_out
        and info.supports_dtype(torch.float32, "cpu")
    }
    return list(entries.values())


def tensors_of(value: object) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)  # type: ignore[call-overload]


@pytest.mark.filterwarnings("ignore")  # PyTorch's own samples call what it deprecates
def test_what_out_held_does_not_matter() -> None:
    """Without a window, these outputs are not fetched: so each element must be written, and none read."""
    failed = []
    infos = structured_with_out()
    for info in infos:
        for sample in itertools.islice(info.sample_inputs("cpu", torch.float32), 8):
            expected = info.op(sample.input, *sample.args, **sample.kwargs)
            outs = [torch.full_like(tensor, 77).to("sim") for tensor in tensors_of(expected)]
            moved = sample.transform(lambda x: x.to("sim") if isinstance(x, Tensor) else x)
            out = outs[0] if isinstance(expected, Tensor) else tuple(outs)
            info.op(moved.input, *moved.args, **moved.kwargs, out=out)
            for want, got in zip(tensors_of(expected), outs, strict=True):
                if not torch.allclose(want, got.cpu(), rtol=1e-4, atol=1e-5, equal_nan=True):
                    failed.append(f"{info.name}{tuple(sample.input.shape)}")
    assert failed == []
    assert len(infos) > 100


def test_out_leaves_its_neighbours_alone() -> None:
    base = torch.arange(12.0, device="sim")
    torch.hypot(
        torch.full((4,), 3.0, device="sim"), torch.full((4,), 4.0, device="sim"), out=base[4:8]
    )
    assert base.tolist() == [0, 1, 2, 3, 5, 5, 5, 5, 8, 9, 10, 11]
    column = base.view(3, 4)[:, 1]  # has gaps
    torch.cumsum(torch.ones(3, device="sim"), 0, out=column)
    assert base.tolist() == [0, 1, 2, 3, 5, 2, 5, 5, 8, 3, 10, 11]
    # A result that is larger than `out` gives it more of its storage.
    with pytest.warns(UserWarning, match="was resized"):
        torch.cumsum(torch.ones(3, device="sim"), 0, out=base[1:2])
    assert base.tolist() == [0, 1, 2, 3, 5, 2, 5, 5, 8, 3, 10, 11]


def test_out_may_be_an_operand() -> None:
    data = torch.rand(4, 6)
    tensor = data.to("sim")
    torch.hypot(tensor, tensor, out=tensor)
    torch.testing.assert_close(tensor.cpu(), torch.hypot(data, data), rtol=0, atol=0)
    other = data.to("sim")
    torch.hypot(other.view(4, 6), other, out=other.view(4, 6))
    torch.testing.assert_close(other.cpu(), torch.hypot(data, data), rtol=0, atol=0)


def test_only_what_is_needed_is_moved() -> None:
    x, y, z = (torch.rand(50_000, device="sim") for _ in range(3))
    size = x.nbytes

    def moved(call: Callable[[], object]) -> int:
        with opsmith.count_fallbacks(callers=False) as counted:
            call()
        return counted.fallbacks.bytes_moved

    figures = [
        moved(lambda: torch.hypot(x, y)),
        moved(lambda: torch.hypot(x, y, out=z)),
        moved(lambda: x.hypot_(y)),
        moved(lambda: torch.hypot(x, x)),
        moved(lambda: torch.hypot(x[:1000], y[:1000], out=z[:1000])),
        moved(lambda: torch.hypot(x[::2], y[::2], out=z[::2])),
    ]
    if LOADED.built.host_window:
        assert figures == [0] * 6
    else:
        # Of an output with gaps, what lies in them comes to the host, and once more to be merged.
        spans = 5 * (size - 4)
        assert figures == [3 * size, 3 * size, 3 * size, 2 * size, 3 * 4000, spans]


def test_memory_for_copies_is_given_back_and_taken_again() -> None:
    data = torch.rand(100_000)
    tensor = data.to("sim")
    kept = torch.fft.rfft(tensor)
    for _ in range(3):
        assert torch.equal(tensor.cumsum(0).cpu(), data.cumsum(0))
        torch.sim.empty_cache()
    assert torch.equal(kept.cpu(), torch.fft.rfft(data))


def test_batch_norm_updates_its_running_statistics() -> None:
    layer, device_layer = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3).to("sim")
    for _ in range(3):
        data = torch.randn(4, 3, 5, 5) * 2 + 1
        torch.testing.assert_close(device_layer(data.to("sim")).cpu(), layer(data))
    torch.testing.assert_close(device_layer.running_mean.cpu(), layer.running_mean)
    torch.testing.assert_close(device_layer.running_var.cpu(), layer.running_var)
    assert device_layer.num_batches_tracked.item() == 3
    assert layer.running_mean.abs().min() > 0.1  # they did move
    evaluated = device_layer.eval()(torch.ones(1, 3, 2, 2, device="sim"))
    torch.testing.assert_close(evaluated.cpu(), layer.eval()(torch.ones(1, 3, 2, 2)))


def test_batch_norm_update_stats_writes_unmarked_arguments() -> None:
    data = torch.randn(6, 2)
    mean, variance = torch.zeros(2), torch.ones(2)
    device_mean, device_variance = mean.to("sim"), variance.to("sim")
    torch.batch_norm_update_stats(data, mean, variance, 0.5)
    torch.batch_norm_update_stats(data.to("sim"), device_mean, device_variance, 0.5)
    torch.testing.assert_close(device_mean.cpu(), mean)
    torch.testing.assert_close(device_variance.cpu(), variance)


def test_optimisers_step_through_lists_of_tensors() -> None:
    torch.manual_seed(0)
    model, device_model = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    device_model.load_state_dict(model.state_dict())
    device_model.to("sim")
    data = torch.randn(8, 5)
    optimisers = [torch.optim.Adam(m.parameters(), foreach=True) for m in (model, device_model)]
    for _ in range(3):
        for each, where, optimiser in zip(
            (model, device_model), ("cpu", "sim"), optimisers, strict=True
        ):
            optimiser.zero_grad()
            each(data.to(where)).square().mean().backward()
            optimiser.step()
    torch.testing.assert_close(device_model.weight.cpu(), model.weight)
    many = [torch.zeros(2, device="sim") for _ in range(100)]
    torch._foreach_add_(many, [torch.full((2,), float(i), device="sim") for i in range(100)])
    assert [tensor[1].item() for tensor in many] == list(range(100))


# ---- autograd ----


def test_backward_through_fallbacks() -> None:
    data = torch.rand(4, 5, dtype=torch.float64) + 0.1

    def loss(x: Tensor) -> Tensor:
        ordered = x.cumsum(0).sort(dim=1).values.logcumsumexp(1)
        return (ordered.unfold(1, 2, 1).std(dim=2) + x[torch.tensor([0, 3, 3, 1]), 1:]).norm()

    leaf, device_leaf = data.clone().requires_grad_(), data.to("sim").requires_grad_()
    expected, result = loss(leaf), loss(device_leaf)
    torch.testing.assert_close(result.cpu(), expected)
    expected.backward()
    result.backward()
    assert device_leaf.grad is not None
    assert device_leaf.grad.device == device_leaf.device
    torch.testing.assert_close(device_leaf.grad.cpu(), leaf.grad)
    assert torch.autograd.gradcheck(
        lambda x: x.cumprod(0).logsumexp(1),
        torch.rand(3, 2, device="sim").double().requires_grad_(),
    )


def test_the_state_of_the_thread_is_restored() -> None:
    tensor = torch.rand(3, device="sim", requires_grad=True)
    with pytest.raises(IndexError):
        tensor.cumsum(5)
    host = torch.ones(2, requires_grad=True)
    (host * 2).sum().backward()  # autograd is on, and CPU results are in the host's memory
    assert host.grad is not None
    assert tensor.cumsum(0).requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.linalg.multi_dot([torch.ones(2, 2)] * 3).dtype == torch.bfloat16
        assert tensor.cumsum(0).dtype == torch.float32


# ---- random numbers ----


def test_random_numbers_come_from_the_devices_generator() -> None:
    cpu_state = torch.get_rng_state()
    torch.sim.manual_seed(7)
    first = torch.randn(5, device="sim")
    torch.sim.manual_seed(7)
    assert torch.equal(torch.randn(5, device="sim").cpu(), first.cpu())
    assert torch.equal(torch.randn(5, generator=torch.Generator().manual_seed(7)), first.cpu())
    assert torch.equal(torch.get_rng_state(), cpu_state)


def test_a_generator_of_the_cpus_numbers_has_no_offset() -> None:
    assert refusal(NotImplementedError, lambda: torch.Generator(device="sim").get_offset()) == (
        "the generator of sim:0 has no offset, because it draws the CPU's numbers (`rng: cpu`); "
        "use get_state() and set_state()"
    )
    assert refusal(NotImplementedError, lambda: torch.sim.random.take_philox_numbers(4)) == (
        "a kernel of sim draws Philox numbers, and the backend's description asks for the CPU's "
        "(`rng: cpu`). Remove that, or say `rng: philox` of the kernel in its manifest: then the operator "
        "is left to the CPU"
    )


def test_a_generator_is_an_argument() -> None:
    generator = torch.Generator(device="sim").manual_seed(1)
    weights = torch.ones(10, device="sim")
    drawn = [torch.multinomial(weights, 4, generator=generator).tolist() for _ in range(2)]
    assert drawn[0] != drawn[1]
    generator.manual_seed(1)
    assert torch.multinomial(weights, 4, generator=generator).tolist() == drawn[0]
    assert torch.randperm(6, device="sim", generator=generator).sort().values.tolist() == [
        *range(6)
    ]
    assert refusal(RuntimeError, lambda: weights.exponential_(generator=torch.Generator())) == (
        "Expected a 'sim' device type for generator but found 'cpu'. Make one with "
        'torch.Generator(device="sim").'
    )


def test_each_device_has_its_generator() -> None:
    torch.manual_seed(5)
    zero, one = torch.rand(3, device="sim:0"), torch.rand(3, device="sim:1")
    assert torch.equal(zero.cpu(), one.cpu())  # torch.manual_seed seeds both alike
    torch.rand(1, device="sim:0")
    assert not torch.equal(torch.rand(3, device="sim:0").cpu(), torch.rand(3, device="sim:1").cpu())


# ---- devices ----


def test_factories_make_tensors_on_the_device_asked_for() -> None:
    assert torch.tril_indices(3, 3, device="sim:1").device == torch.device("sim:1")
    assert torch.hann_window(4, device="sim").device == torch.device("sim:0")
    with torch.sim.device(1):
        assert torch.randperm(4, device="sim").device == torch.device("sim:1")
    assert torch.rand(2, device="sim:1").cumsum(0).device == torch.device("sim:1")


def test_tensors_must_be_on_one_device() -> None:
    here, there = torch.ones(2, 3, device="sim"), torch.ones(2, 3, device="sim:1")
    host = torch.ones(2, 3)
    assert refusal(RuntimeError, torch.searchsorted, here, there) == (
        "Expected all tensors to be on the same device, but found at least two devices, sim:0 and "
        "sim:1! (aten::searchsorted.Tensor was called with sorted_sequence float32[2, 3] on sim:0, "
        'self float32[2, 3] on sim:1; move them to one device, say with .to("sim:0"))'
    )
    assert refusal(RuntimeError, torch.searchsorted, here, host) == (
        "Expected all tensors to be on the same device, but found at least two devices, sim:0 and "
        "cpu! (aten::searchsorted.Tensor was called with sorted_sequence float32[2, 3] on sim:0, "
        'self float32[2, 3] on cpu; move them to one device, say with .to("sim:0"))'
    )
    assert refusal(RuntimeError, host.cross, here, dim=1).startswith(
        "Expected all tensors to be on the same device, but found at least two devices, cpu and "
        "sim:0! (aten::linalg_cross was called with self float32[2, 3] on cpu, "
    )
    with pytest.raises(RuntimeError, match="found at least two devices, sim:0 and cpu"):
        torch.cumsum(here, 0, out=host)
    with pytest.raises(RuntimeError, match="found at least two devices"):
        torch.tensor(1.0).hypot_(here[0, 0])  # a CPU scalar may be read, not written
    assert torch.hypot(here, torch.tensor(1.0)).shape == (2, 3)


# ---- refusals ----


def test_without_a_cpu_kernel() -> None:
    image = torch.ones(1, 1, 2, 2, device="sim")
    assert refusal(NotImplementedError, torch.ops.aten.cudnn_grid_sampler, image, image) == (
        "aten::cudnn_grid_sampler is not available on sim: the description names no kernel for "
        "it, and it cannot fall back because there is no CPU kernel either. Add a kernel for it to "
        "one of the backend's libraries:\n"
        "  - op: cudnn_grid_sampler\n"
        "    kernel_name: sim::cudnn_grid_sampler"
    )


def test_a_dtype_that_the_cpu_kernel_lacks() -> None:
    with pytest.raises(NotImplementedError) as error:
        torch.linalg.qr(torch.ones(2, 2, device="sim", dtype=torch.float16))
    assert re.fullmatch(
        r""".*not implemented for 'Half' \(aten::linalg_qr\S* ran on the CPU because sim has no """
        r"""kernel for it\)""",
        str(error.value),
    )


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_what_the_cpu_changed_before_it_raised_is_changed(kept: int) -> None:
    def shape_of_out(device: str) -> tuple[torch.Size, Tensor]:
        out = torch.arange(2.0, device=device)[kept:]
        with pytest.raises(NotImplementedError, match="not implemented for 'Float'"):
            torch.bitwise_and(*[torch.ones(3, 2, device=device)] * 2, out=out)
        return out.shape, out.cpu().flatten()[: 2 - kept]

    ours, theirs = shape_of_out("sim"), shape_of_out("cpu")
    assert ours[0] == theirs[0] == (3, 2)
    assert torch.equal(ours[1], theirs[1])


# ---- threads ----


def test_threads_share_tensors() -> None:
    shared = torch.rand(200, 200, device="sim")
    expected = shared.cpu().cumsum(0)
    rows = torch.zeros(8, 100, device="sim")

    def work(row: int) -> bool:
        for _ in range(50):
            if not torch.equal(shared.cumsum(0).cpu(), expected):
                return False
            rows[row].cumsum_(0)
            rows[row].index_add_(
                0, torch.zeros(1, dtype=torch.long, device="sim"), rows.new_ones(1)
            )
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert rows[:, 0].tolist() == [50] * 8
    assert torch.equal(rows[0].cpu(), rows[7].cpu())
