"""Random numbers: which ones a seed gives, how they are distributed, what a generator's state is."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

import opsmith
from opsmith.schema import torch_release
from refusal import refusal

pytestmark = pytest.mark.isolated(
    OPSMITH_TEST_BACKEND=("windowed", "copying", "seedless"), nightly=("copying",)
)

MODE = os.environ["OPSMITH_TEST_BACKEND"]
LOADED = opsmith.load(str(Path(__file__).with_name(f"{MODE}.yaml")))
DRAWS_PHILOX = MODE != "seedless"
FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
MANY = 200_000

Draw = Callable[[Tensor], Tensor]

IN_PLACE: dict[str, Draw] = {
    "uniform": lambda x: x.uniform_(-1, 3),
    "normal": lambda x: x.normal_(2, 0.5),
    "log_normal": lambda x: x.log_normal_(0, 0.25),
    "exponential": lambda x: x.exponential_(2),
    "cauchy": lambda x: x.cauchy_(),
    "geometric": lambda x: x.geometric_(0.3),
    "bernoulli": lambda x: x.bernoulli_(0.3),
    "bernoulli of each": lambda x: x.bernoulli_(torch.full_like(x, 0.3)),
    "random": lambda x: x.random_(),
    "random between": lambda x: x.random_(-5, 100),
    "random to": lambda x: x.random_(100),
}
OTHERS: dict[str, Callable[[str], Tensor]] = {
    "randperm": lambda device: torch.randperm(1000, device=device),
    "multinomial": lambda device: torch.multinomial(torch.ones(50, device=device), 20),
    "multinomial with replacement": lambda device: torch.multinomial(
        torch.ones(50, device=device), 200, replacement=True
    ),
    "native_dropout": lambda device: torch.native_dropout(
        torch.ones(300, device=device), 0.4, True
    )[0],
    "poisson": lambda device: torch.poisson(torch.full((300,), 4.0, device=device)),
    "binomial": lambda device: torch.binomial(
        torch.full((300,), 9.0, device=device), torch.full((300,), 0.4, device=device)
    ),
    "gamma": lambda device: torch._standard_gamma(torch.full((300,), 2.0, device=device)),
    "dirichlet": lambda device: torch._sample_dirichlet(torch.ones(50, 3, device=device)),
    "rrelu": lambda device: nn.functional.rrelu(
        torch.full((300,), -1.0, device=device), training=True
    ),
    "normal of means": lambda device: torch.normal(torch.arange(300.0, device=device), 2.0),
    "normal of deviations": lambda device: torch.normal(1.0, torch.ones(300, device=device)),
    "normal of both": lambda device: torch.normal(
        torch.zeros(300, 1, device=device), torch.ones(2, device=device)
    ),
    "complex": lambda device: torch.randn(300, device=device, dtype=torch.complex64),
    "randint": lambda device: torch.randint(-3, 4, (300,), device=device),
    "rand_like": lambda device: torch.rand_like(torch.empty(300, device=device)),
}


def new(*sizes: int, device: str = "sim", dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(*sizes, device=device, dtype=dtype)


# ---- the same numbers ----


@pytest.mark.parametrize("name", OTHERS)
def test_a_seed_gives_the_same_numbers_everywhere_and_others_each_time(name: str) -> None:
    draw = OTHERS[name]
    torch.manual_seed(7)
    first, second = draw("sim"), draw("sim")
    assert not torch.equal(first.cpu(), second.cpu())
    torch.manual_seed(7)
    assert torch.equal(draw("sim:1").cpu(), first.cpu())
    assert torch.equal(draw("sim:1").cpu(), second.cpu())
    torch.manual_seed(8)
    assert not torch.equal(draw("sim").cpu(), first.cpu())


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_neither_strides_nor_threads_nor_the_device_change_the_numbers(
    name: str, dtype: torch.dtype
) -> None:
    draw = IN_PLACE[name]
    if not DRAWS_PHILOX:
        pytest.skip("the CPU's kernels draw in the order of the elements in memory")
    drawn = []
    for threads, tensor in (
        (1, new(280, 471, dtype=dtype)),
        (4, new(280, 471, device="sim:1", dtype=dtype)),
        (2, new(471, 280, dtype=dtype).t()),
        (2, new(280, 942, dtype=dtype)[:, ::2]),
    ):
        torch.manual_seed(5)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            assert draw(tensor) is tensor
        finally:
            torch.set_num_threads(before)
        drawn.append(tensor.cpu())
    assert all(torch.equal(other, drawn[0]) for other in drawn[1:])


def test_uniform_numbers_are_rounded_to_halves_not_drawn_in_them() -> None:
    if not DRAWS_PHILOX:
        pytest.skip("the CPU's kernels draw")
    for dtype in (torch.float16, torch.bfloat16):
        torch.manual_seed(3)
        drawn = torch.empty(10_000, device="sim", dtype=dtype).uniform_(-100, 100).cpu()
        torch.manual_seed(3)
        exact = torch.empty(10_000, device="sim").uniform_(-100, 100).cpu()
        assert torch.equal(drawn, torch.where(exact.to(dtype) < 100, exact.to(dtype), -100))


def test_the_numbers_are_philoxs() -> None:
    if not DRAWS_PHILOX:
        pytest.skip("the CPU's kernels draw")
    # Random123's known answer for a counter and a key of zeros, and the next block's first number.
    torch.manual_seed(0)
    known = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    drawn = torch.rand(5, device="sim").tolist()
    assert drawn[:4] == [(number >> 8) / 2**24 for number in known]
    torch.manual_seed(0)
    assert (
        torch.rand(1, device="sim", dtype=torch.float64).item()
        == ((known[0] << 32 | known[1]) >> 11) / 2**53
    )
    torch.manual_seed(0)
    first_length = math.sqrt(-2 * math.log(((known[0] >> 1) * 2 + 1) / 2**32))
    turns = math.tau * known[1] / 2**32
    expected = [first_length * math.cos(turns), first_length * math.sin(turns)]
    assert torch.randn(2, device="sim").tolist() == pytest.approx(expected, abs=1e-6)


def test_a_mask_of_dropout_does_not_depend_on_the_layout() -> None:
    image = torch.ones(2, 3, 5, 7, device="sim")
    torch.manual_seed(2)
    output, mask = torch.native_dropout(image, 0.4, True)
    assert torch.equal(output.cpu(), mask.cpu() * (1 / 0.6))
    torch.manual_seed(2)
    last = image.contiguous(memory_format=torch.channels_last)
    output_last, mask_last = torch.native_dropout(last, 0.4, True)
    assert output_last.is_contiguous(memory_format=torch.channels_last)
    assert mask_last.stride() == output_last.stride()
    if DRAWS_PHILOX:
        assert torch.equal(output_last.cpu(), output.cpu())
        assert torch.equal(mask_last.cpu(), mask.cpu())


# ---- the state of a generator ----


def test_the_state_is_a_seed_and_an_offset() -> None:
    generator = torch.Generator(device="sim:1").manual_seed(-2)
    assert (generator.device, generator.initial_seed()) == (torch.device("sim:1"), 2**64 - 2)
    assert generator.get_offset() == 0
    assert generator.get_state().tolist() == [0xFE, *[0xFF] * 7, *[0] * 8]
    torch.rand(5, device="sim:1", generator=generator)
    if DRAWS_PHILOX:
        assert generator.get_offset() == 8
        torch.randn(3, device="sim:1", dtype=torch.float64, generator=generator)
        assert generator.get_offset() == 16
    offset = generator.get_offset()
    state = generator.get_state()
    assert state[8:].view(torch.int64).item() == offset
    third = torch.rand(9, device="sim:1", generator=generator).cpu()
    generator.set_offset(offset)
    assert torch.equal(torch.rand(9, device="sim:1", generator=generator).cpu(), third)
    other = torch.Generator(device="sim:0")
    other.set_state(state)
    assert torch.equal(torch.rand(9, device="sim:0", generator=other).cpu(), third)


def test_generators_are_copied_pickled_and_shared(tmp_path: Path) -> None:
    generator = torch.Generator(device="sim:1").manual_seed(3)
    torch.rand(5, device="sim:1", generator=generator)
    torch.save(generator.get_state(), tmp_path / "state.pt")
    copies = [generator.clone_state(), pickle.loads(pickle.dumps(generator))]
    saved = torch.Generator(device="sim:1")
    saved.set_state(torch.load(tmp_path / "state.pt"))
    expected = torch.rand(4, device="sim:1", generator=generator).cpu()
    for copy in (*copies, saved):
        assert copy.device == torch.device("sim:1")
        assert torch.equal(torch.rand(4, device="sim:1", generator=copy).cpu(), expected)
    shared = generator.graphsafe_get_state()
    torch.rand(4, device="sim:1", generator=shared)
    assert shared.get_offset() == generator.get_offset()
    generator.graphsafe_set_state(torch.Generator(device="sim:1").manual_seed(9))
    assert (generator.initial_seed(), shared.initial_seed()) == (9, 3)


@pytest.mark.parametrize(
    ("kind", "state", "text"),
    [
        (TypeError, torch.zeros(16), "RNG state must be a torch.ByteTensor"),
        (
            TypeError,
            torch.zeros(16, dtype=torch.uint8, device="sim"),
            "RNG state must be a torch.ByteTensor",
        ),
        (RuntimeError, torch.zeros(32, dtype=torch.uint8)[::2], "RNG state must be contiguous"),
        (
            RuntimeError,
            torch.zeros(8, dtype=torch.uint8),
            "the state of a sim generator has 16 bytes, a seed and an offset, and this one has 8: it is of "
            "a generator of another kind",
        ),
    ],
)
def test_what_is_no_state_is_refused(kind: type[Exception], state: Tensor, text: str) -> None:
    generator = torch.Generator(device="sim").manual_seed(3)
    assert refusal(kind, lambda: generator.set_state(state)) == text
    assert generator.initial_seed() == 3


def test_what_is_no_offset_is_refused() -> None:
    generator = torch.Generator(device="sim")
    text = (
        "the offset of a generator counts numbers that are made four at a time, and 6 is not a multiple "
        "of 4"
    )
    assert refusal(RuntimeError, lambda: generator.set_offset(6)) == text
    state = torch.zeros(16, dtype=torch.uint8)
    state[8] = 6
    assert refusal(RuntimeError, lambda: generator.set_state(state)) == text


def test_generators_of_other_devices_are_refused() -> None:
    text = (
        "Expected a 'sim' device type for generator but found 'cpu'. Make one with "
        'torch.Generator(device="sim").'
    )
    for draw in (Tensor.uniform_, Tensor.geometric_):
        arguments = (0.5,) if draw is Tensor.geometric_ else ()
        call = lambda: draw(new(3), *arguments, generator=torch.Generator())  # noqa: E731, B023
        assert refusal(RuntimeError, call) == text


def test_tensors_of_the_cpu_refuse_the_devices_generators() -> None:
    text = "Expected a 'cpu' device type for generator but found 'sim'. Make one with torch.Generator()."
    given = {"generator": torch.Generator(device="sim")}
    for draw in (
        lambda: torch.rand(3, **given),
        lambda: torch.randperm(3, **given),
        lambda: torch.multinomial(torch.ones(3), 2, **given),
        lambda: torch.normal(torch.zeros(3), torch.ones(3), **given),
    ):
        assert refusal(RuntimeError, draw) == text


def test_states_of_all_devices() -> None:
    torch.sim.manual_seed_all(5)
    torch.rand(3, device="sim:1")
    states = torch.sim.get_rng_state_all()
    offsets = [torch.sim._get_rng_state_offset(index) for index in range(2)]
    assert offsets[0] == 0 < offsets[1]
    drawn = [torch.rand(2, device=f"sim:{index}").cpu() for index in range(2)]
    torch.sim.set_rng_state_all(states)
    again = [torch.rand(2, device=f"sim:{index}").cpu() for index in range(2)]
    assert all(map(torch.equal, drawn, again))
    torch.sim._set_rng_state_offset(offsets[1], 1)
    assert torch.equal(torch.rand(2, device="sim:1").cpu(), drawn[1])
    with torch.random.fork_rng(device_type="sim"):
        inside = torch.rand(3, device="sim").cpu()
    assert torch.equal(torch.rand(3, device="sim").cpu(), inside)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_drops_the_same_elements_again(use_reentrant: bool) -> None:
    def layer(values: Tensor) -> Tensor:
        return nn.functional.dropout(values, 0.5) * values * torch.rand_like(values)

    gradients = []
    for function in (
        layer,
        lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=use_reentrant),
    ):
        torch.manual_seed(3)
        values = torch.ones(500, device="sim", requires_grad=True)
        function(values).sum().backward()
        gradients.append(values.grad)
    assert torch.equal(*gradients)


def test_numbers_for_a_kernel_of_ones_own() -> None:
    torch.sim.manual_seed_all(6)
    generator = torch.Generator(device="sim").manual_seed(2**64 - 1)
    take = torch.sim.random.take_philox_numbers
    assert take(5, generator) == (2**64 - 1, 0)
    assert take(4, generator=generator) == (2**64 - 1, 8)
    assert take(1) == (6, 0)
    assert (take(1), take(1, device="sim:1")) == ((6, 4), (6, 0))
    assert refusal(ValueError, lambda: take(-1)) == "cannot take -1 random numbers"


def test_threads_get_different_numbers() -> None:
    from concurrent.futures import ThreadPoolExecutor

    torch.manual_seed(4)
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: torch.rand(8, device="sim").cpu(), range(32)))
    assert torch.stack(drawn).unique().numel() > 250
    torch.manual_seed(4)
    alone = {tuple(torch.rand(8, device="sim").tolist()) for _ in range(32)}
    assert {tuple(each.tolist()) for each in drawn} == alone


# ---- the distributions ----

PHI = numpy.vectorize(lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))))
DISTRIBUTIONS: dict[str, tuple[Draw, Callable[[Any], Any]]] = {
    "uniform": (IN_PLACE["uniform"], lambda x: numpy.clip((x + 1) / 4, 0, 1)),
    "normal": (IN_PLACE["normal"], lambda x: PHI((x - 2) / 0.5)),
    "log_normal": (IN_PLACE["log_normal"], lambda x: PHI(numpy.log(x) / 0.25)),
    "exponential": (IN_PLACE["exponential"], lambda x: 1 - numpy.exp(-2 * x)),
    "cauchy": (IN_PLACE["cauchy"], lambda x: 0.5 + numpy.arctan(x) / math.pi),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", FLOATING)
def test_continuous_distributions(name: str, dtype: torch.dtype) -> None:
    draw, cumulative = DISTRIBUTIONS[name]
    torch.manual_seed(1)
    drawn = numpy.sort(draw(new(MANY, dtype=dtype)).cpu().double().numpy())
    assert not numpy.isnan(drawn).any()
    if name == "normal":
        assert numpy.isfinite(drawn).all()
    # Kolmogorov and Smirnov's distance, and what rounding to so few bits adds.
    steps = numpy.arange(1, MANY + 1) / MANY
    bound = 2 / math.sqrt(MANY) + 2 * torch.finfo(dtype).eps * (dtype.itemsize == 2)
    expected = cumulative(drawn)
    distance = max(abs(steps - expected).max(), abs(steps - 1 / MANY - expected).max())
    # A value that many share is a step of the empirical distribution.
    _, counts = numpy.unique(drawn, return_counts=True)
    assert distance < bound + counts.max() / MANY * (dtype.itemsize == 2)


def test_neighbours_are_independent() -> None:
    torch.manual_seed(1)
    for drawn in (torch.randn(MANY, device="sim"), torch.randn(MANY, device="sim").double()):
        values = drawn.cpu()
        for lag in (1, 2, 3, 4, 8, 128):
            correlation = (values[lag:] * values[:-lag]).mean().item()
            assert abs(correlation) < 5 / math.sqrt(MANY)


@pytest.mark.parametrize("dtype", FLOATING)
def test_ends_of_ranges(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    drawn = new(MANY, dtype=dtype).uniform_(0, 1)
    assert drawn.min() >= 0 and drawn.max() < 1
    narrow = new(MANY, dtype=dtype).uniform_(1, 1.5)
    # The CPU's own gives the upper end in few bits up to torch 2.11, and so does what draws by it.
    is_open = DRAWS_PHILOX or dtype.itemsize > 2 or torch_release() >= (2, 12)
    assert narrow.min() >= 1 and (narrow.max() < 1.5 or not is_open)
    if DRAWS_PHILOX:
        # The CPU's own gives the upper end in few bits.
        assert new(MANY, dtype=dtype).uniform_(-100, -99).max() < -99
    assert new(3, dtype=dtype).uniform_(2, 2).tolist() == [2, 2, 2]
    assert new(MANY, dtype=dtype).exponential_().min() > 0 or not DRAWS_PHILOX
    whole = new(MANY, dtype=dtype).random_(-3, 4)
    assert whole.unique().tolist() == [-3, -2, -1, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
)
def test_integers(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    highest = 1 if dtype is torch.bool else torch.iinfo(dtype).max
    drawn = new(MANY, dtype=dtype).random_().double()
    assert drawn.mean().item() == pytest.approx(highest / 2, rel=0.01)
    assert drawn.max() >= 0.999 * highest and drawn.min() <= 0.001 * highest
    if dtype is torch.int64:
        everything = new(MANY, dtype=dtype).random_(-(2**63), None)
        assert (everything < 0).double().mean().item() == pytest.approx(0.5, abs=0.01)
        wide = new(MANY, dtype=dtype).random_(-(2**40), 2**40).double()
        assert wide.abs().max() <= 2**40 and wide.std().item() == pytest.approx(
            2**41 / 12**0.5, rel=0.01
        )
    counts = new(MANY, dtype=dtype).random_(2).double()
    assert counts.mean().item() == pytest.approx(0.5, abs=0.01)


def test_decisions_and_trials() -> None:
    torch.manual_seed(1)
    for p in (0.0, 1.0):
        assert new(1000).bernoulli_(p).unique().tolist() == [p]
    for dtype in (*FLOATING, torch.bool, torch.int32, torch.uint8):
        drawn = new(MANY, dtype=dtype).bernoulli_(0.2).double()
        assert drawn.mean().item() == pytest.approx(0.2, abs=0.005)
    each = torch.tensor([0.0, 0.25, 1.0], device="sim")
    drawn = torch.bernoulli(each.expand(MANY, 3)).mean(0)
    assert drawn.tolist() == pytest.approx([0, 0.25, 1], abs=0.005)
    assert torch.bernoulli(each, 1.0).tolist() == [1, 1, 1]
    trials = new(MANY, dtype=torch.int64).geometric_(0.3).double()
    assert trials.min() == 1 and trials.mean().item() == pytest.approx(1 / 0.3, rel=0.01)


def test_permutations() -> None:
    torch.manual_seed(1)
    firsts = torch.stack([torch.randperm(5, device="sim") for _ in range(2000)])
    assert firsts.sort(1).values.unique(dim=0).tolist() == [[0, 1, 2, 3, 4]]
    assert firsts.double().mean(0).tolist() == pytest.approx([2] * 5, abs=0.2)
    assert torch.randperm(0, device="sim").shape == (0,)
    assert torch.randperm(9, device="sim", dtype=torch.float16).sort().values.tolist() == list(
        range(9)
    )
    out = torch.empty(20, dtype=torch.int32, device="sim")[::2]
    assert torch.randperm(10, out=out) is out
    assert out.sort().values.tolist() == list(range(10))


def test_dropout() -> None:
    torch.manual_seed(1)
    ones = torch.ones(MANY, device="sim", requires_grad=True)
    output = nn.functional.dropout(ones, 0.25)
    kept = (output != 0).double().mean().item()
    assert kept == pytest.approx(0.75, abs=0.005)
    assert output.detach().unique().tolist() == [0, pytest.approx(1 / 0.75)]
    output.sum().backward()
    assert torch.equal(ones.grad, output.detach())
    data = torch.tensor([1.0, math.nan, math.inf], device="sim")
    for p, expected in ((0.0, [1.0, math.nan, math.inf]), (1.0, [0.0, math.nan, math.nan])):
        dropped, mask = torch.native_dropout(data, p, True)
        assert dropped.tolist() == pytest.approx(expected, nan_ok=True)
        assert mask.tolist() == [p == 0] * 3
    assert torch.native_dropout(data, 0.5, False)[1].all()
    lazy_clone = torch._lazy_clone(data)
    torch.native_dropout(lazy_clone, 0.5, True)
    assert torch._C._is_cow_tensor(lazy_clone)


# ---- what PyTorch refuses ----


@pytest.mark.parametrize(
    "call",
    [
        lambda d: new(3, device=d).uniform_(3, 1),
        lambda d: new(3, device=d).normal_(0, -1),
        lambda d: new(3, device=d).bernoulli_(2),
        lambda d: torch.bernoulli(torch.full((3,), 2.0, device=d)),
        lambda d: new(3, device=d).random_(4, 2),
        lambda d: new(3, device=d, dtype=torch.int8).random_(0, 1000),
        lambda d: new(3, device=d).exponential_(-1),
        lambda d: new(3, device=d).geometric_(0),
        lambda d: new(3, device=d).cauchy_(0, -1),
        lambda d: new(3, device=d).log_normal_(0, -1),
        lambda d: new(3, device=d).expand(2, 3).normal_(),
        lambda d: torch.normal(torch.zeros(3, device=d), -torch.ones(3, device=d)),
        lambda d: torch.randperm(300, device=d, dtype=torch.uint8),
    ],
)
def test_what_pytorch_refuses_takes_no_numbers(call: Callable[[str], object]) -> None:
    offset = torch.sim.default_generators[0].get_offset()
    assert refusal(RuntimeError, lambda: call("sim")) == refusal(RuntimeError, lambda: call("cpu"))
    if DRAWS_PHILOX:
        assert torch.sim.default_generators[0].get_offset() == offset
