"""Graphs of ``torch.compile`` on Triton: compiled for this processor, and launched by sim's driver."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

from ctypes import CDLL
from pathlib import Path

import pytest
import torch
from torch._inductor.utils import run_fw_bw_and_get_code

import needs
import opsmith
from opsmith.driver.named import imported
from opsmith.runtime.compile.compiled_graphs import compiled_graphs
from opsmith.runtime.triton.driver import activate

needs.require("Triton")
pytestmark = pytest.mark.isolated
HERE = Path(__file__).parent
SIM = opsmith.load(str(HERE / "compiled.yaml"))
activate("host")  # as the first kernel of the description does
operations = imported(HERE / "operations.py")


def step(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    hidden = torch.nn.functional.layer_norm(torch.tanh(x @ weight), (5,))
    return torch.softmax(hidden * 2 + weight[0], -1).square().sum()


def test_a_compiled_graph_trains_like_the_cpu() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(6, 7), torch.randn(7, 5, requires_grad=True)
    expected = step(x, weight)
    expected.backward()
    there = weight.detach().to("sim").requires_grad_()
    with opsmith.count_fallbacks(callers=False) as block:
        call = torch.compile(step, fullgraph=True)
        found, code = run_fw_bw_and_get_code(lambda: call(x.to("sim"), there))
        torch.sim.synchronize()
    torch.testing.assert_close(found.cpu(), expected)
    torch.testing.assert_close(there.grad.cpu(), weight.grad)
    reasons = [each.reason for each in compiled_graphs]
    if lost := needs.taken_away("TRITON_GRAPHS"):  # the operators of both graphs are called
        assert reasons == [f"TorchNameMissing: {lost}"] * 2
        return
    assert reasons == ["", ""]
    assert ["async_compile.triton(" in each for each in code] == [True, True]
    assert not block.fallbacks.counts


@needs.feature("GRAPHS")
def test_launches_are_recorded_in_graphs() -> None:
    x = torch.ones(300, device="sim")
    torch.sigmoid(x)  # compiled before
    graph = torch.sim.SimGraph()
    with torch.sim.graph(graph):
        found = torch.sigmoid(x)
    x.fill_(0)
    graph.replay()
    torch.testing.assert_close(found.cpu(), torch.full((300,), 0.5))


def test_what_the_compiler_for_this_processor_takes() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5)
    made = {
        name: torch.zeros(shape, dtype=dtype, device="sim")
        for name, shape, dtype in (
            ("largest", 3, torch.float32),
            ("where", 3, torch.int32),
            ("sums", (3, 5), torch.float32),
            ("counted", 1, torch.int32),
        )
    }
    operations.rows[(3,)](x.to("sim"), *made.values(), 5, WIDE=8)
    assert torch.equal(made["largest"].cpu(), x.amax(1))
    assert torch.equal(made["where"].cpu(), x.argmax(1).int())
    torch.testing.assert_close(made["sums"].cpu(), x.cumsum(1))
    assert made["counted"].item() == (x > 0).sum()

    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        a, b = torch.randn(16, 16).to(dtype), torch.randn(16, 16).to(dtype)
        out = torch.empty(2, 16, 16, dtype=dtype, device="sim")
        operations.products[(2,)](a.to("sim"), b.to("sim"), out, N=16)
        expected = a.float() @ b.float().t()
        torch.testing.assert_close(out.cpu(), torch.stack([-expected, expected]).to(dtype))

    a, b = torch.randint(0, 99, (13,)), torch.randint(1, 9, (13,))
    out, halvings = torch.empty_like(a, device="sim"), torch.empty(1, device="sim")
    operations.integers[(1,)](a.to("sim"), b.to("sim"), out, halvings, 13, BLOCK=16)
    assert torch.equal(out.cpu(), a // b + a % b * 100 + ((a << 2) ^ (b >> 1)))
    assert halvings.item() == 3

    for double in (torch.float32, torch.float64):
        x = torch.randn(13, dtype=double)
        out = torch.empty_like(x, device="sim")
        operations.mathematics[(1,)](x.to("sim"), out, 13, BLOCK=16)
        value = x.tanh() + x.erf() + x.abs().log1p()
        value = value**2 + value / 3
        torch.testing.assert_close(out.cpu(), value * value + value.sigmoid())


def test_tensors_elsewhere_are_refused() -> None:
    with pytest.raises(opsmith.Unsupported) as error:
        operations.mathematics[(1,)](torch.ones(13), torch.empty(13, device="sim"), 13, BLOCK=16)
    assert str(error.value) == (
        "the kernel `mathematics` is launched on sim, and is given a tensor on cpu\n"
        "  remedy: move it, .to('sim'): Triton has one driver in a process"
    )


def test_a_failed_launch_is_raised() -> None:
    """The last test of this process: a lost device stays lost."""
    x = torch.ones(300, device="sim")
    torch.sigmoid(x)
    torch.sim.synchronize()
    driver = CDLL(SIM.built.driver)
    driver.opsmith_sim_inject(b"device_lost:0", 1)
    try:
        with pytest.raises(torch.AcceleratorError) as error:
            torch.ops.aten.sigmoid.out(x, out=x)
        assert str(error.value).startswith(
            "could not launch `sigmoid` on sim:0 for aten::sigmoid.out: device 0 is lost"
        )
    finally:
        driver.opsmith_sim_clear_faults()
