"""``torch.profiler`` on a device: its work in the table and in the Chrome trace, memory, ranges."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loaded import DEVICE, DRIVER, MODE, fault
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from host_window import HAS_HOST_WINDOW

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)

HAS_WINDOW = MODE == "zero_copy" and HAS_HOST_WINDOW
BOTH = (ProfilerActivity.CPU, ProfilerActivity.PrivateUse1)
SLOW = 20_000  # microseconds for each piece of work on a stream
WORK = ("kernel", "gpu_memcpy")  # of the device
Event = dict[str, Any]


class Trace:
    """A Chrome trace: its events by their category, and operators by the number that others link to."""

    def __init__(self, path: Path) -> None:
        self.all: list[Event] = json.loads(path.read_text())["traceEvents"]
        self.operators = {each["args"]["External id"]: each for each in self.of("cpu_op")}

    def of(self, *categories: str) -> list[Event]:
        return [each for each in self.all if each.get("cat") in categories]

    def names(self, *categories: str) -> list[str]:
        return [each["name"] for each in self.of(*categories)]

    def of_host(self) -> list[Event]:
        """The events of the host's work in the device's place."""
        return [each for each in self.of("privateuse1_runtime") if each["name"] != "sim launch"]

    def launches(self) -> list[Event]:
        return [each for each in self.of("privateuse1_runtime") if each["name"] == "sim launch"]

    def work(self, name: str) -> Event:
        (found,) = [each for each in (*self.of(*WORK), *self.of_host()) if each["name"] == name]
        return found

    def caller(self, work: Event) -> str:
        """The name of the operator that launched it."""
        name: str = self.operators[work["args"]["External id"]]["name"]
        return name


@pytest.fixture
def traced(tmp_path: Path) -> Callable[..., Trace]:
    def run(program: Callable[[], object], **options: Any) -> Trace:
        with profile(activities=BOTH, **options) as profiled:
            program()
        path = tmp_path / "trace.json"
        profiled.export_chrome_trace(str(path))
        return Trace(path)

    return run


# ---- events ----


def test_copies_and_fallbacks_are_events_that_their_operators_launched(
    traced: Callable[..., Trace],
) -> None:
    def program() -> None:
        x = torch.rand(50, 100).to(DEVICE)
        y = x.clone().cumsum(0)
        y.flatten()[3].item()

    trace = traced(program)
    of_fallback = [("Memcpy DtoH", "aten::cumsum", 20_000), ("Memcpy HtoD", "aten::cumsum", 20_000)]
    assert [
        (each["name"], trace.caller(each), each["args"]["bytes"]) for each in trace.of(*WORK)
    ] == [
        ("Memcpy HtoD", "aten::_copy_from", 20_000),
        ("Memcpy DtoD", "aten::_copy_from", 20_000),
        *([] if HAS_WINDOW else of_fallback),
        ("Memcpy DtoH", "aten::_local_scalar_dense", 4),
    ]
    assert {(each["pid"], each["tid"]) for each in trace.of(*WORK)} == {(0, 0)}
    (fallback,) = trace.of_host()
    caller = trace.operators[fallback["args"]["External id"]]
    assert (fallback["name"], caller["name"]) == ("fallback of aten::cumsum", "aten::cumsum")
    assert (fallback["pid"], fallback["tid"]) == (caller["pid"], caller["tid"])
    assert fallback["args"]["bytes"] == (0 if HAS_WINDOW else 40_000)


def test_an_arrow_leads_from_the_operator_to_its_work(traced: Callable[..., Trace]) -> None:
    x = torch.rand(50, device=DEVICE)
    trace = traced(lambda: x.clone())
    (start,) = [each for each in trace.of("ac2g") if each["ph"] == "s"]
    (end,) = [each for each in trace.of("ac2g") if each["ph"] == "f"]
    (launch,) = trace.launches()
    work = trace.work("Memcpy DtoD")
    assert start["id"] == end["id"] == work["args"]["correlation"]
    assert (start["tid"], start["ts"]) == (launch["tid"], launch["ts"])
    assert start["tid"] == trace.operators[work["args"]["External id"]]["tid"]
    assert (end["pid"], end["tid"], end["ts"]) == (work["pid"], work["tid"], work["ts"])


def test_streams_and_devices_have_tracks_of_their_own(traced: Callable[..., Trace]) -> None:
    x, y = torch.ones(8, device="sim:0"), torch.ones(8, device="sim:1")
    stream = torch.Stream("sim:1")

    def program() -> None:
        x.clone()
        with stream:
            y.clone()

    trace = traced(program)
    places = [(each["pid"], each["tid"]) for each in trace.of(*WORK)]
    assert places == [(0, 0), (1, stream.stream_id)]
    tracks = {
        (each["name"], each["pid"], each["tid"]): each["args"]["name"]
        for each in trace.all
        if each["name"] in ("process_name", "thread_name") and each["pid"] in (0, 1)
    }
    assert tracks == {
        ("process_name", 0, 0): "sim:0",
        ("process_name", 1, 0): "sim:1",
        ("thread_name", 0, 0): "stream 0",
        ("thread_name", 1, stream.stream_id): f"stream {stream.stream_id}",
    }


def test_what_a_stream_does_later_is_timed_by_the_stream(traced: Callable[..., Trace]) -> None:
    x = torch.ones(8, device=DEVICE)
    with fault("slow", SLOW):
        trace = traced(lambda: (x.clone(), x.clone()))
    first, second = trace.of("gpu_memcpy")
    for copy in (first, second):
        assert copy["dur"] >= SLOW
        assert copy["ts"] >= trace.operators[copy["args"]["External id"]]["ts"]
    assert second["ts"] + 1 >= first["ts"] + first["dur"]  # one after the other


def test_a_copy_that_casts_is_the_hosts_without_a_window(traced: Callable[..., Trace]) -> None:
    x = torch.ones(8, device=DEVICE)
    trace = traced(lambda: x.double())
    if HAS_WINDOW:
        assert trace.names(*WORK) == ["aten::_copy_from"]
        assert trace.of_host() == []
    else:
        assert trace.names(*WORK) == ["Memcpy DtoH", "Memcpy HtoD"]
        assert [each["name"] for each in trace.of_host()] == ["fallback of aten::_copy_from"]


def test_the_table_sums_what_the_device_did_for_each_operator() -> None:
    weight = torch.rand(30, 30, device=DEVICE, requires_grad=True)
    with profile(activities=BOTH) as profiled:
        (weight @ weight.clone()).cumsum(0).sum().backward()
    table = profiled.key_averages().table(sort_by="self_device_time_total")
    assert "Self SIM" in table and "SIM total" in table
    times = {each.key: each.device_time_total for each in profiled.key_averages()}
    own = {each.key: each.self_device_time_total for each in profiled.key_averages()}
    of_cpu = {each.key: each.cpu_time_total for each in profiled.key_averages()}
    assert times["aten::clone"] >= own["aten::_copy_from"] == times["Memcpy DtoD"] > 0
    # A fallback is the host's; without a window, the copies for it are the device's.
    assert of_cpu["fallback of aten::mm"] > times["fallback of aten::mm"] == 0
    assert (times["aten::mm"] == own["aten::mm"]) and (own["aten::mm"] == 0) == HAS_WINDOW


def test_memory_events_tell_their_device(traced: Callable[..., Trace]) -> None:
    trace = traced(lambda: torch.empty(1000, device="sim:1"), profile_memory=True)
    events = [each["args"] for each in trace.of("cpu_instant_event") if each["name"] == "[memory]"]
    got, given_back = (each for each in events if each["Device Id"] == 1)
    assert got["Device Type"] == 20  # c10::kPrivateUse1
    assert got["Bytes"] == -given_back["Bytes"] >= 4000
    assert got["Total Allocated"] >= got["Bytes"]
    assert got["Total Reserved"] >= got["Total Allocated"]


# ---- programs ----


def test_every_piece_of_a_training_step_has_its_operator(traced: Callable[..., Trace]) -> None:
    model = torch.nn.Linear(20, 10).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.rand(30, 20, device=DEVICE)

    def step() -> None:
        with record_function("forward"):
            loss = model(x).sigmoid().sum()
        loss.backward()
        optimizer.step()

    step()
    trace = traced(step, profile_memory=True, record_shapes=True, with_stack=True)
    work = [*trace.of(*WORK), *trace.of_host()]
    assert all("External id" in each["args"] for each in work)
    # As many threads as the operators': the backward's may be autograd's own.
    threads = {trace.operators[each["args"]["External id"]]["tid"] for each in work}
    assert threads == {each["tid"] for each in trace.of("privateuse1_runtime")}
    of_device = [] if HAS_WINDOW else ["forward", "Optimizer.step#SGD.step"]
    assert trace.names("gpu_user_annotation") == of_device
    (forward,) = [each for each in trace.of("user_annotation") if each["name"] == "forward"]
    callers = [
        trace.caller(each)
        for each in trace.of_host()
        if each["ts"] < forward["ts"] + forward["dur"]
    ]
    assert callers == ["aten::addmm", "aten::sigmoid", "aten::sum"]


def test_a_schedule_gives_each_cycle_its_own_events(tmp_path: Path) -> None:
    operators = iter((torch.sin, torch.cos, torch.tan, torch.abs, torch.neg, torch.exp))
    traces: list[Trace] = []

    def keep(profiled: profile) -> None:
        path = tmp_path / f"{len(traces)}.json"
        profiled.export_chrome_trace(str(path))
        traces.append(Trace(path))

    x = torch.rand(8, device=DEVICE)
    plan = schedule(wait=1, warmup=1, active=1, repeat=2)
    with profile(activities=BOTH, schedule=plan, on_trace_ready=keep) as profiled:
        for operator in operators:
            operator(x)
            profiled.step()
    assert [[each["name"] for each in trace.of_host()] for trace in traces] == [
        ["fallback of aten::tan"],
        ["fallback of aten::exp"],
    ]


def test_an_exception_ends_a_profile_and_the_next_one_is_whole(
    traced: Callable[..., Trace],
) -> None:
    x = torch.rand(8, device=DEVICE)

    def fails() -> None:
        x.sin()
        x.view(3, 3)

    with pytest.raises(RuntimeError, match="invalid for input of size 8"):
        traced(fails)
    x.cos()
    trace = traced(lambda: x.tan())
    assert [each["name"] for each in trace.of_host()] == ["fallback of aten::tan"]


def test_work_of_a_thread_that_is_not_profiled_has_no_operator(
    traced: Callable[..., Trace],
) -> None:
    x = torch.rand(8, device=DEVICE)

    def program() -> None:
        thread = threading.Thread(target=x.clone)
        thread.start()
        thread.join()
        x.cos()

    trace = traced(program)
    assert "External id" not in trace.work("Memcpy DtoD")["args"]
    assert trace.caller(trace.work("fallback of aten::cos")) == "aten::cos"


def test_the_cpu_alone_is_profiled_without_the_device() -> None:
    x = torch.rand(8, device=DEVICE)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        x.sin()
    assert {event.device_type for event in profiled.events()} == {DeviceType.CPU}
    assert {event.name for event in profiled.events()} >= {"aten::sin"}
    assert all(event.device_time_total == 0 for event in profiled.key_averages())


# ---- ranges ----


def test_ranges_of_the_program_reach_the_driver() -> None:
    nvtx = torch.sim.nvtx
    with DRIVER.recorded_ranges() as lines:
        assert nvtx.range_push("epoch 1") == 0
        with nvtx.range("step {}", 3):
            assert nvtx.range_push("inner") == 2
            nvtx.mark("here")
            assert nvtx.range_pop() == 2
        assert nvtx.range_pop() == 0
    assert lines == ["+epoch 1", "+step 3", "+inner", "+here", "-", "-", "-", "-"]


def test_a_range_that_is_not_open_is_not_closed() -> None:
    with pytest.raises(RuntimeError) as error:
        torch.sim.nvtx.range_pop()
    assert str(error.value).splitlines()[0] == (
        "range_pop() closes what range_push() opened, and no range is open in this thread. "
        "Use `with range(...):`, which closes its own."
    )


def test_operators_can_be_ranges() -> None:
    x = torch.rand(8, device=DEVICE, requires_grad=True)
    with DRIVER.recorded_ranges() as lines:
        with torch.sim.nvtx.emit(), record_function("mine"), torch.sim.nvtx.range("pushed"):
            x.exp()
        x.exp()
    assert lines == ["+mine", "+pushed", "+aten::exp", "-", "-", "-"]
