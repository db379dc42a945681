"""Modules that move to the device: they keep their parameters, and train as on the CPU."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import loaded  # noqa: F401  (makes the device)
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)


class TiedTransformer(nn.Module):
    """A language model whose output layer has the weight of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(self.embedding(tokens)))
        return logits


def losses(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> list[float]:
    tokens = (torch.arange(24).view(3, 8) * 7 % 11).to(device)
    found = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        )
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("optimizer_first", [False, True])
def test_tied_weights_train_as_on_the_cpu(optimizer_first: bool) -> None:
    torch.manual_seed(0)
    model = TiedTransformer()
    moved = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(moved.parameters(), lr=0.5)] if optimizer_first else []
    moved.to("sim")
    assert moved.head.weight is moved.embedding.weight
    optimizers = optimizers or [torch.optim.SGD(moved.parameters(), lr=0.5)]
    expected = losses(model, torch.optim.SGD(model.parameters(), lr=0.5), "cpu")
    assert expected[-1] < expected[0] - 0.5
    assert losses(moved, optimizers[0], "sim") == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("to", ["sim", "sim:1", "cpu"])
def test_moved_parameters_and_buffers_stay_themselves(to: str) -> None:
    model = nn.BatchNorm1d(3).to("sim" if to != "sim" else "cpu")
    before = dict(model.named_parameters())
    before["weight"].note = "kept"  # type: ignore[attr-defined]
    model(torch.ones(2, 3, device=before["weight"].device)).sum().backward()
    gradient = before["bias"].grad
    model.to(to)
    for name, parameter in model.named_parameters():
        assert parameter is before[name]
        assert type(parameter) is nn.Parameter
        assert parameter.requires_grad
        assert parameter.is_leaf
        assert parameter.device.type == to[:3]
    assert model.weight.note == "kept"  # type: ignore[union-attr]
    assert model.bias.grad is gradient
    assert gradient is not None
    assert gradient.device == model.bias.device
    assert gradient.tolist() == [2, 2, 2]


def test_a_module_moves_and_changes_its_dtype_at_once() -> None:
    model = nn.Linear(2, 1, bias=False)
    weight = model.weight
    values = weight.tolist()
    assert model.to("sim", torch.float64).weight is weight
    assert (weight.dtype, weight.device.type) == (torch.float64, "sim")
    assert weight.tolist() == values


def test_hooks_of_a_moved_parameter_are_called() -> None:
    parameter = nn.Parameter(torch.ones(2))
    calls: list[str] = []
    parameter.register_hook(lambda gradient: calls.append(f"gradient on {gradient.device}"))
    parameter.register_post_accumulate_grad_hook(
        lambda each: calls.append(f"accumulated on {each.device}")
    )
    (parameter * 2).sum().backward()  # makes what accumulates gradients, for the CPU
    parameter.grad = None
    calls.clear()
    nn.ParameterList([parameter]).to("sim:1")
    (parameter * 3).sum().backward()
    assert calls == ["gradient on sim:1", "accumulated on sim:1"]
    assert parameter.grad is not None
    assert parameter.grad.device == torch.device("sim:1")
    assert parameter.grad.tolist() == [3, 3]


def test_a_lazy_module_is_made_on_the_device() -> None:
    model = nn.Sequential(nn.LazyConv1d(4, 1), nn.Flatten(), nn.LazyLinear(2)).to("sim")
    result = model(torch.ones(2, 3, 5, device="sim"))
    assert (result.shape, result.device.type) == ((2, 2), "sim")
    assert [tuple(each.shape) for each in model.parameters()] == [(4, 3, 1), (4,), (2, 20), (2,)]
    assert {str(each.device) for each in model.parameters()} == {"sim:0"}


def test_a_module_comes_back_from_the_meta_device() -> None:
    model = nn.Linear(2, 2).to("sim").to("meta")
    assert model.weight.is_meta
    assert model.to_empty(device="sim").weight.device.type == "sim"


# ---- `tensor.data = other` ----


@pytest.mark.parametrize(("before", "after"), [("cpu", "sim"), ("sim", "cpu"), ("sim:0", "sim:1")])
def test_data_takes_over_the_other_memory(before: str, after: str) -> None:
    tensor = torch.zeros(2, device=before)
    tensor.add_(1)
    version = tensor._version
    other = torch.arange(6.0, device=after).view(2, 3).t()[1:]
    tensor.data = other
    assert (tensor.device, tensor.shape, tensor.stride()) == (other.device, (2, 2), (1, 3))
    assert tensor._version == version
    other.mul_(10)
    assert tensor.tolist() == [[10, 40], [20, 50]]
    assert (tensor + 1).device == other.device
    assert repr(tensor).startswith("tensor([[10., 40.],")


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_data_of_a_view_leaves_its_base(device: str) -> None:
    base = torch.zeros(2, 2, device=device)
    row = base[0]
    row.data = torch.ones(3, device="sim")
    row.add_(1)
    assert (row.device.type, row.tolist()) == ("sim", [2, 2, 2])
    assert base.tolist() == [[0, 0], [0, 0]]


OTHERS: list[Callable[[], Tensor]] = [
    lambda: torch.eye(2).to_sparse(),
    lambda: torch.eye(2).to_sparse_csr(),
    lambda: torch.empty(2, device="meta"),
    lambda: torch.quantize_per_tensor(torch.ones(2), 1, 0, torch.qint8),
]


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:torch.quantize")
@pytest.mark.parametrize("other", OTHERS)
def test_data_of_another_kind_is_refused(other: Callable[[], Tensor]) -> None:
    message = (
        "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible "
        "tensor type."
    )
    for one, two in [
        (torch.ones(2, device="sim"), other()),
        (other(), torch.ones(2, device="sim")),
    ]:
        assert refusal(RuntimeError, setattr, one, "data", two) == message


def test_integers_cannot_be_the_data_of_a_parameter() -> None:
    parameter = nn.Parameter(torch.ones(2))
    assert refusal(
        RuntimeError, setattr, parameter, "data", torch.ones(2, dtype=int, device="sim")
    ) == ("data set to a tensor that requires gradients must be floating point or complex dtype")
    assert parameter.tolist() == [1, 1]


# ---- checkpoints: the forward pass again, with the same random numbers ----


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("device", ["sim", "sim:1"])
def test_a_checkpoint_draws_the_same_random_numbers_again(device: str, use_reentrant: bool) -> None:
    def block(values: Tensor) -> Tensor:
        return nn.functional.dropout(values, 0.5) * values * torch.rand_like(values)

    gradients = []
    for run in (block, partial(checkpoint, block, use_reentrant=use_reentrant)):
        torch.manual_seed(3)
        values = torch.arange(1.0, 101.0, device=device).requires_grad_()
        run(values).sum().backward()
        after = torch.rand(2, device=device)
        assert values.grad is not None
        gradients.append([*values.grad.tolist(), *after.tolist()])
    assert gradients[0] == gradients[1]
    assert 20 < gradients[0].count(0) < 80


def test_a_checkpoint_without_device_arguments_keeps_the_states_of_none() -> None:
    parameter = torch.ones(8, device="sim").requires_grad_()
    result = checkpoint(lambda: parameter * 2, use_reentrant=False)
    result.sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [2] * 8


def test_a_forked_generator_comes_back_as_it_was() -> None:
    torch.manual_seed(1)
    states = torch.sim.get_rng_state_all()
    with torch.random.fork_rng(devices=[0, 1], device_type="sim"):
        drawn = [torch.rand(2, device=f"sim:{index}").tolist() for index in range(2)]
    assert [
        torch.equal(*pair) for pair in zip(states, torch.sim.get_rng_state_all(), strict=True)
    ] == [
        True,
        True,
    ]
    assert [torch.rand(2, device=f"sim:{index}").tolist() for index in range(2)] == drawn


def test_the_default_generators_are_those_that_operators_draw_from() -> None:
    generators = torch.sim.default_generators
    assert [str(each.device) for each in generators] == ["sim:0", "sim:1"]
    generators[1].manual_seed(5)
    first = torch.rand(3, device="sim:1").tolist()
    torch.sim._get_generator(torch.device("sim:1")).manual_seed(5)
    assert torch.rand(3, device="sim:1").tolist() == first
