"""The names that programs written for ``torch.cuda`` and ``torch.xpu`` find on ``torch.sim``."""

# mypy: disable-error-code="attr-defined, import-not-found"
from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch

import needs
from opsmith.errors import NameLeftOut, NotOffered
from refusal import refusal

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

# Names of torch.xpu with its own in them, and their counterparts here.
OWN_NAMES = {"XPUGraph": "SimGraph", "XPUPluggableAllocator": "SimPluggableAllocator"}


def test_every_name_of_xpu_is_there_or_is_left_out_for_a_reason(sim: LoadedBackend) -> None:
    missing = []
    for name in torch.xpu.__all__:
        try:
            getattr(torch.sim, OWN_NAMES.get(name, name))
        except NameLeftOut as error:
            missing.append(name)
            assert "remedy: " in str(error)
    left_out = {"XPUPluggableAllocator", "change_current_allocator"}
    # Releases of PyTorch differ in which they have.
    later = {"list_gpu_processes"}
    if needs.taken_away("GRAPHS"):
        left_out.add("XPUGraph")
    assert left_out <= {*missing} <= left_out | later


def test_every_name_of_cuda_is_there_or_is_left_out_for_a_reason(sim: LoadedBackend) -> None:
    unexplained = []
    for name in torch.cuda.__all__:
        try:
            getattr(torch.sim, name)
        except NameLeftOut:
            pass
        except AttributeError as error:
            unexplained.append(str(error))
    assert unexplained == []


def test_names_are_listed(sim: LoadedBackend) -> None:
    assert {"device_count", "memory", "FloatTensor", "Stream"} <= set(torch.sim.__all__)
    assert set(torch.sim.__all__) <= set(dir(torch.sim))
    assert not [name for name in torch.sim.__all__ if name.startswith("_")]
    assert "mem_get_info" in dir(torch.sim.memory)
    star: dict[str, Any] = {}
    exec("from torch.sim import *", star)
    assert star["device_count"]() == 2


def test_what_is_left_out_says_why(sim: LoadedBackend) -> None:
    assert not hasattr(torch.sim, "CUDAGraph")
    reason = needs.taken_away("GRAPHS") or "a graph has the name of its own device"
    assert refusal(NameLeftOut, lambda: torch.sim.CUDAGraph) == (
        f"torch.sim has no `CUDAGraph`: {reason}\n"
        '  remedy: ask first, hasattr(torch.sim, "CUDAGraph"), and do without it'
    )
    assert refusal(NameLeftOut, lambda: torch.sim.memory.caching_allocator_alloc).startswith(
        "torch.sim.memory has no `caching_allocator_alloc`: opsmith's caching allocator serves the device"
    )
    for unknown in ("grpah", "cuda", "XGraph"):
        assert refusal(AttributeError, getattr, torch.sim, unknown) == (
            f"module 'torch.sim' has no attribute {unknown!r}"
        )


def test_submodules_can_be_imported(sim: LoadedBackend) -> None:
    import torch.sim.memory
    from torch.sim.amp import autocast
    from torch.sim.random import get_rng_state
    from torch.sim.streams import Stream

    assert torch.sim.memory.memory_allocated() == torch.sim.memory_allocated()
    assert Stream is torch.Stream
    assert torch.equal(get_rng_state(), torch.sim.get_rng_state())
    x = torch.ones(2, 2, device="sim")
    with autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    scaler = torch.sim.amp.GradScaler(init_scale=4.0)
    assert scaler.scale(torch.ones(1, device="sim")).item() == 4.0
    assert pickle.loads(pickle.dumps(scaler)).get_scale() == 4.0


# ---- devices ----


def test_the_capability_is_what_the_driver_tells(sim: LoadedBackend) -> None:
    capability = torch.sim.get_device_capability("sim:1")
    assert capability["total_memory"] == torch.sim.mem_get_info(1)[1]
    assert torch.bfloat16 in capability["supported_dtypes"]
    assert torch.sim.get_arch_list() == [capability["architecture"]]


def test_devices_have_no_access_to_each_other(sim: LoadedBackend) -> None:
    assert torch.sim.can_device_access_peer(0, "sim:1") is False
    with pytest.raises(RuntimeError, match="sim:7 does not exist"):
        torch.sim.can_device_access_peer(0, 7)


def test_the_device_of_a_tensor_becomes_current(sim: LoadedBackend) -> None:
    tensor = torch.ones(1, device="sim:1")
    for obj in (tensor, tensor.untyped_storage()):
        with torch.sim.device_of(obj):
            assert torch.sim.current_device() == 1
    with torch.sim.device_of(torch.ones(1)):
        assert torch.sim.current_device() == 0


def test_a_device_context_is_entered_again(sim: LoadedBackend) -> None:
    context = torch.sim.device(1)
    for _ in range(2):
        with context:
            with torch.sim.device(0), context:
                assert torch.sim.current_device() == 1
            assert torch.sim.current_device() == 1
        assert torch.sim.current_device() == 0


@pytest.mark.parametrize(
    "name", ["utilization", "memory_usage", "temperature", "power_draw", "clock_rate"]
)
def test_what_no_driver_tells_is_refused(sim: LoadedBackend, name: str) -> None:
    text = refusal(NotImplementedError, getattr(torch.sim, name), 1)
    assert text.startswith("sim:1 does not tell ")
    assert text.endswith(
        "a driver has no function for that\n  remedy: ask the tools of the device's vendor"
    )


# ---- memory ----


def test_memory_in_use_is_counted_by_the_driver(sim: LoadedBackend) -> None:
    kept = torch.empty(64 << 20, dtype=torch.uint8, device="sim:1")
    free, total = torch.sim.mem_get_info(1)
    assert torch.sim.device_memory_used(1) == total - free >= kept.nbytes


def test_nested_statistics_have_the_values_of_flat_ones(sim: LoadedBackend) -> None:
    flat = torch.sim.memory_stats(0)
    nested = torch.sim.memory_stats_as_nested_dict(0)
    assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"]
    assert nested["num_ooms"] == flat["num_ooms"]


def test_old_names_of_memory_functions_warn(sim: LoadedBackend) -> None:
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert torch.sim.memory_cached(0) == torch.sim.memory_reserved(0)
    with pytest.warns(FutureWarning, match="max_memory_reserved"):
        assert torch.sim.max_memory_cached(0) == torch.sim.max_memory_reserved(0)
    with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
        torch.sim.reset_max_memory_allocated(0)
    assert torch.sim.max_memory_allocated(0) == torch.sim.memory_allocated(0)


# ---- streams ----


def test_a_stream_context_is_undone(sim: LoadedBackend) -> None:
    stream = torch.sim.Stream(device=1)
    before = torch.sim.current_stream(1)
    context = torch.sim.StreamContext(stream)
    with pytest.raises(KeyError), context, context:
        assert torch.sim.current_device() == 1
        assert torch.sim.current_stream() == stream
        raise KeyError
    assert torch.sim.current_device() == 0
    assert torch.sim.current_stream(1) == before
    with torch.sim.StreamContext(None):
        assert torch.sim.current_stream() == torch.sim.default_stream()


def test_a_stream_is_found_by_its_handle(sim: LoadedBackend) -> None:
    stream = torch.sim.Stream(device=1, priority=-1)
    assert torch.sim.get_stream_from_external(stream.native_handle, 1) == stream
    assert torch.sim.is_current_stream_capturing() is False
    assert refusal(NotOffered, torch.sim.get_stream_from_external, 0x1234, 1) == (
        "no stream of sim:1 has the handle 0x1234, and the queue of another library cannot become one\n"
        '  remedy: make the stream here, torch.Stream("sim:1"), and hand its native_handle to the library'
    )
