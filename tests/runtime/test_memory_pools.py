"""Private pools of memory, and the count of pinned memory, as ``torch.cuda`` has them."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch

import needs
from opsmith.errors import NotOffered
from refusal import refusal

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

BYTES = 12 << 20  # a segment of its own


@pytest.fixture
def empty_cache(sim: LoadedBackend) -> None:
    torch.sim.synchronize()
    torch.sim.empty_cache()


def large(device: str = "sim") -> torch.Tensor:
    return torch.zeros(BYTES, dtype=torch.uint8, device=device)


def test_memory_of_a_pool_serves_the_pool_alone(empty_cache: None) -> None:
    pool = torch.sim.MemPool()
    assert pool.id[0] == 0 < pool.id[1] and pool.use_count() == 1
    with torch.sim.use_mem_pool(pool):
        assert pool.use_count() == 2
        first = large()
    address = first.data_ptr()
    (segment,) = pool.snapshot()
    assert (segment["address"], segment["total_size"]) == (address, BYTES)
    assert segment["segment_pool_id"] == pool.id
    del first
    outside = large()
    torch.sim.empty_cache()  # what the pool has stays
    assert outside.data_ptr() != address
    with torch.sim.memory.use_mem_pool(pool, "sim:0"):
        again = large()
        elsewhere: list[int] = []
        thread = threading.Thread(target=lambda: elsewhere.append(large().data_ptr()))
        thread.start()
        thread.join()
    assert again.data_ptr() == address != elsewhere[0]
    del again
    reserved = torch.sim.memory_reserved()
    del pool
    assert torch.sim.memory_reserved() == reserved  # kept, for everybody now
    torch.sim.empty_cache()
    assert torch.sim.memory_reserved() == reserved - 2 * BYTES  # the thread's, too
    del outside


def test_pools_are_entered_within_each_other_and_on_other_devices(empty_cache: None) -> None:
    outer, inner = torch.sim.MemPool(), torch.sim.MemPool()
    with torch.sim.use_mem_pool(outer):
        with pytest.raises(KeyError), torch.sim.use_mem_pool(inner):
            kept = [large()]
            raise KeyError
        kept.append(large())
        kept.append(large("sim:1"))
    kept.append(large())
    assert [len(each.snapshot()) for each in (outer, inner)] == [1, 1]
    with torch.sim.use_mem_pool(outer, 1):
        kept.append(large("sim:1"))
        assert {each["device"] for each in outer.snapshot()} == {0, 1}
    assert {each["device"] for each in outer.snapshot()} == {0}  # nobody holds it there
    assert sum(each["segment_pool_id"] == (0, 0) for each in torch.sim.memory_snapshot()) >= 3


@needs.feature("GRAPHS")
def test_a_graph_is_recorded_in_a_pool(empty_cache: None) -> None:
    pool = torch.sim.MemPool()
    x = torch.ones(BYTES, dtype=torch.uint8, device="sim")
    graph = torch.sim.SimGraph()
    with torch.sim.graph(graph, pool=pool.id):
        y = x + 1
    assert graph.pool() == pool.id and pool.use_count() == 2
    assert y.data_ptr() in {each["address"] for each in pool.snapshot()}
    x.fill_(4)
    graph.replay()
    assert y.unique().tolist() == [5]


@pytest.mark.parametrize(
    ("name", "value"), [("allocator", object()), ("use_on_oom", True), ("no_split", True)]
)
def test_options_that_a_pool_does_not_have(sim: LoadedBackend, name: str, value: object) -> None:
    assert refusal(NotOffered, torch.sim.MemPool, **{name: value}) == (
        f"a MemPool has no `{name}`: its memory is the driver's, cut and kept as the rest\n"
        f"  remedy: leave out `{name}`"
    )


def test_pinned_memory_is_counted(sim: LoadedBackend) -> None:
    torch.sim.reset_peak_host_memory_stats()
    before = torch.sim.host_memory_stats()
    pinned = torch.empty(1000, dtype=torch.uint8, pin_memory=True)
    during = torch.sim.memory.host_memory_stats()
    for name, more in {"active_requests": 1, "allocations": 1}.items():
        assert during[f"{name}.current"] == before[f"{name}.current"] + more
    for name in ("active_bytes", "allocated_bytes"):
        assert during[f"{name}.current"] == before[f"{name}.current"] + 1000
        assert during[f"{name}.peak"] >= during[f"{name}.current"]
    assert during["num_host_alloc"] == before["num_host_alloc"] + 1
    del pinned
    after = torch.sim.host_memory_stats_as_nested_dict()
    assert after["active_bytes"]["current"] == before["active_bytes.current"]
    assert after["active_bytes"]["peak"] == during["active_bytes.peak"]
    assert after["num_host_free"] == before["num_host_free"] + 1
    torch.sim.reset_peak_host_memory_stats()
    torch.sim.reset_accumulated_host_memory_stats()
    reset = torch.sim.host_memory_stats()
    assert reset["active_bytes.peak"] == reset["active_bytes.current"]
    assert reset["num_host_alloc"] == reset["num_host_free"] == 0
