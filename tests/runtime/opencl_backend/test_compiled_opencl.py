"""torch.compile on the OpenCL device: loops become kernels in OpenCL C, values are those of the CPU."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import needs
import opsmith

pytestmark = pytest.mark.isolated

needs.require("OpenCL")

opsmith.load("opencl")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch._inductor import metrics  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from opsmith.runtime.compile.compiled_graphs import compiled_graphs  # noqa: E402

torch.manual_seed(0)
ROWS = torch.randn(6, 40)
IMAGE = torch.randn(2, 3, 6, 7)
INTEGERS = torch.tensor([[-7, 0, 3], [2**40, -(2**63), 5]])


@pytest.fixture(autouse=True)
def nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(os.environ, "TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    metrics.reset()
    compiled_graphs.clear()
    yield
    assert [each.reason for each in compiled_graphs if each.reason] == []


def there(given: Any) -> Any:
    return torch.utils._pytree.tree_map_only(Tensor, lambda each: each.to("opencl"), given)


Case = tuple[Callable[..., Any], tuple[Any, ...], int]
# A function, its arguments, and how many kernels it is fused into.
CASES: dict[str, Case] = {
    "pointwise": (lambda x: (x * torch.sigmoid(1.5 * x) + 1).relu() - x.abs(), (ROWS,), 1),
    "broadcast": (lambda x, y: torch.where(x > y, x.exp(), y - x), (ROWS, ROWS[:, :1]), 1),
    "softmax": (lambda x: F.softmax(x, -1), (ROWS,), 1),
    "softmax of columns": (lambda x: F.log_softmax(x, 0), (ROWS,), 2),
    "layer norm": (lambda x: F.layer_norm(x, (40,)) * 2, (ROWS,), 1),
    "statistics": (lambda x: (x.var(0), x.mean(), x.std(1)), (ROWS,), 3),
    "NaN and infinity": (
        lambda x: (x.amax(-1), x.argmin(-1), x.clamp(-1, 1), x.sign(), x.isnan()),
        (torch.tensor([[1.0, torch.nan, 2], [-torch.inf, 3, 3], [-0.0, torch.inf, 0]]),),
        2,
    ),
    "half precision": (lambda x: (x.exp() / 3).sum(-1), (ROWS.half(),), 1),
    "long": (lambda x: (x // 3, x % 4, x >> 2, ~x, x.cumsum(0)), (INTEGERS,), 1),
    "from bytes": (lambda x: x.to(torch.uint8) // 3 * 2, (INTEGERS.clamp(0, 100),), 1),
    "reflected": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect") * 2, (IMAGE,), 1),
    "around": (lambda x: F.pad(x, (2, 1, 1, 2), mode="circular") * 2, (IMAGE,), 2),
    "indexed": (lambda x, i: x[i].sin() + x[0], (ROWS, torch.tensor([3, -1])), 1),
    "transposed": (lambda x: (x.t() * 2).contiguous() + 1, (ROWS,), 1),
    "joined": (lambda x: torch.cat([x, x * 2], 1).relu(), (ROWS,), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_loops_are_fused(name: str) -> None:
    function, arguments, kernels = CASES[name]
    found = torch.compile(function)(*there(arguments))
    torch.testing.assert_close(found, there(function(*arguments)), equal_nan=True)
    assert metrics.generated_kernel_count == kernels, name


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_network_trains(dynamic: bool) -> None:
    network = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    ours = copy.deepcopy(network).to("opencl")
    compiled = torch.compile(ours, dynamic=dynamic)
    for rows in (8, 9):
        x = torch.randn(rows, 16)
        network.zero_grad()
        ours.zero_grad()
        expected, loss = network(x).square().mean(), compiled(x.to("opencl")).square().mean()
        expected.backward()
        loss.backward()
        torch.testing.assert_close(loss.cpu(), expected)
        for mine, other in zip(ours.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-4, atol=1e-5)
    assert metrics.generated_kernel_count > 0
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == (1 if dynamic else 2)


def test_random_numbers_are_the_devices() -> None:
    dropped = torch.compile(lambda x: F.dropout(x, 0.5))
    x = torch.ones(10_000, device="opencl")
    torch.manual_seed(1)
    first, second = dropped(x), dropped(x)
    torch.manual_seed(1)
    assert torch.equal(dropped(x), first) and not torch.equal(first, second)
    assert set(first.unique().tolist()) == {0.0, 2.0} and 0.95 < first.mean() < 1.05


def test_a_seed_within_a_graph_break() -> None:
    from torch.testing._utils import freeze_rng_state

    def seeded(x: Tensor) -> Tensor:
        with freeze_rng_state():  # type: ignore[no-untyped-call]
            torch.manual_seed(42)
            return torch.dropout(x, 0.5, True)

    x = torch.ones(4, 5, device="opencl")
    assert torch.equal(torch.compile(seeded)(x), seeded(x))


def test_an_index_out_of_range_is_told() -> None:
    x, index = torch.ones(3, device="opencl"), torch.tensor([3], device="opencl")
    with pytest.raises(torch.AcceleratorError, match="met an index that is out of range"):
        torch.compile(lambda x, i: x[i] + 1)(x, index).cpu()


def test_operators_without_a_loop_are_called() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.digamma(x.exp()) + x @ x.t()[:, :1]

    torch.testing.assert_close(torch.compile(function)(there(ROWS)).cpu(), function(ROWS))
    assert metrics.generated_kernel_count == 2  # exp, and the sum


def test_what_no_kernel_is_fused_for_is_called() -> None:
    def program(x: Tensor) -> Tensor:
        return ((x * x).real + 1).relu()

    given = torch.randn(6, dtype=torch.complex64)
    found = torch.compile(program)(there(given))
    torch.testing.assert_close(found.cpu(), program(given))
    called = compiled_graphs[0].called
    assert called is not None and "aten.mul.Tensor" in called
    assert compiled_graphs[0].kernels == 1  # of the real numbers behind it


@pytest.mark.nightly
@needs.feature("AOT_INDUCTOR")
def test_a_package_of_aotinductor_has_fused_kernels(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(40, 16), nn.GELU(), nn.LayerNorm(16)).eval()
    exported = torch.export.export(copy.deepcopy(network).to("opencl"), (there(ROWS),))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "n.pt2"))
    found = torch._inductor.aoti_load_package(path)(there(ROWS))
    assert found.device.type == "opencl"
    torch.testing.assert_close(found.cpu(), network(ROWS), rtol=1e-4, atol=1e-5)
    assert metrics.generated_kernel_count > 0


def test_flex_attention_and_its_gradients() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def score(value: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return value + slopes[h] * (q - k)

    operands = [torch.randn(2, 4, 32, 16) for _ in range(3)]
    bias = torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None] * (
        torch.arange(32)[:, None] - torch.arange(32)
    )
    bias = bias.masked_fill(torch.ones(32, 32).triu(1).bool(), -torch.inf)
    ours = [each.to("opencl").requires_grad_() for each in operands]
    theirs = [each.clone().requires_grad_() for each in operands]
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], device="opencl")
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 32, 32, device="opencl")
    found = torch.compile(flex_attention)(*ours, score_mod=score, block_mask=mask)
    expected = F.scaled_dot_product_attention(*theirs, attn_mask=bias)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    found.square().sum().backward()
    expected.square().sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-3, atol=1e-4)


def test_optimizers_and_conditions() -> None:
    weight = nn.Parameter(torch.ones(5, 3, device="opencl"))
    bias = nn.Parameter(torch.ones(3, device="opencl"))
    twin = [nn.Parameter(each.detach().cpu()) for each in (weight, bias)]
    ours, theirs = (torch.optim.Adam(each, lr=0.1) for each in ([weight, bias], twin))
    step = torch.compile(ours.step)
    for _ in range(2):
        for each in (weight, bias, *twin):
            each.grad = each.detach() * 2
        step()
        theirs.step()
    torch.testing.assert_close([weight.cpu(), bias.cpu()], [each.detach() for each in twin])
    assert metrics.generated_kernel_count > 0

    def chosen(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    compiled = torch.compile(chosen)
    assert compiled(there(torch.ones(2))).tolist() == [2, 2]
    assert compiled(there(-torch.ones(2))).tolist() == [-2, -2]
