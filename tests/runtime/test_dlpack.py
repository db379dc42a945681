"""Tensors of sim through DLPack, and their memory as NumPy arrays."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy
import pytest
import torch
from torch.utils.dlpack import DLDeviceType

from host_window import HAS_HOST_WINDOW
from opsmith.errors import NoHostWindow
from refusal import refusal
from sim_driver import SimDriver

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

SLOW = 100_000  # microseconds


class Producer:
    """Another library's tensor on the device."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.asked: dict[str, Any] = {}

    def __dlpack__(self, **options: Any) -> Any:
        self.asked = options
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("through_producer", [False, True])
def test_memory_is_shared(sim: LoadedBackend, through_producer: bool) -> None:
    base = torch.arange(12.0, device="sim:1").reshape(3, 4)
    for tensor in (base, base.t(), base[1:, ::2], base[0, 0], base[:0]):
        taken = torch.from_dlpack(Producer(tensor) if through_producer else tensor)
        assert taken.device == tensor.device
        assert taken.stride() == tensor.stride()
        assert taken.data_ptr() == tensor.data_ptr()
    taken = torch.from_dlpack(base)
    del base
    gc.collect()
    taken += 1
    assert taken.sum().item() == 78.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64, torch.int8])
def test_dtypes_survive(sim: LoadedBackend, dtype: torch.dtype) -> None:
    tensor = torch.tensor([0, 1, 1], device="sim").to(dtype)
    taken = torch.from_dlpack(tensor)
    assert taken.dtype == dtype
    assert torch.equal(taken, tensor)


def test_a_device_is_an_extension_of_dlpack(sim: LoadedBackend) -> None:
    tensor = torch.ones(1, device="sim:1")
    assert tensor.__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
    assert torch.ones(1).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    assert torch.nn.Parameter(tensor).__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
    with pytest.raises(BufferError, match="require gradient"):
        torch.nn.Parameter(tensor).__dlpack__()
    with pytest.raises(BufferError, match="negative bit"):
        torch.from_dlpack(torch.ones(1, dtype=torch.complex64, device="sim").conj().imag)
    capsule = torch.utils.dlpack.to_dlpack(tensor)
    assert torch.utils.dlpack.from_dlpack(capsule).data_ptr() == tensor.data_ptr()


def test_a_copy_is_made_where_one_is_asked_for(sim: LoadedBackend) -> None:
    tensor = torch.arange(3.0, device="sim:0")
    assert torch.from_dlpack(tensor, copy=True).data_ptr() != tensor.data_ptr()
    for place in ("cpu", "sim:1"):
        moved = torch.from_dlpack(tensor, device=place)
        assert (moved.device, moved.tolist()) == (torch.device(place), [0.0, 1.0, 2.0])
        with pytest.raises(ValueError, match="without copying"):
            torch.from_dlpack(tensor, device=place, copy=False)
    assert torch.from_dlpack(torch.ones(2), device="sim").device == torch.device("sim:0")


def test_numpy_takes_a_copy_where_it_asks_for_one(sim: LoadedBackend) -> None:
    tensor = torch.arange(3.0, device="sim")
    assert numpy.from_dlpack(tensor, device="cpu").tolist() == [0.0, 1.0, 2.0]
    with pytest.raises((RuntimeError, BufferError)):
        numpy.from_dlpack(tensor)
    with pytest.raises(TypeError, match="can't convert sim:0 device type tensor to numpy"):
        numpy.asarray(tensor)
    assert torch.from_dlpack(numpy.arange(2)).tolist() == [0, 1]


@pytest.fixture
def sevens(sim: LoadedBackend) -> torch.Tensor:
    """Pinned, so that its copy is queued; releasing it would wait for the copy."""
    return torch.full((64,), 7.0).pin_memory()


def slow_copy(sevens: torch.Tensor, driver: SimDriver) -> torch.Tensor:
    """Of sevens, when the work that is still queued on the current stream is done."""
    tensor = torch.zeros(64, device="sim")
    torch.accelerator.synchronize(0)
    driver.inject("slow", SLOW)
    return tensor.copy_(sevens, non_blocking=True)


def test_the_consumers_stream_waits(driver: SimDriver, sevens: torch.Tensor) -> None:
    consumer = torch.Stream(device="sim:0")
    with torch.Stream(device="sim:0") as producer:
        tensor = slow_copy(sevens, driver)
        copied = producer.record_event()
        tensor.__dlpack__(stream=-1)
        assert consumer.query(), "-1 asks for no waiting"
        tensor.__dlpack__(stream=consumer.native_handle)
        assert not producer.query(), "the host has waited"
        assert not consumer.query()
        consumer.synchronize()
        assert copied.query()


def test_the_consumers_stream_waits_for_a_copy(driver: SimDriver, sevens: torch.Tensor) -> None:
    with torch.Stream(device="sim:0"):
        tensor = slow_copy(sevens, driver)
        capsule = tensor.__dlpack__(stream=torch.sim.default_stream(0).native_handle, copy=True)
        elsewhere = tensor.__dlpack__(stream=None, dl_device=(DLDeviceType.kDLExtDev, 1))
    assert (torch.from_dlpack(capsule) + 1).tolist() == [8.0] * 64
    assert (torch.from_dlpack(elsewhere) + 1).tolist() == [8.0] * 64


def test_without_a_stream_the_default_one_waits(driver: SimDriver, sevens: torch.Tensor) -> None:
    with torch.Stream(device="sim:0") as producer:
        tensor = slow_copy(sevens, driver)
        copied = producer.record_event()
        tensor.__dlpack__(stream=None)
        assert not copied.query(), "the host has waited"
        torch.sim.default_stream(0).synchronize()
        assert copied.query()


def test_the_host_waits_for_a_queue_of_another_library(
    driver: SimDriver, sevens: torch.Tensor
) -> None:
    with torch.Stream(device="sim:0") as producer:
        tensor = slow_copy(sevens, driver)
        copied = producer.record_event()
        assert not copied.query()
        tensor.__dlpack__(stream=0x1234)
        assert copied.query()
    with pytest.raises(TypeError, match="stream must be"):
        tensor.__dlpack__(stream="1")


def test_other_libraries_are_told_the_current_stream(sim: LoadedBackend) -> None:
    producer = Producer(torch.ones(1, device="sim:1"))
    with torch.Stream(device="sim:1") as stream:
        torch.from_dlpack(producer)
    assert producer.asked["stream"] == stream.native_handle
    on_host = Producer(torch.ones(1))
    torch.from_dlpack(on_host)
    assert "stream" not in on_host.asked


def test_a_default_device_changes_nothing(sim: LoadedBackend) -> None:
    tensor = torch.ones(1, device="sim:1")
    with torch.device("sim:0"):
        assert tensor.__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
        assert torch.from_dlpack(tensor).data_ptr() == tensor.data_ptr()


def test_producers_that_know_of_no_streams_are_taken(sim: LoadedBackend) -> None:
    class WithoutStreams:
        tensor = torch.ones(1, device="sim")

        def __dlpack__(self) -> Any:
            return self.tensor.__dlpack__()

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    producer = WithoutStreams()
    assert torch.from_dlpack(producer).data_ptr() == producer.tensor.data_ptr()


# ---- NumPy arrays through the host window ----


@pytest.mark.skipif(HAS_HOST_WINDOW, reason="the device has a host window")
def test_without_a_window_there_is_no_array(sim: LoadedBackend) -> None:
    assert refusal(NoHostWindow, torch.sim.host_array, torch.ones(1, device="sim")) == (
        "the host cannot address the memory of sim:0: it is used without a host window\n"
        "  remedy: copy it, .cpu().numpy()"
    )


@pytest.mark.skipif(not HAS_HOST_WINDOW, reason="the device has no host window")
def test_an_array_is_the_tensors_memory(driver: SimDriver, sevens: torch.Tensor) -> None:
    tensor = slow_copy(sevens, driver).reshape(8, 8)
    array = torch.sim.host_array(tensor.t()[1:, ::2])
    assert (array.shape, array.strides, array.dtype) == ((7, 4), (4, 64), numpy.float32)
    assert (array == 7.0).all(), "the queued copy was not waited for"
    array[:] = 3.0
    assert tensor.sum().item() == 28 * 3.0 + 36 * 7.0
    address = tensor.data_ptr()
    del tensor
    gc.collect()
    assert torch.empty(64, device="sim").data_ptr() != address, "the array's memory was given away"
    assert array.sum() == 28 * 3.0


@pytest.mark.skipif(not HAS_HOST_WINDOW, reason="the device has no host window")
def test_what_numpy_cannot_hold_is_refused(sim: LoadedBackend) -> None:
    assert torch.sim.host_array(torch.empty(0, 3, device="sim")).shape == (0, 3)
    assert torch.sim.host_array(torch.tensor(2.5, device="sim")) == 2.5
    with pytest.raises(TypeError, match="BFloat16"):
        torch.sim.host_array(torch.ones(1, device="sim", dtype=torch.bfloat16))
    with pytest.raises(RuntimeError, match="detach"):
        torch.sim.host_array(torch.ones(1, device="sim", requires_grad=True))
    with pytest.raises(RuntimeError, match="resolve_conj"):
        torch.sim.host_array(torch.ones(1, device="sim", dtype=torch.complex64).conj())
    with pytest.raises(ValueError, match="expected a tensor on sim, but got one on cpu"):
        torch.sim.host_array(torch.ones(1))
