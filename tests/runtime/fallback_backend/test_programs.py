"""The fallback inside of what programs are made of: autograd, torch.func, torch.compile, autocast,
data loaders, processes that fork, the profiler."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loaded import DEVICE, fault
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.data import DataLoader, Dataset

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)

# ---- TorchScript ----


def doubled(x: Tensor, mask: Tensor) -> Tensor:
    x[mask] = x[mask] * 2
    return x[mask]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_masks_in_torchscript() -> None:
    script = torch.jit.script(doubled)
    x = torch.arange(6.0).view(2, 3)
    for _ in range(3):  # the executor profiles, and then specialises
        there = x.to(DEVICE)
        assert torch.equal(script(there, there > 2).cpu(), torch.tensor([6.0, 8, 10]))
        assert torch.equal(there.cpu(), torch.tensor([[0.0, 1, 2], [6, 8, 10]]))


# ---- autograd and torch.func ----


def scalar(x: Tensor) -> Tensor:
    ordered = x.cumsum(0).sort(dim=-1).values
    return (ordered.unfold(0, 2, 1).std(dim=-1).logcumsumexp(0) * ordered[1:]).sum()


def test_second_derivatives() -> None:
    data = torch.rand(4, 3, dtype=torch.float64)

    def hessian_row(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(scalar(x), x, create_graph=True)
        return torch.autograd.grad(gradient[1, 1], x)[0]

    torch.testing.assert_close(hessian_row(data.to(DEVICE)).cpu(), hessian_row(data))
    assert torch.autograd.gradgradcheck(
        lambda x: x.cumprod(0).logsumexp(1), torch.rand(3, 2).double().to(DEVICE).requires_grad_()
    )


def test_saved_tensors_notice_what_was_written() -> None:
    leaf = torch.rand(3, device=DEVICE, requires_grad=True)
    powers = leaf.cumprod(0)
    result = powers.cumprod(0)
    with torch.no_grad():
        powers.cumsum_(0)  # in-place, through the fallback
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_hooks_and_retained_gradients_are_on_the_device() -> None:
    leaf = torch.rand(3, device=DEVICE, requires_grad=True)
    middle = leaf.cumsum(0)
    middle.retain_grad()
    seen: list[Tensor] = []
    middle.register_hook(seen.append)
    middle.cosh().sum().backward()
    assert leaf.grad is not None and middle.grad is not None
    assert {t.device.type for t in (leaf.grad, middle.grad, *seen)} == {DEVICE}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    "call",
    [
        torch.func.vmap(lambda x: x.cumsum(0).sort().values),
        torch.func.vmap(lambda x: torch.histc(x, 3, 0.0, 1.0)),
        torch.func.vmap(lambda x: x.kthvalue(2).values, in_dims=1, out_dims=0),
        torch.func.grad(scalar),
        torch.func.vmap(torch.func.grad(lambda x: x.cumsum(0).logsumexp(0))),
        torch.func.jacrev(lambda x: x.cumprod(0)),
        torch.func.jacfwd(lambda x: x.cumsum(0).sinh()),
        torch.func.hessian(lambda x: x.cumsum(0).cosh().sum()),
        lambda x: torch.func.jvp(lambda y: y.cumsum(0).atan(), (x,), (x.flip(0),)),
        lambda x: torch.func.linearize(lambda y: y.cumprod(0), x)[1](x),
        torch.func.functionalize(lambda x: x.cumsum_(0).mul_(2)),
    ],
)
def test_function_transforms(call: Callable[[Tensor], Any]) -> None:
    data = torch.rand(4, 3, dtype=torch.float64)
    expected, result = call(data.clone()), call(data.to(DEVICE))
    result = [t.cpu() for t in result] if isinstance(result, tuple) else result.cpu()
    expected = list(expected) if isinstance(expected, tuple) else expected
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("mode", ["same", "different"])
def test_vmap_draws_random_numbers(mode: str) -> None:
    def draw(x: Tensor) -> Tensor:
        return x + torch.rand(5, device=x.device)

    rows = torch.func.vmap(draw, randomness=mode)(torch.zeros(2, 5, device=DEVICE))
    assert torch.equal(rows[0].cpu(), rows[1].cpu()) == (mode == "same")


# ---- torch.compile ----


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(2, 3, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.convolution(x)).cumsum(-1)
        x = x.index_put((torch.tensor([0], device=x.device),), x.new_ones(1))
        return x.sort(dim=-1).values.logcumsumexp(-1).sum(-1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_models_train_like_the_cpu(backend: str) -> None:
    torch.manual_seed(0)
    model = Model()
    compiled = Model()
    compiled.load_state_dict(model.state_dict())
    compiled.to(DEVICE)
    call = torch.compile(compiled, backend=backend, fullgraph=True)
    for _ in range(2):
        data = torch.randn(4, 2, 8)
        expected = model(data)
        result = call(data.to(DEVICE))
        torch.testing.assert_close(result.cpu(), expected)
        expected.sum().backward()
        result.sum().backward()
    for mine, other in zip(compiled.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(compiled.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


# ---- autocast ----


def test_the_cpus_autocast_does_not_leak_into_the_fallback() -> None:
    data = torch.rand(8, 8)
    tensor = data.to(DEVICE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (data @ data).dtype == torch.bfloat16
        product = tensor @ tensor
        convolved = torch.nn.functional.conv1d(tensor[None], tensor[:, :, None])
    assert (product.dtype, convolved.dtype) == (torch.float32, torch.float32)
    assert torch.equal(product.cpu(), data @ data)


def test_the_devices_autocast_casts_as_the_cpus_does() -> None:
    data, other = torch.rand(8, 8), torch.rand(3, 8, 8)

    def results(device: str) -> list[Tensor]:
        x, images = data.to(device), other.to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            product = x @ x
            return [
                product,
                torch.nn.functional.conv1d(images, images),
                torch.baddbmm(images, images, images),
                torch.nn.functional.mse_loss(product, x),
                torch.stack([product, x]),
            ]

    for mine, theirs in zip(results(DEVICE), results("cpu"), strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine.cpu(), theirs)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        halves = data.to(DEVICE).bfloat16()
        assert (
            halves.softmax(0).dtype == torch.float32
        )  # accelerators compute it so, the CPU does not
        assert halves.sum().dtype == torch.float32
        with pytest.raises(RuntimeError, match="are unsafe to autocast"):
            torch.nn.functional.binary_cross_entropy(data.to(DEVICE), data.to(DEVICE))


F32, BF16 = torch.float32, torch.bfloat16
AUTOCAST: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], torch.dtype]] = {
    "lower precision": (lambda half, full: full @ full, BF16),
    "with an optional Tensor": (lambda half, full: nn.functional.linear(full, full, full[0]), BF16),
    "without it": (lambda half, full: nn.functional.linear(full, full), BF16),
    "a list": (lambda half, full: torch.einsum("ij,jk->ik", full, full), BF16),
    "doubles stay": (lambda half, full: full.double() @ full.double(), torch.float64),
    "float32": (lambda half, full: half.exp(), F32),
    "float32, overload": (lambda half, full: half.pow(2), F32),
    "float32, no weight": (lambda half, full: nn.functional.layer_norm(half, (8,)), F32),
    "no dtype given": (lambda half, full: half.cumsum(0), F32),
    "a dtype given": (lambda half, full: half.cumsum(0, dtype=torch.bfloat16), BF16),
    "integers": (lambda half, full: half.long().sum(), torch.int64),
    "dtype appended": (lambda half, full: half.norm(2), F32),
    "widest of two": (lambda half, full: torch.addcmul(half, half, full), F32),
    "widest of equals": (lambda half, full: torch.addcmul(half, half, half), BF16),
    "bilinear": (
        lambda half, full: nn.functional.bilinear(half, half, half[None], full[0, :1]),
        BF16,
    ),
}


@pytest.mark.parametrize(("call", "dtype"), AUTOCAST.values(), ids=AUTOCAST)
def test_the_dtype_that_the_devices_autocast_computes_in(
    call: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype
) -> None:
    full = torch.rand(8, 8)
    half = full.bfloat16()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        result = call(half.to(DEVICE), full.to(DEVICE))
    assert result.dtype == dtype
    torch.testing.assert_close(result.cpu().float(), call(full, full).float(), rtol=5e-2, atol=5e-2)


def test_the_devices_autocast_does_not_leak_into_the_cpu() -> None:
    tensor = torch.rand(8, 8, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
        # Operators that the CPU kernel calls inside are not cast either.
        triangular = torch.linalg.solve_triangular(tensor.tril() + 9, tensor, upper=False)
    assert triangular.dtype == torch.float32
    expected = torch.linalg.solve_triangular(tensor.cpu().tril() + 9, tensor.cpu(), upper=False)
    assert torch.equal(triangular.cpu(), expected)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_higher_order_operators_under_the_devices_autocast() -> None:
    layer, x = nn.Linear(4, 4), torch.rand(3, 4)
    query = torch.rand(1, 2, 128, 16)

    def results(device: str) -> tuple[Tensor, Tensor]:
        here, each = copy.deepcopy(layer).to(device), query.to(device)
        with torch.autocast(device, torch.bfloat16):
            chosen = torch.cond(x.sum() > 0, here, lambda x: here(x) - 1, (x.to(device),))
            return chosen, flex_attention(each, each, each)

    for found, wanted in zip(results(DEVICE), results("cpu"), strict=True):
        torch.testing.assert_close(found.cpu(), wanted, rtol=2e-2, atol=2e-2)


def test_a_model_trains_under_autocast() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1))
    device_model = copy.deepcopy(model).to(DEVICE)
    data = torch.randn(4, 8)
    for each, device in ((model, "cpu"), (device_model, DEVICE)):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = each(data.to(device)).float().sum()
        loss.backward()
    for mine, theirs in zip(device_model.parameters(), model.parameters(), strict=True):
        assert mine.grad is not None and mine.grad.dtype == torch.float32
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": True}], ids=str)
def test_a_scaler_skips_steps_with_infinite_gradients(
    optimizer: Callable[..., torch.optim.Optimizer], options: dict[str, bool]
) -> None:
    def trained(device: str, options: dict[str, bool]) -> tuple[list[float], list[Tensor]]:
        torch.manual_seed(0)
        model = nn.Linear(8, 2).to(device)
        steps = optimizer(model.parameters(), lr=0.1, **options)
        scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=2)
        scales = []
        for step in range(5):
            steps.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16):
                output = model(torch.full((3, 8), step + 1.0, device=device))
            scaler.scale(output.float().pow(2).mean()).backward()
            assert model.weight.grad is not None
            if step == 3:
                model.weight.grad[0, 0] = torch.inf
                before = model.weight.detach().clone()
            scaler.unscale_(steps)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(steps)
            scaler.update()
            scales.append(scaler.get_scale())
            if step == 3:
                assert torch.equal(model.weight, before)
        return scales, [each.detach().cpu() for each in model.parameters()]

    scales, parameters = trained(DEVICE, options)
    assert scales == [1024, 2048, 2048, 1024, 1024]
    for mine, theirs in zip(parameters, trained("cpu", {})[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=5e-2, atol=5e-2)


def test_a_scaler_unscales_gradients_of_both_devices() -> None:
    model = nn.Sequential(nn.Linear(2, 2).to(f"{DEVICE}:0"), nn.Linear(2, 2).to(f"{DEVICE}:1"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0)
    output = model[1](model[0](torch.ones(1, 2, device=f"{DEVICE}:0")).to(f"{DEVICE}:1"))
    scaler.scale(output.sum()).backward()
    scaler.unscale_(optimizer)
    assert model[1].bias.grad.tolist() == [1, 1]
    assert torch.equal(model[0].bias.grad.cpu(), model[1].weight.sum(0).cpu())


def test_a_scaler_refuses_gradients_in_half_precision() -> None:
    model = nn.Linear(2, 2).to(DEVICE).half()
    scaler = torch.amp.GradScaler(DEVICE)
    scaler.scale(model(torch.ones(1, 2, device=DEVICE).half()).sum()).backward()
    with pytest.raises(ValueError, match="unscale FP16 gradients"):
        scaler.unscale_(torch.optim.SGD(model.parameters()))


class Product(torch.autograd.Function):
    """A matrix product that keeps autocast's state for its backward."""

    @staticmethod
    @torch.amp.custom_fwd(device_type=DEVICE)
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        return left @ right

    @staticmethod
    @torch.amp.custom_bwd(device_type=DEVICE)
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        left, right = ctx.saved_tensors
        assert torch.is_autocast_enabled(DEVICE)
        return grad @ right.t(), left.t() @ grad


class InFullPrecision(torch.autograd.Function):
    """Doubles float32, whatever autocast says."""

    @staticmethod
    @torch.amp.custom_fwd(device_type=DEVICE, cast_inputs=torch.float32)
    def forward(ctx: Any, operand: Tensor) -> Tensor:
        assert operand.dtype == torch.float32
        assert not torch.is_autocast_enabled(DEVICE)
        return operand * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type=DEVICE)
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        assert not torch.is_autocast_enabled(DEVICE)
        return grad * 2


def test_functions_of_ones_own_under_autocast() -> None:
    left = torch.randn(3, 3, device=DEVICE, requires_grad=True)
    right = torch.randn(3, 3, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, dtype=torch.float16):
        product = Product.apply(left, right)
        doubled = InFullPrecision.apply(product)
    assert (product.dtype, doubled.dtype) == (torch.float16, torch.float32)
    doubled.sum().backward()
    assert left.grad is not None
    expected = 2 * right.detach().cpu().sum(1).expand(3, 3)
    torch.testing.assert_close(left.grad.cpu(), expected, rtol=1e-2, atol=1e-2)


def test_autocast_refuses_dtypes_that_it_does_not_compute_in() -> None:
    tensor = torch.ones(2, 2, device=DEVICE)
    with (
        pytest.warns(UserWarning, match=f"In {DEVICE} autocast, but the target dtype"),
        torch.autocast(DEVICE, dtype=torch.float64),
    ):
        assert (tensor @ tensor).dtype == torch.float32
    assert torch.get_autocast_dtype(DEVICE) == torch.float16


# ---- data loaders ----


class Rows(Dataset[Tensor]):
    """Rows made in the worker, by operators on ``device``."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((3,), float(index), device=self.device).cumsum(0).cpu()


@pytest.mark.parametrize(("start", "device"), [("fork", "cpu"), ("spawn", DEVICE)])
def test_workers_of_a_data_loader(start: str, device: str) -> None:
    busy = torch.rand(50, 50, device=DEVICE)
    expected = busy.cpu().cumsum(0)
    loader = DataLoader(Rows(device), batch_size=2, num_workers=2, multiprocessing_context=start)
    batches = []
    for batch in loader:
        assert torch.equal(busy.cumsum(0).cpu(), expected)  # the parent goes on with the device
        batches.append(batch.to(DEVICE).cumsum(1))
    assert torch.cat(batches).cpu().tolist() == [[n, 3 * n, 6 * n] for n in range(6)]


# ---- fork ----

USES: dict[str, Callable[[Tensor], object]] = {
    "fallback": lambda x: x.cumsum(0),
    "in-place": lambda x: x.cumsum_(0),
    "on a list": lambda x: torch._foreach_add([x], 1),
    "cpu()": lambda x: x.cpu(),
    "item()": lambda x: x[0].item(),
    "repr()": repr,
    "copy_": lambda x: x.copy_(torch.ones(3)),
    "factory": lambda x: torch.ones(3, device=DEVICE),
    "random": lambda x: torch.rand(3, device=DEVICE),
    "backward": lambda x: x.requires_grad_().cumsum(0).sum().backward(),
    "synchronize": lambda x: torch.sim.synchronize(),
}


def in_child(work: Callable[[], object]) -> object:
    """The result of ``work`` in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(work()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        received = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return pickle.loads(received)


def test_after_fork_every_use_says_what_to_do() -> None:
    tensor = torch.ones(3, device=DEVICE)
    tensor.cumsum(0)

    def uses() -> dict[str, str]:
        said = {}
        for name, use in USES.items():
            try:
                said[name] = f"returned {use(tensor)!r}"
            except Exception as error:
                said[name] = f"{type(error).__name__}: {error}"
        return said

    text = (
        f"RuntimeError: Cannot re-initialize {DEVICE} in forked subprocess. To use {DEVICE} with "
        "multiprocessing, you must use the 'spawn' start method: "
        'torch.multiprocessing.set_start_method("spawn")'
    )
    assert in_child(uses) == dict.fromkeys(USES, text)
    assert tensor.tolist() == [1, 1, 1]


def test_a_forked_child_still_has_the_cpu() -> None:
    torch.ones(3, device=DEVICE).cumsum(0)

    # No backward: PyTorch refuses it in a child of any process that has run one on an accelerator.
    assert in_child(lambda: torch.ones(3).cumsum(0).tolist()) == [1, 2, 3]


def test_a_compiled_network_may_flatten_channels_last_images() -> None:
    def network(images: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.conv2d(images, weight, padding=1).relu().flatten(1).sum(0).square()

    compiled = torch.compile(network, backend="aot_eager")
    images = torch.linspace(-1, 1, 2 * 3 * 4 * 5).view(2, 3, 4, 5)
    images = images.contiguous(memory_format=torch.channels_last)
    weight = torch.linspace(-1, 2, 4 * 3 * 3 * 3).view(4, 3, 3, 3)
    there = weight.to(DEVICE).requires_grad_()
    result = compiled(images.to(DEVICE), there)
    result.sum().backward()
    weight.requires_grad_()
    expected = network(images, weight)
    expected.sum().backward()
    torch.testing.assert_close(result.cpu(), expected)
    assert there.grad is not None
    torch.testing.assert_close(there.grad.cpu(), weight.grad)


# ---- the profiler ----


def test_the_profiler_times_operators_on_the_device() -> None:
    values = torch.ones(64, 64, device=DEVICE, requires_grad=True)
    slow = 20_000  # microseconds for each piece of work on a stream
    with fault("slow", slow), torch.autograd.profiler.profile(use_device="sim") as profile:
        (values @ values).clone().sum().backward()
        torch.ones(2, device="sim:1").add_(1)
    times = {event.key: event.device_time_total for event in profile.key_averages()}
    assert {"aten::mm", "aten::clone", "aten::add_", "MmBackward0"} <= times.keys()
    assert min(times.values()) >= 0
    assert times["aten::clone"] >= slow
