"""LSTM and GRU, whose fused cells PyTorch asks of every accelerator, against the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import opsmith

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"))
opsmith.load("sim")


def gradients(module: nn.Module, call: Callable[[nn.Module], Tensor]) -> list[Tensor]:
    """The loss of ``call`` and the gradients of the module's parameters, on the CPU."""
    module.zero_grad()
    loss = call(module)
    loss.backward()
    grads = [p.grad for p in module.parameters()]
    assert all(grad is not None for grad in grads)
    return [loss.detach().cpu(), *(grad.cpu() for grad in grads if grad is not None)]


def agree(module: nn.Module, call: Callable[[nn.Module], Tensor]) -> None:
    theirs = gradients(module, call)
    ours = gradients(copy.deepcopy(module).to("sim"), call)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def sequence(module: nn.Module) -> Tensor:
    device = next(module.parameters()).device
    return torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(1)).to(device)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_layers(layer: type[nn.RNNBase], bias: bool) -> None:
    torch.manual_seed(0)
    module = layer(4, 6, num_layers=2, bidirectional=True, bias=bias)
    agree(module, lambda m: m(sequence(m))[0].square().sum())


def test_a_loss_that_uses_the_cell_state_only() -> None:
    torch.manual_seed(0)
    agree(nn.LSTM(4, 6), lambda m: m(sequence(m))[1][1].square().sum())


def test_a_loss_that_uses_the_hidden_state_only() -> None:
    torch.manual_seed(0)
    agree(nn.LSTMCell(4, 6), lambda m: m(sequence(m)[0])[0].square().sum())
    agree(nn.GRUCell(4, 6), lambda m: m(sequence(m)[0]).square().sum())


def test_a_packed_sequence() -> None:
    torch.manual_seed(0)

    def call(module: nn.Module) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(sequence(module), torch.tensor([5, 3, 2]))
        output, _ = nn.utils.rnn.pad_packed_sequence(module(packed)[0])
        return output.square().sum()

    agree(nn.LSTM(4, 6), call)
