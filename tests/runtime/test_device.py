"""The device as PyTorch sees it: memory, streams, events, random numbers, failures."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import gc
import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fork_server
from host_window import HAS_HOST_WINDOW
from opsmith.build.csrc import PUBLIC_HEADERS
from opsmith.build.toolchain import find_compiler
from refusal import refusal
from sim_driver import SimDriver

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

TESTS = Path(__file__).parents[1]
MILLISECOND = 1000  # what the fault `slow` counts in
FORKED = (
    "Cannot re-initialize sim in forked subprocess. To use sim with multiprocessing, you must use the "
    "'spawn' start method: torch.multiprocessing.set_start_method(\"spawn\")"
)


def run_child(sim: LoadedBackend, code: str) -> Any:
    """Runs ``code`` in another process that has the sim libraries' paths; returns the JSON that it prints."""
    head = f"""
import json, os, sys
sys.path.insert(0, {str(TESTS)!r})
import torch
library, driver = {str(sim.built.library)!r}, {str(sim.built.driver)!r}
def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
"""
    command = [sys.executable, "-c", head + dedent(code)]
    result = fork_server.run(command, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


# ---- devices ----


def test_the_module_tells_of_two_devices(sim: LoadedBackend) -> None:
    assert torch.sim.is_available()
    assert torch.sim.device_count() == torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device("sim")
    properties = torch.sim.get_device_properties("sim:1")
    assert torch.sim.get_device_name(1) == properties.name == "sim accelerator"
    assert properties.total_memory == torch.sim.mem_get_info(1)[1]


def test_the_current_device_is_where_tensors_go(sim: LoadedBackend) -> None:
    assert torch.empty(1, device="sim").device == torch.device("sim:0")
    with torch.sim.device(1):
        assert torch.sim.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device="sim").device == torch.device("sim:1")
        with torch.sim.device("sim:0"), torch.sim.device(None):
            assert torch.empty(1, device="sim").device == torch.device("sim:0")
        assert torch.sim.current_device() == 1
    assert torch.sim.current_device() == 0


def test_a_guard_is_undone_by_an_exception(sim: LoadedBackend) -> None:
    with pytest.raises(KeyError), torch.sim.device(1):
        raise KeyError
    assert torch.sim.current_device() == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.empty(1, device="sim:2"),
        lambda: torch.ones(1).to("sim:2"),
        lambda: torch.sim.set_device(2),
        lambda: torch.accelerator.set_device_index(2),
        lambda: torch.sim.get_device_properties(2),
        lambda: torch.sim.memory_allocated(2),
        lambda: torch.Stream(device="sim:2"),
        lambda: torch.sim.get_rng_state(2),
        lambda: torch.Generator(device="sim:2"),
    ],
)
def test_an_index_out_of_range(sim: LoadedBackend, use: Any) -> None:
    assert refusal(RuntimeError, use) == "sim:2 does not exist: there are 2 devices, sim:0 to sim:1"
    assert torch.sim.current_device() == 0


def test_the_module_refuses_other_devices(sim: LoadedBackend) -> None:
    with pytest.raises(ValueError, match="expected a sim device, but got cpu"):
        torch.sim.synchronize("cpu")


def test_tensors_move_between_devices(sim: LoadedBackend) -> None:
    data = torch.randn(300, 500)
    moved = data.to("sim:0").to("sim:1")
    assert moved.device == torch.device("sim:1")
    assert torch.equal(moved.cpu(), data)


# ---- memory: the cache is that of opsmith_caching_allocator.h, see test_caching_allocator.py ----


@pytest.fixture
def no_cache(sim: LoadedBackend) -> None:
    """Before the test the cache is empty on every device: what is held is held by tensors."""
    gc.collect()
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)
    torch.sim.empty_cache()


def test_statistics_follow_allocations(no_cache: None) -> None:
    before = torch.accelerator.memory_allocated(1)
    requested = torch.sim.memory_stats(1)["requested_bytes.all.current"]
    torch.accelerator.reset_peak_memory_stats(1)
    tensor = torch.empty(1000, device="sim:1", dtype=torch.float32)
    larger = torch.empty(2 << 20, device="sim:1", dtype=torch.uint8)
    del larger
    assert torch.sim.memory_allocated(1) - before == 4096
    assert torch.sim.memory_stats(1)["requested_bytes.all.current"] - requested == 4000
    assert torch.sim.max_memory_allocated(1) - before == 4096 + (2 << 20)
    torch.sim.reset_peak_memory_stats(1)
    assert torch.sim.max_memory_allocated(1) - before == 4096
    del tensor
    assert torch.accelerator.memory_allocated(1) == before


def test_freed_memory_is_kept_until_the_cache_is_emptied(no_cache: None) -> None:
    free, total = torch.sim.mem_get_info(1)
    reserved = torch.sim.memory_reserved(1)
    tensor = torch.empty(30 << 20, device="sim:1", dtype=torch.uint8)
    address = tensor.data_ptr()
    del tensor
    assert torch.sim.memory_reserved(1) - reserved == 30 << 20
    assert torch.accelerator.get_memory_info(1) == (free - (30 << 20), total)
    tensor = torch.empty(30 << 20, device="sim:1", dtype=torch.uint8)
    assert tensor.data_ptr() == address
    del tensor
    torch.accelerator.empty_cache()
    assert torch.sim.memory_reserved(1) == reserved
    assert torch.accelerator.get_memory_info(1) == (free, total)


def test_an_empty_tensor_takes_no_memory(sim: LoadedBackend) -> None:
    before = torch.accelerator.memory_stats(0)["allocation.all.allocated"]
    assert torch.empty(0, 5, device="sim").data_ptr() == 0
    assert torch.accelerator.memory_stats(0)["allocation.all.allocated"] == before


def test_out_of_memory_says_what_and_what_to_do(no_cache: None, driver: SimDriver) -> None:
    keep = torch.empty(4 << 20, device="sim:1", dtype=torch.uint8)
    statistics = torch.accelerator.memory_stats(1)
    held, count = statistics["allocated_bytes.all.current"], statistics["allocation.all.current"]
    assert held == 4 << 20, "another test left memory behind on sim:1"
    with pytest.raises(torch.OutOfMemoryError) as error:
        torch.empty(8 << 30, device="sim:1", dtype=torch.uint8)
    assert str(error.value) == (
        "sim:1 out of memory. Tried to allocate 8.00 GiB: 7.98 GiB of 8.00 GiB are free, and this "
        f"process holds 20.00 MiB: 4.00 MiB in allocations ({count}) and 16.00 MiB in its cache. "
        "Delete tensors that are no longer needed, use a smaller batch, or trade memory for time with "
        f"torch.utils.checkpoint. The driver says: {8 << 30} bytes do not fit: "
        f"{(8 << 30) - (20 << 20)} of {8 << 30} bytes are free on device 1"
    )
    assert torch.accelerator.memory_stats(1)["num_ooms"] == statistics["num_ooms"] + 1
    assert keep.fill_(3).sum().item() == 3 * keep.numel()


def test_the_cache_gives_way_before_memory_is_out(no_cache: None) -> None:
    retries = torch.sim.memory_stats(1)["num_alloc_retries"]
    torch.empty(5 << 30, device="sim:1", dtype=torch.uint8)
    other = torch.empty(6 << 30, device="sim:1", dtype=torch.uint8)
    assert torch.sim.memory_reserved(1) == 6 << 30
    assert torch.sim.memory_stats(1)["num_alloc_retries"] == retries + 1
    del other
    torch.sim.empty_cache()


def test_memory_may_be_limited(no_cache: None) -> None:
    torch.sim.set_per_process_memory_fraction(0.25, 1)
    assert torch.sim.get_per_process_memory_fraction(1) == 0.25
    with pytest.raises(torch.OutOfMemoryError) as error:
        torch.empty(3 << 30, device="sim:1", dtype=torch.uint8)
    torch.sim.set_per_process_memory_fraction(1.0, 1)
    assert "this process holds 0 bytes of the 2.00 GiB that it may" in str(error.value)
    assert str(error.value).endswith(
        "set_per_process_memory_fraction() sets what the process may hold."
    )
    torch.empty(3 << 30, device="sim:1", dtype=torch.uint8)
    torch.sim.empty_cache()
    assert refusal(ValueError, torch.sim.set_per_process_memory_fraction, 1.5) == (
        "the fraction must be from 0 to 1, not 1.5"
    )
    assert refusal(TypeError, torch.sim.set_per_process_memory_fraction, 1) == (
        "the fraction must be a float, not int"
    )


def test_a_failed_allocation_can_be_tried_again(no_cache: None, driver: SimDriver) -> None:
    driver.inject("allocate", 100)
    with pytest.raises(torch.OutOfMemoryError, match="The driver says: injected fault: allocate"):
        torch.empty(30 << 20, device="sim")
    driver.clear_faults()
    torch.empty(30 << 20, device="sim", dtype=torch.uint8)
    driver.inject("allocate", 1)  # the allocator itself tries again, since its cache can make room
    assert torch.zeros(40 << 20, device="sim", dtype=torch.uint8).max().item() == 0


def test_memory_is_used_again_by_what_is_queued_later(
    sim: LoadedBackend, driver: SimDriver
) -> None:
    stream = torch.Stream(device="sim:0")
    pinned = torch.full((64,), 7.0).pin_memory()
    with stream:
        tensor = torch.empty(64, device="sim")
        address = tensor.data_ptr()
        driver.inject("slow", 100 * MILLISECOND)
        tensor.copy_(pinned, non_blocking=True)
        del tensor
        other = torch.empty(64, device="sim")
        assert not stream.query()
        assert other.data_ptr() == address
        other.fill_(2)
        assert other.tolist() == [2.0] * 64


def test_record_stream_keeps_memory_for_another_stream(
    sim: LoadedBackend, driver: SimDriver
) -> None:
    stream = torch.Stream(device="sim:0")
    tensor = torch.full((64,), 7.0, device="sim")  # on the default stream
    address = tensor.data_ptr()
    target = torch.empty(64).pin_memory()
    driver.inject("slow", 100 * MILLISECOND)
    with stream:
        target.copy_(tensor, non_blocking=True)
    tensor.record_stream(stream)
    del tensor
    stats = torch.sim.memory_stats()
    assert stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"] == 512
    others = [torch.empty(64, device="sim") for _ in range(3)]
    assert address not in [other.data_ptr() for other in others]
    stream.synchronize()
    assert target.tolist() == [7.0] * 64
    assert torch.zeros(64, device="sim").data_ptr() == address


def test_the_snapshot_is_what_pytorchs_visualiser_opens(no_cache: None, tmp_path: Path) -> None:
    from torch.cuda import _memory_viz

    torch.sim.memory._record_memory_history(max_entries=1000)
    kept = torch.ones(1000, device="sim:1")
    large = torch.empty(3 << 20, device="sim:1")
    del large
    torch.sim.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    torch.sim.memory._record_memory_history(None)
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    (small, alone) = [each for each in snapshot["segments"] if each["device"] == 1]
    assert (small["segment_type"], small["total_size"], small["allocated_size"]) == (
        "small", 2 << 20, 4096
    )  # fmt: skip
    assert (alone["segment_type"], alone["total_size"], alone["active_size"]) == (
        "large", 12 << 20, 0
    )  # fmt: skip
    block = small["blocks"][0]
    assert (block["state"], block["requested_size"]) == ("active_allocated", 4000)
    assert [block["state"] for block in alone["blocks"]] == ["inactive"]
    assert Path(block["frames"][0]["filename"]).name == Path(__file__).name
    actions = [entry["action"] for entry in snapshot["device_traces"][1]]
    assert actions == [
        "segment_alloc", "alloc", "segment_alloc", "alloc", "free_requested", "free_completed"
    ]  # fmt: skip
    of_device = {"segments": [small, alone], "device_traces": [snapshot["device_traces"][1]]}
    assert "total_reserved: 14.0MiB" in _memory_viz.segsum({**snapshot, **of_device})
    assert "6 entries" in _memory_viz.trace({**snapshot, **of_device})
    assert torch.sim.memory_snapshot()[0].keys() == small.keys()
    del kept


def test_the_summary_is_a_table(no_cache: None) -> None:
    kept = torch.empty(1000, device="sim:1")
    lines = torch.sim.memory_summary(1, abbreviated=True).splitlines()
    assert lines[0].startswith("memory of device 1: out of memory ")
    assert lines[2].split() == ["current", "peak", "allocated", "freed"]
    (allocated,) = [line.split() for line in lines if line.startswith("allocated memory")]
    assert allocated[2:4] == ["4.00", "KiB"]
    (pool, *_) = [
        line.split() for line in torch.sim.memory_summary(1).splitlines() if "small pool" in line
    ]
    assert pool[2:4] == ["4.00", "KiB"]
    assert kept.numel() == 1000


def test_a_storage_can_be_resized(sim: LoadedBackend) -> None:
    storage = torch.arange(10, device="sim", dtype=torch.uint8).untyped_storage()
    storage.resize_(20)
    assert storage.nbytes() == 20
    assert list(storage.cpu())[:10] == list(range(10))
    storage.resize_(4)
    assert list(storage.cpu()) == [0, 1, 2, 3]
    storage.resize_(0)
    assert storage.data_ptr() == 0


def test_nothing_leaks(no_cache: None, driver: SimDriver) -> None:
    before = driver.statistics(0)
    model = torch.nn.Linear(2048, 2048).to("sim")  # of a size that has segments of its own
    model(torch.ones(4, 2048, device="sim")).sum().backward()
    del model
    gc.collect()
    torch.sim.empty_cache()
    after = driver.statistics(0)
    assert after.allocations > before.allocations
    assert after.live_bytes == before.live_bytes


def test_settings_of_the_allocator(sim: LoadedBackend) -> None:
    seen = run_child(
        sim,
        """
        import opsmith
        errors = []
        for text in ("max_split_size_mb:16", "debug:True,cache:off"):
            os.environ["OPSMITH_ALLOC_CONF"] = text
            errors.append(error_of(lambda: opsmith.load("sim")))
        os.environ["OPSMITH_ALLOC_CONF"] = "backend:none"
        opsmith.load("sim")
        tensor = torch.ones(10, device="sim")
        held = torch.sim.memory_reserved()
        del tensor
        print(json.dumps([errors, torch.sim.get_allocator_backend(), held, torch.sim.memory_reserved()]))
        """,
    )
    errors, backend, held, after = seen
    assert [error.partition("OPSMITH_ALLOC_CONF")[2].partition("\n")[0] for error in errors] == [
        " is `max_split_size_mb:16`: its option `max_split_size_mb` must be a whole number above 20, "
        "not `16`",
        " is `debug:True,cache:off`: it has no option `cache`; known are backend (native or none), "
        "max_split_size_mb (a number above 20), garbage_collection_threshold (between 0 and 1), "
        "per_process_memory_fraction (from 0 to 1) and debug (True or False)",
    ]
    assert all("OPSMITH_ALLOC_CONF=max_split_size_mb:64" in error for error in errors)
    assert (backend, held, after) == ("none", 40, 0)


# ---- streams and events ----


def test_streams_are_distinct_and_selectable(sim: LoadedBackend) -> None:
    default = torch.sim.default_stream(1)
    stream, urgent = torch.Stream(device="sim:1"), torch.Stream(device="sim:1", priority=-1)
    assert len({default, stream, urgent}) == 3
    assert torch.sim.current_stream(1) == default
    with torch.sim.stream(stream):
        assert torch.sim.current_stream() == stream
        assert torch.sim.current_device() == 1
        with torch.sim.stream(None):
            assert torch.sim.current_stream() == stream
    assert torch.sim.current_stream(1) == default
    assert torch.sim.current_device() == 0


def test_a_stream_that_nobody_made(sim: LoadedBackend) -> None:
    device_type = torch.sim.current_stream().device_type
    with pytest.raises(RuntimeError) as error:
        torch.Stream(stream_id=1000, device_index=0, device_type=device_type).synchronize()
    assert str(error.value) == (
        'sim:0 has no stream with id 1000; create one with torch.Stream(device="sim:0")'
    )


def test_events_time_and_order_streams(sim: LoadedBackend, driver: SimDriver) -> None:
    first, second = torch.Stream(device="sim"), torch.Stream(device="sim")
    tensor = torch.zeros(64, device="sim")
    sources = [torch.full((64,), float(step)).pin_memory() for step in range(4)]
    target = torch.empty(64).pin_memory()
    start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
    driver.inject("slow", 20 * MILLISECOND)
    with first:
        start.record()
        for source in sources:
            tensor.copy_(source, non_blocking=True)
        end.record()
    with second:
        second.wait_event(end)
        target.copy_(tensor, non_blocking=True)
    assert not end.query()
    second.synchronize()
    assert end.query()
    assert target.tolist() == [3.0] * 64
    assert start.elapsed_time(end) >= 4 * 20


def test_wait_stream_and_synchronize(sim: LoadedBackend, driver: SimDriver) -> None:
    stream = torch.Stream(device="sim")
    tensor = torch.zeros(64, device="sim")
    source = torch.full((64,), 5.0).pin_memory()
    driver.inject("slow", 20 * MILLISECOND)
    with stream:
        tensor.copy_(source, non_blocking=True)
    torch.sim.current_stream().wait_stream(stream)
    assert tensor.cpu().tolist() == [5.0] * 64
    with stream:
        tensor.copy_(source, non_blocking=True)
    assert not stream.query()
    torch.sim.synchronize()
    assert stream.query()


def test_an_event_stays_on_its_device(sim: LoadedBackend) -> None:
    event = torch.Event(device="sim")
    event.record(torch.sim.current_stream(0))
    assert refusal(RuntimeError, lambda: event.record(torch.sim.current_stream(1))) == (
        "an event that was recorded on sim:0 cannot be recorded on sim:1; "
        "use an event for each device"
    )


# ---- pinned memory ----


def test_pinned_memory(sim: LoadedBackend) -> None:
    plain = torch.arange(5.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and pinned[2:].is_pinned() and not plain.is_pinned()
    assert pinned.device == torch.device("cpu")
    assert pinned.tolist() == plain.tolist()
    assert torch.empty(0).pin_memory().tolist() == []


def test_pinned_memory_outlives_the_copy(sim: LoadedBackend, driver: SimDriver) -> None:
    stream = torch.Stream(device="sim")
    tensor = torch.empty(1 << 16, device="sim")
    source = torch.full((1 << 16,), 2.0).pin_memory()
    driver.inject("slow", 20 * MILLISECOND)
    with stream:
        tensor.copy_(source, non_blocking=True)
    del source
    rubbish = torch.full((1 << 16,), -1.0).pin_memory()  # may reuse what was released
    stream.synchronize()
    assert tensor.sum().item() == 2.0 * (1 << 16)
    assert rubbish[0].item() == -1.0


# ---- random numbers ----


def test_a_generators_state_can_be_kept(sim: LoadedBackend) -> None:
    generator = torch.Generator(device="sim:1").manual_seed(1)
    state = generator.get_state()
    first = torch.randn(5, device="sim:1", generator=generator)
    copy = generator.clone_state()
    generator.set_state(state)
    assert torch.equal(torch.randn(5, device="sim:1", generator=generator).cpu(), first.cpu())
    assert torch.equal(copy.get_state(), generator.get_state())
    assert copy.device == torch.device("sim:1")


def test_manual_seed_reaches_every_device(sim: LoadedBackend) -> None:
    def draw() -> list[torch.Tensor]:
        return [torch.randn(4, device=f"sim:{index}").cpu() for index in range(2)]

    torch.manual_seed(11)
    first = draw()
    assert torch.sim.initial_seed() == 11
    others = draw()
    torch.manual_seed(11)
    assert all(map(torch.equal, draw(), first))
    assert not any(map(torch.equal, others, first))


def test_rng_state_and_fork_rng(sim: LoadedBackend) -> None:
    state = torch.sim.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="sim"):
        inside = torch.rand(3, device="sim").cpu()
    assert torch.equal(torch.sim.get_rng_state(), state)
    assert torch.equal(torch.rand(3, device="sim").cpu(), inside)


# ---- failures ----


def test_a_failed_copy(sim: LoadedBackend, driver: SimDriver) -> None:
    tensor = torch.ones(3, device="sim")
    driver.inject("copy", 1)
    assert refusal(torch.AcceleratorError, tensor.cpu) == (
        "could not copy a tensor to the host on sim:0: injected fault: copy (OPSMITH_FAILED). "
        "The device is still usable."
    )
    assert tensor.cpu().tolist() == [1, 1, 1]


def test_a_forked_child_gets_an_error(sim: LoadedBackend) -> None:
    seen = run_child(
        sim,
        """
        from pathlib import Path
        import opsmith
        opsmith.load("sim")
        tensor = torch.ones(3, device="sim")
        read, write = os.pipe()
        if os.fork() == 0:
            errors = [error_of(call) for call in (
                lambda: torch.empty(3, device="sim"),
                lambda: tensor + 1,
                lambda: tensor.cpu(),
                lambda: torch.sim.synchronize(),
                lambda: torch.Stream(device="sim"),
                lambda: torch.ones(3).pin_memory(),
            )]
            del tensor
            torch.manual_seed(1)
            cpu = torch.ones(2, requires_grad=True)
            cpu.sum().backward()
            # The engine's threads for devices, which would race for PyTorch's pool of threads.
            threads = [Path(task, "comm").read_text() for task in Path("/proc/self/task").iterdir()]
            engines = [name for name in threads if name.startswith("pt_autograd")]
            answer = [errors, torch.sim._is_in_bad_fork(), cpu.grad.tolist(), engines]
            os.write(write, json.dumps(answer).encode())
            os._exit(0)
        os.close(write)  # else a child that dies leaves its parent waiting
        child = os.read(read, 100_000)
        assert os.wait()[1] == 0, child
        print(json.dumps([json.loads(child), tensor.tolist()]))
        """,
    )
    (errors, bad_fork, cpu_gradient, engines), parents = seen
    assert errors == [f"RuntimeError: {FORKED}"] * 6
    assert bad_fork is True
    assert cpu_gradient == [1, 1]
    assert engines == []
    assert parents == [1, 1, 1]


# ---- loading ----


@pytest.fixture(scope="session")
def shim(sim: LoadedBackend, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sim's driver without the parts that the environment's ``SHIM`` names when it is loaded."""
    folder = tmp_path_factory.mktemp("shim")
    source = folder / "shim.c"
    source.write_text(
        dedent("""
        #include <dlfcn.h>
        #include <stdlib.h>
        #include <string.h>
        #include "opsmith_driver.h"
        const opsmith_driver *opsmith_get_driver(void) {
          static opsmith_driver table;
          void *sim = dlopen(SIM, RTLD_NOW);
          table = *((opsmith_get_driver_fn)dlsym(sim, OPSMITH_GET_DRIVER_SYMBOL))();
          const char *without = getenv("SHIM");
          if (strstr(without, "table")) return NULL;
          if (strstr(without, "version")) table.abi_version = 99;
          if (strstr(without, "fill")) table.fill = NULL;
          if (strstr(without, "window")) table.host_window = NULL;
          if (strstr(without, "one event entry")) table.event_query = NULL;
          if (strstr(without, "one pinned entry")) table.pinned_contains = NULL;
          if (strstr(without, "all events")) {
            table.event_create = NULL; table.event_destroy = NULL; table.event_record = NULL;
            table.event_query = NULL; table.event_synchronize = NULL; table.event_elapsed = NULL;
            table.stream_wait_event = NULL;
          }
          if (strstr(without, "all pinned")) {
            table.pinned_allocate = NULL; table.pinned_release = NULL; table.pinned_contains = NULL;
          }
          return &table;
        }
        """)
    )
    path = folder / "libshim.so"
    command = [
        *find_compiler(folder).command,
        *("-x", "c"),
        "-shared",
        "-fPIC",
        f'-DSIM="{sim.built.driver}"',
        "-I",
        PUBLIC_HEADERS,
        source,
        "-o",
        path,
    ]
    subprocess.run([*command, "-ldl"], check=True)
    return path


def test_a_driver_that_breaks_the_contract(sim: LoadedBackend, shim: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "libnothing.so"
    (tmp_path / "nothing.c").write_text("int nothing;\n")
    command = [*find_compiler(tmp_path).command, "-x", "c", "-shared"]
    subprocess.run([*command, tmp_path / "nothing.c", "-o", nothing], check=True)
    size = SimDriver(sim.built.driver).table.struct_size
    seen = run_child(
        sim,
        f"""
        torch.ops.load_library(library)
        load = torch.ops.opsmith.load_driver
        errors = []
        for without in ["table", "version", "fill", "one event entry", "one pinned entry", "window"]:
            os.environ["SHIM"] = without
            errors.append(error_of(lambda: load({str(shim)!r}, True)))
        errors.append(error_of(lambda: load({str(nothing)!r}, True)))
        errors.append(error_of(lambda: load("/nowhere/libdriver.so", True)))
        os.environ["OPSMITH_SIM_DEVICES"] = "none"
        errors.append(error_of(lambda: load(driver, True)))
        errors.append(error_of(torch.ops.opsmith.driver_name))
        print(json.dumps(errors))
        """,
    )
    assert seen == [
        f"RuntimeError: `opsmith_get_driver` of {shim} returned NULL\n"
        "  remedy: let it return the driver's table",
        f"RuntimeError: the driver {shim} was built with version 99 of opsmith_driver.h (a table "
        f"of {size} bytes), but this opsmith has version 1 ({size} bytes)\n"
        "  remedy: rebuild the driver with this opsmith's header",
        f"RuntimeError: the driver {shim} leaves the required entry `fill` NULL\n"
        "  remedy: implement it as opsmith_driver.h says",
        f"RuntimeError: the driver {shim} has 6 of the 7 entries for events (event_* and "
        "stream_wait_event)\n  remedy: implement all of them or none",
        f"RuntimeError: the driver {shim} has 2 of the 3 entries for pinned memory (pinned_*)\n"
        "  remedy: implement all of them or none",
        f"RuntimeError: the driver {shim} has no host window (its entry `host_window` is NULL), and the "
        "description counts on one\n  remedy: add `host_window: off` to `driver` there: kernels that run "
        "on the host and the fallback then work on copies",
        f"RuntimeError: {nothing} is no opsmith driver: it does not export `opsmith_get_driver`\n"
        '  remedy: declare it extern "C" with default visibility',
        "RuntimeError: the driver cannot be opened: /nowhere/libdriver.so: cannot open shared "
        "object file: No such file or directory\n  remedy: build the driver, and make sure that "
        "the libraries it needs can be found (ldd /nowhere/libdriver.so)",
        f"RuntimeError: the driver {sim.built.driver} cannot count its devices: "
        "OPSMITH_SIM_DEVICES is 'none'; it must be an integer from 1 to 8 (OPSMITH_FAILED)\n"
        "  remedy: see what the driver says",
        "RuntimeError: no driver is loaded for the privateuseone device; "
        'call opsmith.load("<backend>") first',
    ]


def test_a_driver_without_events_and_pinned_memory(sim: LoadedBackend, shim: Path) -> None:
    seen = run_child(
        sim,
        f"""
        os.environ["SHIM"] = "all events, all pinned"
        torch.ops.load_library(library)
        torch.ops.opsmith.load_driver({str(shim)!r}, True)
        from opsmith.runtime.module.device_module import register_device_module
        torch.utils.rename_privateuse1_backend("chip")
        register_device_module("chip", {str(shim)!r}, True)
        first, second = torch.Stream(device="chip"), torch.Stream(device="chip")
        tensor = torch.ones(1000, device="chip")
        start, end = [torch.Event("chip", enable_timing=True) for _ in range(2)]
        with first:
            start.record()
            tensor.mul_(3)
            end.record()
        second.wait_event(end)
        end.synchronize()
        print(json.dumps([
            end.query(),
            tensor.sum().item(),
            error_of(lambda: start.elapsed_time(end)),
            error_of(lambda: torch.ones(3).pin_memory()),
            torch.ones(3).is_pinned(),
        ]))
        """,
    )
    assert seen == [
        True,
        3000,
        'NotImplementedError: the driver "sim" of the chip device has no events, so the time '
        "between two of them is not known; measure on the host, around "
        "torch.accelerator.synchronize()",
        'NotImplementedError: the driver "sim" of the chip device offers no pinned host '
        "memory; leave out pin_memory",
        False,
    ]


def test_a_second_driver_is_refused(sim: LoadedBackend) -> None:
    assert refusal(RuntimeError, torch.ops.opsmith.load_driver, "/some/driver.so", True) == (
        "a driver is loaded already, and PyTorch has one slot for an out-of-tree device\n"
        "  remedy: load /some/driver.so in a process of its own"
    )


def test_backward_works_on_a_device_that_came_after_a_backward(sim: LoadedBackend) -> None:
    gradient = run_child(
        sim,
        """
        import opsmith
        torch.ones(2, requires_grad=True).sum().backward()
        opsmith.load("sim")
        torch.autograd.set_multithreading_enabled(True)
        leaf = torch.ones(2, device="sim:1", requires_grad=True)
        (leaf * 3).sum().backward()
        print(json.dumps(leaf.grad.tolist()))
        """,
    )
    assert gradient == [3, 3]


def test_a_process_may_end_right_after_a_backward(sim: LoadedBackend) -> None:
    # Without stopping the autograd threads in time, nine of ten such processes abort as they end.
    for _ in range(2):
        gradient = run_child(
            sim,
            """
            import opsmith
            opsmith.load("sim")
            torch.autograd.set_multithreading_enabled(True)
            leaf = torch.ones(2, device="sim", requires_grad=True)
            leaf.sum().backward()
            print(json.dumps(leaf.grad.tolist()))
            """,
        )
        assert gradient == [1, 1]


def test_backward_runs_on_the_calling_thread_where_the_host_computes() -> None:
    """As on the CPU, whose cores compute here too: another thread would bring another OpenMP team."""
    threads = []
    leaf = torch.ones(3, device="sim:1", requires_grad=True)
    doubled = leaf * 2
    doubled.register_hook(lambda gradient: threads.append(threading.get_ident()))
    doubled.cumsum(0).sum().backward()
    assert (threads == [threading.get_ident()]) == HAS_HOST_WINDOW
    assert leaf.grad is not None
    assert (leaf.grad.device, leaf.grad.tolist()) == (torch.device("sim:1"), [6, 4, 2])
    assert torch.sim.current_device() == 0
