"""The OpenCL device: values and gradients as on the CPU, training, and mistakes that only it sees."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

import needs
import opsmith

pytestmark = pytest.mark.isolated

needs.require("OpenCL")

opsmith.load("opencl")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from opsmith.cli.demonstration.training import digits, network  # noqa: E402
from opsmith.runtime.records.fallbacks import fallbacks  # noqa: E402

torch.manual_seed(0)
X = torch.randn(6, 10)
IMAGE = torch.randn(4, 6, 9, 8)
CHANNELS = torch.rand(6) + 0.5
LABELS = torch.tensor([1, 0, 2, 1, 9, 3])

Case = tuple[Callable[..., Tensor], tuple[Tensor, ...]]
DIFFERENTIABLE: dict[str, Case] = {
    "add, broadcast and transposed": (lambda x: x.t() + 2 * x[0, :6], (X,)),
    "softmax": (lambda x: F.softmax(x, 0), (X,)),
    "log softmax": (lambda x: F.log_softmax(x, 1), (X,)),
    "cross entropy": (lambda x: F.cross_entropy(x, LABELS.to(x.device)), (X,)),
    "weighted loss": (
        lambda x, w: F.nll_loss(x, LABELS.to(x.device), w.detach(), reduction="sum"),
        (X, torch.rand(10)),
    ),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (10,), w, b), (X, X[0], X[1])),
    "group norm": (lambda x, w, b: F.group_norm(x, 3, w, b), (IMAGE, CHANNELS, CHANNELS)),
    "group norm, channels-last": (
        lambda x: F.group_norm(x.contiguous(memory_format=torch.channels_last), 2),
        (IMAGE,),
    ),
    "layer norm, plain": (lambda x: F.layer_norm(x, (6, 10)), (X,)),
    "batch norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        (IMAGE, CHANNELS, CHANNELS),
    ),
    "batch norm in evaluation": (
        lambda x, w: F.batch_norm(x, w.detach(), w.detach(), w, None),
        (IMAGE, CHANNELS),
    ),
    "convolution": (
        lambda x, w, b: F.conv2d(x, w, b, 2, 1),
        (IMAGE, torch.randn(5, 6, 3, 3), X[0, :5]),
    ),
    "grouped convolution": (
        lambda x, w: F.conv2d(x, w, groups=3, dilation=2),
        (IMAGE, torch.randn(6, 2, 2, 3)),
    ),
    "pointwise convolution": (lambda x, w: F.conv2d(x, w), (IMAGE, torch.randn(7, 6, 1, 1))),
    "convolution of a line": (
        lambda x, w: F.conv1d(x, w, padding=1),
        (IMAGE[0], torch.randn(3, 9, 3)),
    ),
    "convolution of a volume": (
        lambda x, w: F.conv3d(x, w),
        (IMAGE[:, :, None], torch.randn(2, 6, 1, 2, 2)),
    ),
    "transposed convolution": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, output_padding=1),
        (IMAGE, torch.randn(6, 4, 3, 3), X[0, :4]),
    ),
    "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE,)),
    "max pool of windows apart": (lambda x: F.max_pool2d(x, 2, padding=1), (IMAGE,)),
    "average pool": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (IMAGE,)),
    "adaptive pool": (lambda x: F.adaptive_avg_pool2d(x, (4, 3)), (IMAGE,)),
    "products": (
        lambda x, y: torch.baddbmm(y, x[None], x.t()[None], alpha=0.5),
        (X, torch.randn(1, 6, 6)),
    ),
    "a product beyond a tile": (lambda x, y: x @ y, (torch.randn(70, 130), torch.randn(130, 67))),
    "embedding": (lambda w: F.embedding(LABELS.to(w.device) % 6, w, padding_idx=3), (X,)),
    "gather": (lambda x: x.gather(1, LABELS.to(x.device)[:, None].expand(6, 3)), (X,)),
    "scatter_add": (
        lambda x, y: x.scatter_add(0, (LABELS % 6).to(x.device)[:, None], y),
        (X, X[:, :1]),
    ),
    "several indices": (lambda x: x[[1, 2, -1], [0, 3, 3]], (X,)),
    "cat": (lambda x: torch.cat([x[:, 1:], x[:, :1], torch.empty(0, device=x.device)], 1), (X,)),
    "variance": (lambda x: torch.stack(torch.var_mean(x, 1)), (X,)),
    "extrema": (lambda x: x.max(1).values + x.amin(1), (X,)),
    "norm": (lambda x: x.norm() + x.norm(1, dim=0).sum(), (X,)),
    "many elements to one": (lambda x: x.sum() + x.mean(), (torch.rand(70_000),)),
    "activations": (
        lambda x: (
            F.gelu(x)
            + F.gelu(x, approximate="tanh")
            + F.silu(x)
            + F.leaky_relu(x)
            + F.elu(x)
            + F.softplus(x)
            + F.hardsigmoid(x)
            + F.hardtanh(x)
            + torch.sigmoid(x)
            + torch.tanh(x)
            + F.relu(x)
        ),
        (X,),
    ),
    "optimiser's arithmetic": (lambda x, y: torch.addcdiv(x, y, x.exp()).lerp(y, 0.3), (X, X + 1)),
}


def test_the_places_of_a_max_pool_are_the_cpus() -> None:
    """Also of windows that dilation takes beyond both edges of a plane."""
    for x, window in (
        (IMAGE, {"kernel_size": 3, "stride": 2, "padding": 1}),
        (torch.randn(1, 2, 9, 1), {"kernel_size": (4, 2), "padding": (0, 1), "dilation": (1, 2)}),
        (torch.full((1, 1, 4, 4), -float("inf")), {"kernel_size": 2}),
    ):
        values, places = F.max_pool2d(x.to("opencl"), return_indices=True, **window)
        expected, expected_places = F.max_pool2d(x, return_indices=True, **window)
        assert torch.equal(values.cpu(), expected)
        assert torch.equal(places.cpu(), expected_places)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_values_and_gradients_are_the_cpus(name: str) -> None:
    function, operands = DIFFERENTIABLE[name]
    found = []
    for device in ("cpu", "opencl"):
        given = [each.detach().to(device).requires_grad_() for each in operands]
        result = function(*given)
        generator = torch.Generator().manual_seed(1)
        result.backward(torch.randn(result.shape, generator=generator).to(device))
        found.append([result, *(each.grad for each in given)])
    for ours, theirs in zip(found[1], found[0], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4)


# Autograd makes what it hands to group norm's gradient contiguous, but for the CPU.
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (_, operands) in DIFFERENTIABLE.items()
        if operands[0] is IMAGE and not name.startswith("group norm")
    ],
)
def test_channels_last_images_give_channels_last_results(name: str) -> None:
    function, (image, *others) = DIFFERENTIABLE[name]
    found = {}
    for device in ("cpu", "opencl"):
        given = image.to(device, memory_format=torch.channels_last).requires_grad_()
        result = function(given, *(each.to(device) for each in others))
        (gradient,) = torch.autograd.grad(result.sum(), given)
        found[device] = (result.stride(), gradient.stride())
        if device == "opencl":
            torch.testing.assert_close(result.cpu(), function(image, *others), rtol=1e-4, atol=1e-4)
    assert found["opencl"] == found["cpu"]


def test_dropout_keeps_channels_last() -> None:
    image = IMAGE.to("opencl", memory_format=torch.channels_last)
    dropped, kept = torch.native_dropout(image, 0.5, True)
    assert dropped.stride() == kept.stride() == image.stride()
    assert torch.equal(dropped, torch.where(kept, 2 * image, 0))


H = torch.float16
FOUND_HALF = "expected scalar type Float but found Half"
FLOAT_AND_HALF: dict[str, tuple[Callable[..., Any], str]] = {
    "mm": (lambda x: x @ x.t().to(H), FOUND_HALF),
    "bmm": (lambda x: x[None].bmm(x.t()[None].to(H)), FOUND_HALF),
    "baddbmm": (
        lambda x: torch.baddbmm(x[None, :, :6], x[None], x.t()[None].to(H)),
        FOUND_HALF,
    ),
    "convolution": (
        lambda x: F.conv2d(x[None, None], x[None, None, :2, :2].to(H)),
        r"Input type \(float\) and weight type \(c10::Half\) should be the same",
    ),
    "convolution's bias": (
        lambda x: F.conv2d(x[None, None], x[None, None, :2, :2], x[0, :1].to(H)),
        r"Input type \(float\) and bias type \(c10::Half\) should be the same",
    ),
    "weights of classes": (
        lambda x: F.nll_loss(x, LABELS.to(x.device), x[0].to(H)),
        FOUND_HALF,
    ),
    "softmax's gradient": (
        lambda x: torch.ops.aten._softmax_backward_data(x, x.to(H), 1, torch.float32),
        FOUND_HALF,
    ),
}


@pytest.mark.parametrize("name", FLOAT_AND_HALF)
def test_operands_of_two_dtypes_are_refused(name: str) -> None:
    function, message = FLOAT_AND_HALF[name]
    with pytest.raises(RuntimeError, match=message):
        function(X.to("opencl"))


def test_what_the_cpu_says_of_ranges_and_empty_vectors() -> None:
    empty = torch.empty(0, device="opencl")
    assert torch.cat([empty, empty], dim=1).shape == (0,)
    with pytest.warns(UserWarning, match="The out tensor will be resized to a tensor of shape"):
        torch.arange(3, out=torch.empty(2, device="opencl"))
    most = torch.finfo(torch.float32).max
    with pytest.raises(RuntimeError, match="uniform_ expects to-from <= "):
        empty.uniform_(-most, most)


NUMBERS = torch.tensor([-3.5, -1.0, -0.0, 0.0, 0.5, 1.5, 2.0, 300.0])
VALUES: dict[str, Callable[[Tensor], Any]] = {
    "rounding": lambda x: (x.round(), x.floor(), x.trunc(), x.ceil(), x.frac()),
    "division": lambda x: (
        x // 1.5,
        x % -1.5,
        torch.fmod(x, 1.5),
        torch.div(x, 2, rounding_mode="trunc"),
    ),
    "comparisons": lambda x: (x > 0, x == 0.5, x.le(x.flip(0)), x.isnan(), x.logical_not()),
    "NaN": lambda x: (
        torch.maximum(x / x, x),
        torch.fmin(x / x, x),
        (x / x).amax(),
        (x / x).max(0),
        x.div(0).clamp(-1, 1),
    ),
    "limits that are NaN": lambda x: (
        x.clamp(min=float("nan")),
        x.clamp(max=float("nan")),
        x.clamp(0, float("nan")),
        F.hardtanh(x, float("nan"), 1.0),
        x.long().clamp(-1, 2),
    ),
    "conversions": lambda x: (x.half(), x.bfloat16().double(), x.long(), x.bool(), x.abs().byte()),
    "half": lambda x: (x.half() * x.half(), torch.add(x.half(), x.half(), out=x.new_empty(8))),
    "complex results of real numbers": lambda x: (
        torch.erf(x, out=x.new_empty(0, dtype=torch.complex64)),
        torch.add(x.half(), 1, out=x.new_empty(0, dtype=torch.complex32)),
        torch.sum(x.long(), 0, out=x.new_empty(0, dtype=torch.complex128)),
        torch.cumsum(x, 0, out=x.new_empty(0, dtype=torch.complex64)),
    ),
    "a range that whole numbers count": lambda x: torch.arange(
        0.0, -8.5, -4.0, dtype=torch.int64, device=x.device
    ),
    "the variance of nothing": lambda x: torch.var_mean(x.new_empty(0, 3), 0, correction=-1),
    "unsigned results of integers": lambda x: (
        torch.mul(x.long(), x.long(), out=x.new_empty(0, dtype=torch.uint16)),
        torch.gt(x, 0, out=x.new_empty(0, dtype=torch.uint64)),
    ),
    "integers": lambda x: (
        x.long() + 1,
        x.int() * 2 - x.int(),
        ~x.long(),
        x.long() & 1,
        x.long().sum(),
    ),
    "a range of steps that int32 has none of": lambda x: torch.arange(
        0, 4, 0.5, dtype=torch.int32, device=x.device
    ),
    "choices by bytes": lambda x: torch.where((x > 0).byte(), x, -x),
    "choices": lambda x: (torch.where(x > 0, x, -x), x.masked_fill(x < 0, 7.0), x.clamp_min(0.25)),
    "numbers of the CPU": lambda x: (x + torch.tensor(2.0), 3 - x, torch.tensor(1.5) * x),
    "numbers that integers wrap": lambda x: (
        x.long().byte() == -1,
        x.long().char() > 200,
        torch.maximum(x.long().byte(), torch.tensor(-2)),
        x.long().byte().clamp(min=-2),
        x.bool().fill_(0.5),
        x.bool().masked_fill(x < 0, 0.5),
    ),
    "numbers that halves round": lambda x: (
        (x / 5).half() == 0.1,
        (x / 5).bfloat16() >= 0.1,
        torch.fmod(x.half(), 0.1),
        x.bfloat16().abs() ** 1.7,
        x.half() * 0.1,
        x.half() + 0.1,
    ),
    "triangles": lambda x: (x.view(2, 4).tril(), x.view(2, 4).triu(1), x.cumsum(0)),
    "positions": lambda x: (
        x.argmax(),
        x.view(2, 4).argmin(1),
        x.view(2, 4).min(0).indices,
        x.any(),
        x.all(),
    ),
    "ranges": lambda x: torch.arange(-3, 17, 2.5, device=x.device),
    "nothing": lambda x: (x[:0].sum(), x[:0] + 1, x[:0].var(), x.view(2, 4)[:, :0].sum(1)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_the_cpus(name: str) -> None:
    ours, theirs = VALUES[name](NUMBERS.to("opencl")), VALUES[name](NUMBERS)
    for mine, other in zip(_tensors(ours), _tensors(theirs), strict=True):
        assert mine.device.type == "opencl"
        torch.testing.assert_close(mine.cpu(), other, equal_nan=True)


def _tensors(results: Any) -> list[Tensor]:
    if isinstance(results, Tensor):
        return [results]
    return [each for result in results for each in _tensors(result)]


def test_the_demos_network_trains_as_on_the_cpu_without_the_cpu() -> None:
    images, labels = digits()
    model = network()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # the device draws other numbers than the CPU
    losses = []
    for device in ("cpu", "opencl"):
        trained = copy.deepcopy(model).to(device)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
        before = fallbacks()
        for step in range(3):
            batch = slice(64 * step, 64 * step + 64)
            loss = F.cross_entropy(trained(images[batch].to(device)), labels[batch].to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        assert fallbacks(since=before).calls == 0
    assert losses[3:] == pytest.approx(losses[:3], rel=1e-4)


def test_random_numbers_follow_the_generator() -> None:
    torch.manual_seed(7)
    first = torch.rand(100_000, device="opencl")
    normal = torch.randn(100_000, device="opencl")
    torch.manual_seed(7)
    assert torch.equal(torch.rand(100_000, device="opencl"), first)
    assert first.min().item() >= 0 and first.max().item() < 1
    assert first.mean().item() == pytest.approx(0.5, abs=0.01)
    assert normal.std().item() == pytest.approx(1, abs=0.01)
    halves = torch.rand(100_000, device="opencl", dtype=torch.half)
    assert halves.max().item() < 1
    assert torch.rand(1000, device="opencl", dtype=torch.double).unique().numel() == 1000
    kept = F.dropout(torch.ones(10_000, device="opencl"), 0.25)
    assert kept.unique().cpu().tolist() == pytest.approx([0, 1 / 0.75])
    assert (kept != 0).float().mean().item() == pytest.approx(0.75, abs=0.02)


def test_random_numbers_are_those_of_other_devices() -> None:
    # Random123's known answer for a counter and a key of zeros: what sim draws too.
    known = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    generator = torch.Generator("opencl")

    def drawn(draw: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float32) -> list[float]:
        generator.manual_seed(0)
        return draw(torch.empty(5, device="opencl", dtype=dtype)).tolist()

    thirds = [number / 2**32 < 0.3 for number in known]
    assert drawn(lambda x: x.uniform_(generator=generator))[:4] == [
        (number >> 8) / 2**24 for number in known
    ]
    assert drawn(lambda x: x.bernoulli_(0.3, generator=generator))[:4] == thirds
    assert drawn(lambda x: x.uniform_(generator=generator), torch.float64)[:2] == [
        ((high << 32 | low) >> 11) / 2**53 for high, low in (known[:2], known[2:])
    ]
    length = math.sqrt(-2 * math.log(((known[0] >> 1) * 2 + 1) / 2**32))
    turn = math.tau * known[1] / 2**32
    normal = [length * math.cos(turn), length * math.sin(turn)]
    assert drawn(lambda x: x.normal_(generator=generator))[:2] == pytest.approx(normal, abs=1e-5)
    assert generator.get_offset() == 8
    assert min(drawn(lambda x: x.exponential_(generator=generator))) > 0
    # Rounding does not reach the end that does not belong to the range.
    assert torch.empty(100_000, device="opencl").half().uniform_(-100, -99).max().item() < -99


@pytest.mark.parametrize(
    "use, text",
    [
        (
            lambda x: F.embedding(torch.tensor([9], device="opencl"), x),
            "an index that is out of range",
        ),
        (lambda x: x[torch.tensor([-7], device="opencl")], "an index that is out of range"),
        (lambda x: F.nll_loss(x, LABELS.to("opencl") + 5), "a target that is none of the classes"),
    ],
)
def test_a_mistake_that_only_a_kernel_sees_is_raised_by_the_next_call_that_waits(
    use: Callable[[Tensor], Tensor], text: str
) -> None:
    x = X.to("opencl")
    with pytest.raises(torch.AcceleratorError) as raised:
        use(x).cpu()
        torch.accelerator.synchronize()
    assert text in str(raised.value)
    torch.testing.assert_close(x.cpu(), X)  # the device goes on


def test_copies_of_pinned_memory_are_made_in_order_and_mistakes_told_where_somebody_waits() -> None:
    pinned = torch.arange(1 << 16, dtype=torch.float32).pin_memory()
    back = torch.empty_like(pinned, pin_memory=True)
    assert pinned.is_pinned() and pinned[7:].is_pinned() and not X.is_pinned()
    x = pinned.to("opencl", non_blocking=True)
    back.copy_(x + 1, non_blocking=True)
    torch.accelerator.synchronize()
    torch.testing.assert_close(back, torch.arange(1, (1 << 16) + 1, dtype=torch.float32))

    back.copy_(x[torch.full((1 << 16,), 1 << 20, device="opencl")], non_blocking=True)
    with pytest.raises(torch.AcceleratorError, match="an index that is out of range"):
        torch.accelerator.synchronize()


WRITES_ONCE: dict[str, Callable[[Tensor], object]] = {
    "bernoulli_": lambda x: x.bernoulli_(),
    "uniform_": lambda x: x.uniform_(),
    "normal_": lambda x: x.normal_(),
    "randn, out": lambda x: torch.randn(6, 6, out=x),
    "copy_": lambda x: x.copy_(torch.ones(6, 6, device=x.device)),
    "copy_ of another dtype": lambda x: x.copy_(torch.ones(6, 6, device=x.device).int()),
    "cumsum_": lambda x: x.cumsum_(0),
    "softmax, out": lambda x: torch.softmax(torch.ones(6, 6, device=x.device), 0, out=x),
    "addmm_": lambda x: x.addmm_(
        torch.ones(6, 6, device=x.device), torch.ones(6, 6, device=x.device)
    ),
    "arange, out": lambda x: torch.arange(6, out=x[0]),
}


@pytest.mark.parametrize("name", WRITES_ONCE)
def test_elements_that_share_memory_are_not_written(name: str) -> None:
    call = WRITES_ONCE[name]
    said = []
    for device in ("cpu", "opencl"):
        x = torch.full((1,), 2.0, device=device).expand(6, 6)
        with pytest.raises(RuntimeError) as raised:
            call(x)
        said.append(str(raised.value).partition("\n")[0])
        assert torch.equal(x.cpu(), torch.full((6, 6), 2.0))
    assert said[0] == said[1]
    assert said[0].startswith(
        "unsupported operation: more than one element of the written-to tensor"
    )


def test_elements_that_share_memory_are_filled() -> None:
    x = torch.ones(6, 1, device="opencl").expand(6, 6)
    assert torch.equal(x.fill_(3).cpu(), torch.full((6, 6), 3.0))
    assert torch.equal(x[::2].zero_().cpu(), torch.zeros(3, 6))
    assert x[:, 0].tolist() == [0, 3, 0, 3, 0, 3]


def test_indices_may_be_on_the_cpu() -> None:
    x = IMAGE.to("opencl")
    rows, columns = torch.tensor([0, 3, 1]), torch.tensor([2, 0, 5])
    assert torch.equal(x[rows].cpu(), IMAGE[rows])
    assert torch.equal(x[rows, None, columns.to("opencl"), 0].cpu(), IMAGE[rows, None, columns, 0])
    assert torch.equal(x[LABELS[:4] > 0].cpu(), IMAGE[LABELS[:4] > 0])
    x[rows, columns] = 7
    assert torch.equal(x[rows, columns].cpu(), torch.full((3, 9, 8), 7.0))
    with pytest.raises(RuntimeError) as raised:
        IMAGE[rows.to("opencl")]
    assert str(raised.value) == (
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
    )


def test_what_numbers_of_a_call_have_to_be() -> None:
    x = torch.ones(2, dtype=torch.uint8, device="opencl")
    # Which of them depends on the release of torch.
    refused = (
        "cannot be converted to type uint8_t without|Clamp min value 300 is outside the represent"
    )
    with pytest.raises(RuntimeError, match=refused):
        x.clamp(min=300)
    half = torch.ones(2, dtype=torch.half, device="opencl")
    for call in (
        lambda: half.fill_(1e5),
        lambda: half.masked_fill(half > 0, -1e9),
        lambda: half.clamp(max=1e5),
        lambda: half.scatter(0, torch.tensor([0], device="opencl"), 1e5),
        lambda: F.threshold(half, 3.0, 1e5),
    ):
        with pytest.raises(RuntimeError, match="cannot be converted to type c10::Half without"):
            call()
    with pytest.raises(RuntimeError, match="cannot be converted to type float without overflow"):
        torch.add(half, half, alpha=1e300)
    # Operands become infinite instead.
    assert (half + 1e300).tolist() == torch.where(half > 2, half, 1e9).tolist() == [math.inf] * 2
    assert (half < 1e300).all() and (1e300 - half == math.inf).all()


def test_norms_refuse_weights_of_another_dtype() -> None:
    x, w = torch.ones(2, 4, 3, device="opencl"), torch.ones(4, dtype=torch.half, device="opencl")
    for call in (
        lambda: F.batch_norm(x, None, None, w, w, training=True),
        lambda: F.group_norm(x, 2, w),
        lambda: F.layer_norm(x.mT, (4,), w),
    ):
        with pytest.raises(RuntimeError, match="mixed dtype: weight, bias and statistics of an"):
            call()


def test_long_sums_keep_their_digits() -> None:
    x = torch.rand(1, 1_000_000)
    for call, error in (
        (lambda x: F.layer_norm(x, x.shape[1:]), 4e-6),
        (lambda x: F.batch_norm(x[None], None, None, training=True), 4e-6),
        (lambda x: F.softmax(x, 1) * x.shape[1], 4e-6),
        (lambda x: x.cumsum(1) / x.shape[1], 1e-7),
        (lambda x: x.var(1), 1e-7),
        (lambda x: x.norm() / x.shape[1] ** 0.5, 1e-7),
    ):
        torch.testing.assert_close(
            call(x.to("opencl")).cpu().double(), call(x.double()), rtol=0, atol=error
        )


def test_a_gradient_of_another_shape_than_the_pooled_planes() -> None:
    x = torch.ones(1, 2, 3, 3, device="opencl")
    for shape, text in (((1, 2, 7), "Expected dimensions 4"), ((1, 9, 2, 2), "is not of a result")):
        with pytest.raises(RuntimeError, match=text):
            torch.ops.aten._adaptive_avg_pool2d_backward(torch.ones(shape, device="opencl"), x)


def test_operands_of_too_many_dimensions() -> None:
    x = torch.ones((2,) * 9, device="opencl")
    with pytest.raises(
        NotImplementedError,
        match="tensors of so many dimensions that lie differently are not supported on opencl:0",
    ):
        x[torch.meshgrid([torch.arange(2, device="opencl")] * 8, indexing="ij")]


def test_more_memory_than_there_is_is_refused() -> None:
    with pytest.raises(
        torch.OutOfMemoryError, match="The driver says: 4398046511104 bytes are asked for"
    ):
        torch.empty(1 << 40, device="opencl")
    assert torch.ones(2, device="opencl").sum().item() == 2
