"""torch.compile with Inductor: its C++ over the host window, beside the CPU's eager results."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import fork_server

pytestmark = pytest.mark.compiles

_BEGIN = """
import copy
import opsmith
opsmith.load("sim")
import torch
from torch import nn
from torch._inductor import metrics
"""


def run(script: str, tmp_path: Path, **settings: str) -> list[str]:
    """The lines that the script prints; what it compiles is not kept."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), **settings}
    done = fork_server.run(
        [sys.executable, "-c", _BEGIN + dedent(script)], env=environment, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_network_trains_in_fused_kernels(tmp_path: Path) -> None:
    lines = run(
        """
        network = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
        there = copy.deepcopy(network).to("sim")
        compiled = torch.compile(there, dynamic=True)
        for rows in (8, 9):
            x = torch.randn(rows, 16)
            network.zero_grad()
            there.zero_grad()
            expected, loss = network(x).square().mean(), compiled(x.to("sim")).square().mean()
            expected.backward()
            loss.backward()
            torch.testing.assert_close(loss.cpu(), expected)
            for ours, theirs in zip(there.parameters(), network.parameters(), strict=True):
                torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
        print(metrics.generated_kernel_count > 2, torch._dynamo.utils.counters["graph_break"])
        on_second = torch.compile(lambda x: (x * 2).relu().sum(-1))(torch.ones(3, 4, device="sim:1"))
        print(on_second, torch.accelerator.current_device_index())
        """,
        tmp_path,
    )
    assert lines == [
        "True Counter()",
        "tensor([8., 8., 8.], device='sim:1') 0",
    ]


@pytest.mark.nightly
def test_convolutions_random_numbers_and_attention(tmp_path: Path) -> None:
    run(
        """
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(8 * 64, 4))
        there = copy.deepcopy(network).to("sim")
        compiled = torch.compile(there)
        x = torch.randn(2, 3, 16, 16)
        expected, found = network(x), compiled(x.to("sim"))
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
        expected.sum().backward()
        found.sum().backward()
        for ours, theirs in zip(there.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-4)
        dropped = torch.compile(lambda x: nn.functional.dropout(x, 0.5))(torch.ones(10_000, device="sim"))
        assert set(dropped.unique().tolist()) == {0.0, 2.0} and 0.9 < dropped.mean() < 1.1
        attend = nn.functional.scaled_dot_product_attention
        q = torch.randn(2, 4, 16, 8)
        found = torch.compile(lambda q: attend(q, q, q, is_causal=True))(q.to("sim"))
        torch.testing.assert_close(found.cpu(), attend(q, q, q, is_causal=True))
        """,
        tmp_path,
    )


def test_without_a_host_window_the_kernels_are_called(tmp_path: Path) -> None:
    lines = run(
        """
        from opsmith.runtime.compile.compiled_graphs import compiled_graphs
        network = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
        there = copy.deepcopy(network).to("sim")
        x = torch.randn(8, 16)
        expected, found = network(x), torch.compile(there)(x.to("sim"))
        torch.testing.assert_close(found.cpu(), expected)
        expected.sum().backward()
        found.sum().backward()
        for ours, theirs in zip(there.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
        print(metrics.generated_kernel_count, *{graph.reason for graph in compiled_graphs})
        forward = compiled_graphs[0]
        print(*(name for name in forward.called if "layer_norm" in name))
        """,
        tmp_path,
        OPSMITH_HOST_WINDOW="off",
    )
    assert lines == [
        "0 no library of the backend has a fused kernel",
        "aten.native_layer_norm.default",
    ]
