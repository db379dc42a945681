"""The library ``onednn`` on a device, against the CPU, in what PyTorch's operator database has no samples of.

The samples are in ``kernel_suite``, which calls the library's kernels on the device and in ExecuTorch.
"""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

import needs
import opsmith
from fell_back import fell_back
from refusal import refusal

pytestmark = pytest.mark.isolated()
needs.require("oneDNN")

BACKEND = Path(__file__).with_name("backend.yaml")
LOADED = opsmith.load(str(BACKEND))
DEVICE = "dnnsim"
OPERATORS = (
    *("mm.out", "bmm.out", "addmm.out", "baddbmm.out", "linear.out"),
    *("convolution.out", "convolution_backward.out"),
)


@pytest.fixture(autouse=True)
def its_operators_do_not_fall_back() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # small ones, beside other tests
    start = opsmith.fallbacks()
    yield
    fallen = fell_back(opsmith.fallbacks(since=start))
    assert not fallen & {each.removesuffix(".out") for each in OPERATORS}


def agree(function: Callable[..., Tensor], *arguments: Tensor | None) -> None:
    there = [None if each is None else each.to(DEVICE) for each in arguments]
    torch.testing.assert_close(function(*there).cpu(), function(*arguments), rtol=1e-4, atol=1e-4)


def laid(sizes: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    """Random numbers whose dimensions lie in memory in this order."""
    places = [order.index(dim) for dim in range(len(order))]
    return torch.randn([sizes[dim] for dim in order]).permute(places)


def into_columns(add: Callable[..., Tensor], self: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The sum, in a matrix whose columns lie one after the other."""
    return add(self, a, b, out=torch.empty(b.shape[1], a.shape[0], device=a.device).t())


def convolution(given: tuple[object, ...], image: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.ops.aten.convolution(image, weight, bias, *given)


def gradient_of(
    place: int, given: tuple[object, ...], gradient: Tensor, image: Tensor, weight: Tensor
) -> Tensor:
    """The gradient of image, weight or bias."""
    mask = [each == place for each in range(3)]
    found = torch.ops.aten.convolution_backward(gradient, image, weight, [8], *given, mask)
    return found[place]


def test_the_plan_says_which_library_serves_what() -> None:
    for operator in OPERATORS:
        kernel = LOADED.plan.by_name[operator].kernel
        assert kernel is not None and kernel.library == "onednn", operator


@pytest.mark.parametrize(
    "m, k, n", [(1, 1, 1), (3, 0, 4), (0, 3, 4), (1, 5, 7), (5, 1, 7), (40, 50, 1)]
)
def test_sums_with_products(m: int, k: int, n: int) -> None:
    for order_a, order_b in itertools.product(((0, 1), (1, 0)), repeat=2):
        a, b = laid((m, k), order_a), laid((k, n), order_b)
        for size in ((n,), (m, n), (m, 1), (1, n), ()):
            for beta, alpha in ((1, 1), (2, 3), (0.5, 0), (1, 2)):
                add = partial(torch.addmm, beta=beta, alpha=alpha)
                agree(add, torch.randn(size), a, b)
                agree(partial(into_columns, add), torch.randn(size), a, b)


def test_what_beta_takes_no_part_of_may_be_nan() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    for size in ((5,), (3, 5), ()):
        agree(lambda s, a, b: torch.addmm(s, a, b, beta=0), torch.full(size, math.nan), a, b)


@pytest.mark.parametrize("batch", [1, 3])
def test_batches_in_every_order(batch: int) -> None:
    orders = tuple(itertools.permutations(range(3)))
    for order_a, order_b in itertools.product(orders, orders):
        a, b = laid((batch, 6, 7), order_a), laid((batch, 7, 8), order_b)
        agree(torch.bmm, a, b)
        agree(lambda s, a, b: torch.baddbmm(s, a, b, beta=2, alpha=0.5), torch.randn(8), a, b)
        out = laid((batch, 6, 8), order_a)
        agree(lambda s, a, b: torch.baddbmm(s, a, b, beta=0.5, out=s), out, a, b)


@pytest.mark.parametrize("dims, transposed", itertools.product((1, 2, 3), (False, True)))
def test_convolutions_and_their_gradients(dims: int, transposed: bool) -> None:
    formats = [torch.contiguous_format]
    formats += {2: [torch.channels_last], 3: [torch.channels_last_3d]}.get(dims, [])
    for groups, stride, padding, dilation, more, layout in itertools.product(
        (1, 2, 4), (1, 2), (0, 1), (1, 2), (0, 1), formats
    ):
        if more and not (transposed and more < max(stride, dilation)):
            continue
        image = torch.randn(2, 4, *(7, 6, 8)[:dims]).contiguous(memory_format=layout)
        channels = (4, 8 // groups) if transposed else (8, 4 // groups)
        weight, bias = torch.randn(*channels, *(3, 2, 3)[:dims]), torch.randn(8)
        given = [stride], [padding], [dilation], transposed, [more], groups
        agree(partial(convolution, given), image, weight, bias)
        gradient = torch.randn(convolution(given, image, weight, bias).shape)
        for place in range(3):
            agree(partial(gradient_of, place, given), gradient, image, weight)


def test_many_shapes_are_computed_with_a_bounded_number_kept() -> None:
    for size in range(1, 1100):
        a = torch.ones(1, size).to(DEVICE)
        assert torch.mm(a, a.t()).cpu().item() == size


def test_a_network_trains() -> None:
    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 4)
        )
        images, wanted = torch.randn(16, 1, 8, 8), torch.randn(16, 4)
        model, images, wanted = model.to(device), images.to(device), wanted.to(device)
        found = []
        for _ in range(5):
            model.zero_grad()
            error = model(images).cpu() - wanted.cpu()
            loss = (error * error).mean()
            loss.backward()
            for parameter in model.parameters():
                parameter.data = (parameter.cpu() - 0.05 * parameter.grad.cpu()).to(device)
            found.append(loss.item())
        return found

    assert losses(DEVICE) == pytest.approx(losses("cpu"), rel=1e-4)


def test_wrong_shapes_are_refused() -> None:
    a = torch.randn(2, 3).to(DEVICE)
    assert "mat1 and mat2 shapes cannot be multiplied" in refusal(RuntimeError, torch.mm, a, a)


def test_without_the_library_a_call_says_how_to_get_it() -> None:
    program = (
        f"import opsmith, torch; opsmith.load({str(BACKEND)!r}); torch.ones(2, 2).to('dnnsim').mm("
        "torch.ones(2, 2).to('dnnsim'))"
    )
    done = subprocess.run(
        ["env", "OPSMITH_ONEDNN_LIBRARY=/nowhere/libdnnl.so.3", sys.executable, "-c", program],
        capture_output=True,
        text=True,
    )
    assert (
        "NotImplementedError: aten::mm: its kernel `opsmith::onednn::native::mm_out` (library onednn) "
        "refuses the call: mm: oneDNN is missing (libdnnl.so.3); pip install onednn-cpu-gomp, or name a "
        "libdnnl.so.3 for OpenMP in OPSMITH_ONEDNN_LIBRARY" in done.stderr
    )
