"""Kernels that run on the host, on copies: counted, denied and profiled as the host's work."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import warnings

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import profile

import opsmith
from opsmith.errors import PolicyInvalid
from opsmith.runtime.records.calls import record_calls

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("off",))


SIM = opsmith.load("sim")


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(4, 8, device="sim")


def test_their_calls_are_counted() -> None:
    layer = torch.nn.Linear(8, 2).to("sim")
    x = torch.rand(4, 8, device="sim")
    with opsmith.count_fallbacks() as block:
        layer(x)
    (count,) = block.fallbacks.counts
    assert (count.operator, count.calls, count.kernel_calls) == ("addmm", 1, 1)
    assert count.bytes_moved == 4 * (32 + 16 + 2 + 8)  # x, weight, bias and the result
    assert count.reason == SIM.plan.entry("addmm").why
    assert count.reason.endswith(
        "on copies in host memory: there is no host window (OPSMITH_HOST_WINDOW=off)"
    )
    assert [path.rpartition("/")[2].partition(":")[0] for path in count.callers] == [
        "test_host_kernels.py"
    ]
    assert (block.fallbacks.calls, block.fallbacks.kernel_calls) == (1, 1)


def test_a_kernel_that_refuses_is_counted_once_as_a_fallback(x: torch.Tensor) -> None:
    with opsmith.count_fallbacks(callers=False) as block:
        x.lgamma()
        x.to(torch.complex64).mul(2)
    counts = {each.operator: (each.calls, each.kernel_calls) for each in block.fallbacks.counts}
    assert counts["lgamma"] == (1, 0)
    assert counts["mul.Tensor"] == (1, 0)  # optimized and portable take no complex numbers


def test_recorded_calls_tell_them_from_fallbacks(x: torch.Tensor) -> None:
    with record_calls() as block:
        x.sin()
        x.lgamma()
        x.view(-1)
    shown = {each.operator: (each.on_copies, each.fell_back) for each in block.calls.tree}
    assert shown["sin"] == (1, 0)
    assert shown["lgamma"] == (0, 1)
    assert shown["view"] == (0, 0)
    (sin,) = [each for each in block.calls.tree if each.operator == "sin"]
    assert sin.copies_seconds == sin.own_seconds > sin.fallback_seconds == 0
    assert sin.bytes_moved == 2 * x.nbytes


def test_a_process_denies_them(x: torch.Tensor) -> None:
    with opsmith.fallback("deny"), pytest.raises(NotImplementedError) as error:
        x.sin()
    assert str(error.value) == (
        "aten::sin is not available on sim: its kernel runs on the host, on copies, which "
        '`opsmith.fallback("deny")` denies; `opsmith explain sin` says why. Add a kernel for it to one of '
        "the backend's libraries:\n"
        "  - op: sin\n"
        "    kernel_name: sim::sin\n"
        "or leave the `with` block that denies it."
    )
    assert opsmith.fallbacks()["sin"].denied == 1
    with opsmith.fallback("deny", only=["cos"]):
        x.sin()
        with pytest.raises(NotImplementedError, match="its kernel runs on the host, on copies"):
            x.cos_()  # the whole group


def test_a_process_denies_the_fallback_alone(
    x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opsmith.fallback("deny", host_kernels="allow"):
        x.sin()
        with pytest.raises(NotImplementedError, match="it would fall back"):
            x.lgamma()
    monkeypatch.setenv("OPSMITH_HOST_KERNELS", "allow")
    with opsmith.fallback("deny"):
        x.sin()
    monkeypatch.setenv("OPSMITH_HOST_KERNELS", "alow")
    with pytest.raises(PolicyInvalid) as invalid, opsmith.fallback("deny"):
        pass
    assert str(invalid.value).startswith(
        "`OPSMITH_HOST_KERNELS=alow` is no policy for kernels that run on the host (did you mean allow?)"
    )


def test_a_process_is_warned_of_them(x: torch.Tensor) -> None:
    with opsmith.fallback("warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x.sin()
    assert [str(each.message).partition(" (Trig")[0] for each in caught] == [
        "aten::sin runs on the CPU, because its kernel runs on the host, on copies; `opsmith explain sin` "
        "says why"
    ]


def test_their_time_is_the_hosts(x: torch.Tensor) -> None:
    with profile() as profiled:
        x.sin()
    of_device = [each for each in profiled.events() if each.device_type != DeviceType.CPU]
    assert [each.name for each in of_device] == ["Memcpy DtoH", "Memcpy HtoD"]
    rows = {each.key: each for each in profiled.key_averages()}
    kernel = rows["aten::sin on the host, on copies"]
    assert kernel.cpu_time_total > kernel.device_time_total == 0
    copies = sum(each.time_range.elapsed_us() for each in of_device)
    assert rows["aten::sin"].device_time_total == pytest.approx(copies)
