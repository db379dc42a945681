"""Graphs: work of a stream that is recorded once and replayed, on sim with its host window and without."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import needs
import opsmith

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"), nightly=("off",))
needs.require_feature("GRAPHS")
opsmith.load("sim")


def captured(call: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """The graph of ``call``, and what that has returned."""
    made = torch.sim.SimGraph()
    with torch.sim.graph(made, **options):
        result = call()
    return made, result


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 16),
        nn.LayerNorm(16),
        nn.GELU(),
        nn.Linear(16, 3),
    )


class Step:
    """A training step on tensors that stay where they are."""

    def __init__(self, model: nn.Module, device: str) -> None:
        self.model = copy.deepcopy(model).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.images = torch.zeros(2, 1, 8, 8, device=device)
        self.target = torch.zeros(2, 3, device=device)

    def __call__(self) -> Tensor:
        self.optimizer.zero_grad()
        output = self.model(self.images)
        loss = ((output - self.target) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def give(self, number: int) -> None:
        numbers = torch.Generator().manual_seed(number)
        self.images.copy_(torch.randn(2, 1, 8, 8, generator=numbers))
        self.target.copy_(torch.randn(2, 3, generator=numbers))

    def parameters(self) -> list[Tensor]:
        return [each.detach().cpu() for each in self.model.parameters()]


def test_a_training_step_is_replayed_with_other_inputs() -> None:
    model = network()
    cpu, sim = Step(model, "cpu"), Step(model, "sim")
    for step in (cpu, sim):
        step.give(0)
        step()
        step.give(1)
    recorded, loss = captured(sim)
    for ours, theirs in zip(sim.parameters(), cpu.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)  # nothing has run
    for number in (1, 2, 3):
        cpu.give(number)
        sim.give(number)
        recorded.replay()
        torch.testing.assert_close(loss.cpu(), cpu(), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(sim.parameters(), cpu.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_pytorchs_generic_graph() -> None:
    x = torch.ones(4, device="sim")
    made = torch.accelerator.Graph(keep_graph=True)
    with torch.Stream("sim"), made:
        assert torch.sim.is_current_stream_capturing()
        y = x * 2 + 1
    assert not torch.sim.is_current_stream_capturing()
    x.fill_(5)
    made.instantiate()
    made.replay()
    assert y.tolist() == [11] * 4
    made.reset()
    with pytest.raises(RuntimeError, match=r"replay\(\) of a graph that has not been captured"):
        made.replay()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.t() @ x,
        lambda x: x.t().contiguous(),
        lambda x: x.to(torch.float64) + 1,
        lambda x: x.expand(2, 3, 4).sum(0),
        lambda x: x[:, ::2] * x[:, 1::2],
        lambda x: torch.zeros(3, 3, device="sim").copy_(x[:, :3].t()),
        lambda x: torch.cat([x, x.relu()]).amax(0),
        lambda x: x.new_zeros(3, 4)[:, 1:3].fill_(2),
        lambda x: torch.zeros(3, 8, device="sim")[:, ::2].copy_(x),
        lambda x: torch.addcmul(x, x, x.to(torch.bfloat16).to(torch.float32)),
    ],
)
def test_layouts_casts_and_views(call: Callable[[Tensor], Tensor]) -> None:
    x = torch.zeros(3, 4, device="sim")
    recorded, result = captured(lambda: call(x))
    given = torch.randn(3, 4)
    x.copy_(given)
    recorded.replay()
    wanted = call_on_cpu(call, given)
    torch.testing.assert_close(result.cpu(), wanted, rtol=1e-5, atol=1e-5)


def call_on_cpu(call: Callable[[Tensor], Tensor], given: Tensor) -> Tensor:
    return call(given.to("sim")).cpu()


def test_streams_fork_and_join_within_a_graph() -> None:
    x = torch.zeros(8, device="sim")
    side = torch.Stream("sim")

    def forked() -> Tensor:
        doubled = x * 2
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            other = doubled + 1
        torch.accelerator.current_stream().wait_stream(side)
        return other * doubled

    recorded, result = captured(forked)
    x.fill_(3)
    recorded.replay()
    assert result.tolist() == [42] * 8
    with pytest.raises(RuntimeError, match="other streams have recorded work"):
        captured(lambda: (side.wait_stream(torch.accelerator.current_stream()), _on(side, x)))
    assert (x + 1).tolist() == [4] * 8


def _on(stream: torch.Stream, x: Tensor) -> None:
    with stream:
        x.add_(1)


def test_pinned_memory_is_copied_in_both_directions() -> None:
    given, found = torch.ones(4).pin_memory(), torch.zeros(4).pin_memory()

    def through() -> None:
        found.copy_(given.to("sim", non_blocking=True) * 2, non_blocking=True)

    recorded, _ = captured(through)
    assert found.tolist() == [0] * 4
    given.fill_(4)
    recorded.replay()
    torch.accelerator.synchronize()
    assert found.tolist() == [8] * 4


def test_each_replay_draws_the_numbers_that_an_eager_call_would() -> None:
    x = torch.ones(1000, device="sim", requires_grad=True)

    def draws() -> tuple[Tensor, ...]:
        dropped = nn.functional.dropout(x, 0.3)
        (gradient,) = torch.autograd.grad(dropped.sum(), x)
        return (
            dropped.detach(),
            gradient,
            torch.rand(5, device="sim"),
            torch.randperm(9, device="sim"),
        )

    torch.sim.manual_seed(7)
    eager = [[each.cpu() for each in draws()] for _ in range(3)]
    after = torch.sim.get_rng_state()
    assert not torch.equal(eager[0][0], eager[1][0])
    recorded, results = captured(draws)
    torch.sim.manual_seed(7)
    for wanted in eager:
        recorded.replay()
        for ours, theirs in zip(results, wanted, strict=True):
            assert torch.equal(ours.cpu(), theirs)
    assert torch.equal(torch.sim.get_rng_state(), after)


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "item": (
        lambda x: x.sum().item(),
        "aten::_local_scalar_dense cannot be recorded in a graph on sim:0",
    ),
    "fallback": (lambda x: torch.linalg.qr(x), "aten::linalg_qr.*it falls back to the CPU"),
    "synchronise": (lambda x: torch.accelerator.synchronize(), "to synchronise a stream cannot be"),
    "to the host": (
        lambda x: x.cpu(),
        "aten::_copy_from cannot.*pinned memory and non_blocking=True",
    ),
    "from the host": (lambda x: x.copy_(torch.ones(4, 4)), "aten::_copy_from cannot"),
    "another device": (lambda x: x.to("sim:1"), "a graph is of one device"),
    "an event": (lambda x: torch.Event("sim").record() or _wait(x), "it is a place in a graph"),
}


def _wait(x: Tensor) -> None:
    event = torch.Event("sim")
    event.record()
    event.synchronize()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_recorded_is_refused_and_leaves_the_device_usable(name: str) -> None:
    call, said = REFUSED[name]
    x = torch.randn(4, 4, device="sim")
    torch.accelerator.empty_cache()
    before = torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved()
    with pytest.raises(RuntimeError, match=said):
        captured(lambda: call(x + 1))
    assert not torch.sim.is_current_stream_capturing()
    generic = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match=said), torch.Stream("sim"), generic:
        call(x + 1)
    torch.testing.assert_close((x + 1).cpu(), x.cpu() + 1)
    recorded, result = captured(lambda: x * 2)
    recorded.replay()
    torch.testing.assert_close(result.cpu(), x.cpu() * 2)
    del recorded, result, generic
    torch.accelerator.empty_cache()
    assert before == (torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved())


def test_graphs_share_a_pool_and_give_their_memory_back() -> None:
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    x = torch.ones(1 << 20, device="sim")
    before = torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved()

    def chain() -> Tensor:
        return x.add(1).mul(2).add(3)

    first, of_first = captured(chain)
    alone = torch.accelerator.memory_reserved() - before[1]
    second, result = captured(chain, pool=first.pool())
    assert second.pool() == first.pool()
    assert torch.accelerator.memory_reserved() - before[1] < 2 * alone
    torch.accelerator.empty_cache()  # what graphs use stays
    eager = [torch.zeros(1 << 20, device="sim") for _ in range(4)]
    x.fill_(2)
    second.replay()
    assert set(result.tolist()) == {9}
    assert {value for each in eager for value in each.unique().tolist()} == {0}
    del first, of_first, eager
    second.replay()  # the pool lives while a graph uses it
    assert set(result.tolist()) == {9}
    del second, result
    torch.accelerator.empty_cache()
    assert before == (torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved())


def test_callables_are_graphed() -> None:
    torch.manual_seed(1)
    theirs = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    ours = copy.deepcopy(theirs).to("sim")
    sample = torch.randn(3, 6, device="sim", requires_grad=True)
    graphed = torch.sim.make_graphed_callables(ours, (sample,))
    for _ in range(2):
        given = torch.randn(3, 6)
        results = []
        for model, device in ((theirs, "cpu"), (graphed, "sim")):
            model.zero_grad()
            x = given.clone().to(device).requires_grad_()
            output = model(x)
            (output * output).sum().backward()
            results.append([output, x.grad, *(each.grad for each in model.parameters())])
        for mine, other in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(mine.cpu(), other, rtol=1e-4, atol=1e-5)


def test_a_graph_is_written_for_people(tmp_path: Path) -> None:
    x = torch.ones(4, device="sim")
    recorded, _ = captured(lambda: x + 1)
    with pytest.raises(RuntimeError, match="enable_debug_mode"):
        recorded.debug_dump(str(tmp_path / "graph.dot"))
    recorded.enable_debug_mode()
    recorded.debug_dump(str(tmp_path / "graph.dot"))
    assert (tmp_path / "graph.dot").read_text().startswith("digraph sim {\n  0 [label=")


def test_one_capture_at_a_time() -> None:
    first, second = torch.sim.SimGraph(), torch.sim.SimGraph()
    with (
        torch.sim.graph(first),
        pytest.raises(RuntimeError, match="a process captures one at a time"),
    ):
        second.capture_begin()
    with pytest.raises(RuntimeError, match=r"call reset\(\) before it is captured again"):
        first.capture_begin()
