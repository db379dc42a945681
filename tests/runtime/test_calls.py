"""Recording operator calls: the tree, what is on the device, what fell back, and whose time is whose."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import opsmith
from opsmith.runtime.records.calls import Call, Calls, merged, record_calls


@pytest.fixture(autouse=True, scope="module")
def device() -> None:
    opsmith.load("sim")


def recorded(call: Callable[[], Any]) -> Calls:
    with record_calls() as block:
        call()
    return block.calls


def shown(calls: Calls) -> list[str]:
    """The tree, a line each: depth by dots, the operator and its numbers of calls."""
    lines: list[str] = []
    depths: list[int] = []
    for call in calls.tree:
        depths.append(0 if call.parent < 0 else depths[call.parent] + 1)
        where = "device" if call.on_device else "CPU"
        fell = f", {call.fell_back} fell back" if call.fell_back else ""
        fell += f", {call.on_copies} on copies" if call.on_copies else ""
        lines.append(f"{'.' * depths[-1]}{call.operator} on the {where}: {call.calls}{fell}")
    return lines


def test_calls_are_recorded_by_overload() -> None:
    tensor = torch.ones(3, device="sim")
    assert recorded(lambda: [tensor.sort() for _ in range(3)]).by_operator["sort"] == 3
    # Starting again forgets the last.
    assert recorded(lambda: tensor.view(3, 1)).by_operator == {"view": 1}
    tensor.sort()
    assert {
        name: n for name, n in zip(*torch.ops.opsmith.recorded_calls()[::4][:2], strict=True)
    } == {"view": 1}


def test_recording_sees_other_threads_and_not_the_inside_of_a_fallback() -> None:
    tensor = torch.rand(8, device="sim", requires_grad=True)

    def work() -> None:
        torch.logsumexp(tensor.cumprod(0), 0).backward()

    def run() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    calls = recorded(run)
    assert calls.by_operator["cumprod"] == 1
    assert calls.by_operator["cumprod_backward"] == 1  # in autograd's own thread
    # The CPU kernel allocates, resizes, sorts and copies: none of that are calls on the device.
    assert recorded(lambda: tensor.detach().unique()).by_operator == {"detach": 1, "_unique2": 1}


def test_the_tree_has_what_called_what_and_tells_the_device_from_the_cpu() -> None:
    here, there = torch.rand(4, 4), torch.rand(4, 4, device="sim")

    def work() -> None:
        for _ in range(2):
            torch.narrow(there, 0, 0, 2)
        torch.narrow(here, 0, 0, 2)
        there.flatten().lgamma()
        torch.empty(2, device="sim")

    assert shown(recorded(work)) == [
        "narrow on the device: 2",
        ".slice.Tensor on the device: 2",
        "..as_strided on the device: 2",
        "narrow on the CPU: 1",
        ".slice.Tensor on the CPU: 1",
        "..as_strided on the CPU: 1",
        "flatten.using_ints on the device: 1",
        ".view on the device: 1",
        "lgamma on the device: 1, 1 fell back",
        "empty.memory_format on the device: 1",
    ]


def test_the_backward_is_under_the_nodes_of_the_graph() -> None:
    tensor = torch.rand(4, device="sim", requires_grad=True)
    loss = tensor.cumprod(0).sum()
    calls = recorded(lambda: loss.backward())
    nodes = [call for call in calls.tree if call.is_backward]
    assert {"SumBackward0", "CumprodBackward0"} <= {node.operator for node in nodes}
    parents = {
        call.operator: calls.tree[call.parent].operator for call in calls.tree if call.parent >= 0
    }
    assert parents["cumprod_backward"] == "CumprodBackward0"


def test_own_time_is_without_that_of_the_calls_inside() -> None:
    tensor = torch.rand(64, 64, device="sim")
    for call in (calls := recorded(lambda: torch.stack([tensor, tensor]).lgamma())).tree:
        inside = sum(
            other.seconds
            for other in calls.tree
            if other.parent >= 0 and calls.tree[other.parent] is call
        )
        assert call.seconds == pytest.approx(call.own_seconds + inside, abs=1e-6)
        if call.fell_back:
            assert call.fallback_seconds == pytest.approx(call.own_seconds, abs=1e-6)
    assert any(call.fell_back for call in calls.tree)


def test_several_processes_become_one_tree() -> None:
    def one(name: str, parent: int) -> Call:
        return Call(name, parent, False, True, 1, 2.0, 1.0, 0, 0.0, 0, 0.0, 8)

    together = merged(
        [Calls((one("a", -1), one("b", 0))), Calls((one("b", -1), one("a", -1), one("b", 1)))]
    )
    assert [(call.operator, call.parent, call.calls) for call in together.tree] == [
        ("a", -1, 2),
        ("b", 0, 2),
        ("b", -1, 1),
    ]
