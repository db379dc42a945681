"""Kernels that run after their calls have returned, and what comes of them.

``slow`` makes each piece of the device's work take time.
"""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from host_window import HAS_HOST_WINDOW
from sim_driver import SimDriver

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

MANY = 1 << 20  # elements, which are queued
MOMENT = 3_000  # microseconds
LONG = 100_000

queued = pytest.mark.skipif(
    not HAS_HOST_WINDOW, reason="without a host window kernels on copies wait for their results"
)


@pytest.fixture(autouse=True)
def spare_core() -> Iterator[None]:
    """Kernels are queued where a core is left for who calls them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def idle() -> bool:
    return torch.accelerator.current_stream().query()


@queued
def test_a_kernel_runs_after_its_call(driver: SimDriver) -> None:
    a, b = torch.rand(3, 4), torch.rand(4, 5)
    left, right = a.to("sim"), b.to("sim")
    left.mul_(2)  # few elements, and the stream is idle: at once
    driver.inject("slow", LONG)
    elsewhere = left.to("sim:1", non_blocking=True)
    assert not idle()
    total = (left @ right).sum()
    assert not idle()
    torch.testing.assert_close(total.cpu(), ((2 * a) @ b).sum())
    assert idle()
    torch.testing.assert_close(elsewhere.cpu(), 2 * a)


@queued
def test_many_elements_are_queued_on_an_idle_stream(driver: SimDriver) -> None:
    a, b = torch.rand(100, 10_000), torch.rand(10_000, 100)
    left, right = a.to("sim"), b.to("sim")
    driver.inject("slow", LONG)
    product = left @ right
    assert not idle()
    torch.testing.assert_close(product.cpu(), a @ b)


@pytest.fixture
def busy(driver: SimDriver) -> None:
    """The current stream has work for a while."""
    driver.inject("slow", MOMENT)
    torch.zeros(MANY, device="sim").exp()


def test_programs_compute_what_the_cpu_does(busy: None) -> None:
    def program(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x = torch.arange(24.0).reshape(4, 6).to(device)
        scalar = torch.tensor(3.0)
        index = torch.tensor([[0, 2, 1]] * 4).to(device)
        y = x.t()[::2] * scalar + 1
        scalar.zero_()
        out = torch.empty(12, 4, device=device)[::2]
        torch.add(x.t(), 1, alpha=0.5, out=out)
        x.mul_(2).add_(y.sum())
        parts = torch.cat([x, y.t()], dim=1)
        del y
        z = parts.view(2, 18).softmax(-1).transpose(0, 1).contiguous()
        x[1:3, ::2] = 7
        return [
            x,
            out,
            z,
            parts.gather(1, index),
            parts.amax(dim=(0, 1)),
            z.mean((0,), keepdim=True),
        ]

    for ours, expected in zip(program("sim"), program("cpu"), strict=True):
        torch.testing.assert_close(ours.cpu(), expected)


def test_freed_memory_serves_later_work(busy: None) -> None:
    results = []
    for value in range(20):
        tensor = torch.full((1000,), float(value)).to("sim", non_blocking=True)
        results.append((tensor * 2 + 1).sum())
        del tensor
    assert torch.stack(results).tolist() == [1000.0 * (2 * value + 1) for value in range(20)]


def test_training_equals_the_cpus(busy: None) -> None:
    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
        images, labels = torch.rand(8, 1, 8, 8), torch.randint(0, 5, (8,))
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
        return torch.stack(found).tolist()

    assert losses("sim") == pytest.approx(losses("cpu"), rel=1e-5)


@pytest.fixture
def table(driver: SimDriver) -> torch.Tensor:
    return torch.zeros(MANY, device="sim")


@pytest.fixture
def far(driver: SimDriver) -> torch.Tensor:
    """An index beyond the table."""
    return torch.tensor([1 << 24], device="sim")


def wrong_index(table: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    return table.index_select(0, far)


@queued
@pytest.mark.parametrize(
    "wait",
    [
        lambda: torch.accelerator.synchronize(),
        lambda: torch.accelerator.current_stream().synchronize(),
        lambda: torch.sim.current_stream().record_event().synchronize(),
        lambda: torch.zeros(1, device="sim").item(),
        lambda: torch.zeros(1, device="sim").cpu(),
        lambda: torch.zeros(3, device="sim").nonzero(),
    ],
)
def test_a_late_failure_is_raised_where_somebody_waits(
    table: torch.Tensor, far: torch.Tensor, wait: Callable[[], object]
) -> None:
    wrong_index(table, far)
    line = inspect.getsourcelines(wrong_index)[1] + 1
    with pytest.raises(IndexError) as raised:
        wait()
    assert str(raised.value) == (
        "aten::index_select: its kernel `opsmith::portable::native::index_select_out` (library portable) "
        "refuses the call: index out of range in self (a queued call, aten::index_select at "
        f"{__file__}:{line} in wrong_index, failed when it ran; "
        "OPSMITH_LAUNCH_BLOCKING=1 raises such failures from the calls)"
    )
    wait()


@queued
def test_the_first_of_several_failures_is_raised(table: torch.Tensor, far: torch.Tensor) -> None:
    wrong_index(table, far)
    table.gather(0, far)
    with pytest.raises(IndexError, match="aten::index_select at"):
        torch.accelerator.synchronize()
    torch.accelerator.synchronize()


def test_streams_wait_for_each_others_kernels(driver: SimDriver) -> None:
    tensor = torch.zeros(MANY, device="sim")
    torch.accelerator.synchronize()
    driver.inject("slow", MOMENT)
    with torch.Stream(device="sim") as first:
        tensor.add_(1)
        tensor.mul_(3)
    with torch.Stream(device="sim") as second:
        second.wait_stream(first)
        doubled = tensor + tensor
    torch.sim.current_stream().wait_stream(second)
    assert doubled.sum().item() == 6 * MANY


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OPSMITH_LAUNCH_BLOCKING": "0"} | variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


LOADED = f"""
import opsmith, sys, torch
sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
from sim_driver import SimDriver
driver = SimDriver(opsmith.load("sim").built.driver)
"""


def test_launches_that_block(sim: LoadedBackend) -> None:
    code = f"""{LOADED}
x = torch.ones({MANY}, device="sim")
driver.inject("slow", {LONG})
y = x.exp()
print(torch.accelerator.current_stream().query())
try:
    x.index_select(0, torch.tensor([1 << 24], device="sim"))
except IndexError as error:
    print(error)
"""
    done = run(code, OPSMITH_LAUNCH_BLOCKING="1")
    assert done.stdout.splitlines() == [
        "True",
        "aten::index_select: its kernel `opsmith::portable::native::index_select_out` (library portable) "
        "refuses the call: index out of range in self",
    ], done.stderr


def test_an_unknown_setting_is_refused(sim: LoadedBackend) -> None:
    done = run("import opsmith; opsmith.load('sim')", OPSMITH_LAUNCH_BLOCKING="yes")
    assert done.returncode == 1
    assert (
        "OPSMITH_LAUNCH_BLOCKING is `yes`\n  remedy: say 1 to have every kernel done before its call "
        "returns, 0 to have kernels queued on a machine without a core to spare too, or nothing"
        in done.stderr
    )


def test_the_process_ends_after_its_work(sim: LoadedBackend) -> None:
    code = f"""{LOADED}
x = torch.rand(1024, 1024, device="sim")
driver.inject("slow", {MOMENT})
for _ in range(9):
    x = x @ x
"""
    if HAS_HOST_WINDOW:
        code += "x.index_select(0, torch.tensor([1 << 24], device='sim'))"
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@queued
def test_a_wait_is_given_up_after_a_time(sim: LoadedBackend) -> None:
    code = f"""{LOADED}
x = torch.zeros({MANY}, device="sim")
driver.inject("slow", 20_000_000)
def forward(x):
    return x.exp()
y = forward(x)
event = torch.accelerator.current_stream().record_event()
for wait in (torch.accelerator.synchronize, y.cpu, event.synchronize):
    try:
        wait()
    except torch.AcceleratorError as error:
        print(error)
"""
    done = run(code, OPSMITH_SYNCHRONIZE_TIMEOUT="0.2")
    assert (done.returncode, done.stderr) == (0, "")
    kernel = (
        "The last kernel launched there is that of aten::exp, called at <string>:10 in forward."
    )
    hint = (
        "A kernel that never ends, or a device that hangs: end the process, or give it more time."
    )
    late = "was not done within 0.2 s (OPSMITH_SYNCHRONIZE_TIMEOUT)."
    stream = f"sim:0: stream 0 {late} {kernel} {hint}"
    event = "sim:0: what an event was recorded after " + late
    event += f" Synchronise its stream to be told what that does. {hint}"
    assert done.stdout.splitlines() == [stream, stream, event]


def test_a_time_to_wait_is_a_number(sim: LoadedBackend) -> None:
    done = run("import opsmith; opsmith.load('sim')", OPSMITH_SYNCHRONIZE_TIMEOUT="soon")
    assert "OPSMITH_SYNCHRONIZE_TIMEOUT is `soon`\n  remedy: give the seconds" in done.stderr
