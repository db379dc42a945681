"""Kernels in ``torch.profiler``: on the host, on copies, and on the device, which does them later."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

import opsmith
from sim_driver import SimDriver

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("windowed", "copying"))
MODE = os.environ["OPSMITH_TEST_BACKEND"]
LOADED = opsmith.load(str(Path(__file__).with_name(f"{MODE}.yaml")))
DRIVER = SimDriver(LOADED.built.driver)
DEVICE = "leansim"
SLOW = 20_000  # microseconds


def work_of(profiled: profile) -> list[FunctionEvent]:
    return [event for event in profiled.events() if event.device_type != DeviceType.CPU]


def times(profiled: profile) -> dict[str, float]:
    return {each.key: each.device_time_total for each in profiled.key_averages()}


def test_kernels_on_the_host_are_one_event_each() -> None:
    x, y = torch.rand(2, 3).to(DEVICE), torch.rand(2, 3).to(DEVICE)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        torch.cat([x * y, y])
    events = work_of(profiled)
    if MODE == "copying":  # the kernels are the host's, and the copies for them the device's
        assert [event.name for event in events] == ["Memcpy DtoH", "Memcpy DtoH", "Memcpy HtoD"] * 2
        of_host = [event.name for event in profiled.events() if "on copies" in event.name]
        assert of_host == [
            "aten::mul.Tensor on the host, on copies",
            "aten::cat on the host, on copies",
        ]
        return
    assert [event.name for event in events] == ["aten::mul.Tensor", "aten::cat"]
    of_operators = times(profiled)
    for event in events:
        operator, _, _ = event.name.partition(".")
        assert of_operators[operator] == pytest.approx(event.device_time) and event.device_time > 0


def test_kernels_on_the_device_are_timed_by_the_device() -> None:
    x, y = torch.rand(2, 3).to(DEVICE), torch.rand(2, 3).to(DEVICE)
    stream = torch.Stream(DEVICE)
    stream.wait_stream(torch.accelerator.current_stream())
    DRIVER.inject("slow", SLOW)
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
            with stream:
                torch.atan2(x, y)
                torch.atan2(y, x)
            stream.synchronize()
    finally:
        DRIVER.clear_faults()
    first, second = work_of(profiled)
    for event in (first, second):
        assert event.name == "aten::atan2"
        assert event.device_resource_id == stream.stream_id
        assert event.device_time >= SLOW
    assert times(profiled)["aten::atan2"] == pytest.approx(first.device_time + second.device_time)
