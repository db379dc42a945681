"""Questions that programs ask of a device beside its module: PyTorch's answers know CUDA's names."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from opsmith.errors import NotOffered
from refusal import refusal

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

NO_SYMMETRIC_MEMORY = (
    "sim has no symmetric memory: no kernel of one rank reaches the memory of another\n"
    "  remedy: allocate with torch.empty, and call the collectives of torch.distributed: all_reduce, "
    "all_gather_into_tensor, reduce_scatter_tensor"
)


class Wrapper(torch.Tensor):
    """A tensor on the device of the one within, as torchao's are."""

    within: torch.Tensor

    @staticmethod
    def __new__(cls, within: torch.Tensor) -> Wrapper:
        made: Wrapper = torch.Tensor._make_wrapper_subclass(cls, within.shape, device=within.device)
        made.within = within
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        raise NotImplementedError(func)


@pytest.mark.filterwarnings("ignore:Casting complex", "ignore:ComplexHalf", "ignore:torch.quantize")
def test_the_dtypes_that_it_supports_are_those_it_converts(sim: LoadedBackend) -> None:
    supported = torch.accelerator.get_device_capability()["supported_dtypes"]
    for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
        try:
            torch.empty(16, dtype=dtype, device="sim").to(torch.float32).to(dtype)
        except RuntimeError:
            assert dtype not in supported
        else:
            assert dtype in supported


def test_a_profile_is_sorted_by_the_devices_name(sim: LoadedBackend, tmp_path: Path) -> None:
    x = torch.randn(64, 64, device="sim")
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=activities, profile_memory=True, with_stack=True) as profiled:
        (x @ x).relu()
    events = profiled.key_averages()
    for value in ("time_total", "memory_usage"):
        for own in ("{}", "self_{}"):
            name, of_pytorch = (f"{own.format(each)}_{value}" for each in ("sim", "device"))
            assert events.table(sort_by=name) == events.table(sort_by=of_pytorch)
            assert [getattr(each, name) for each in events] == [
                getattr(each, of_pytorch) for each in events
            ]
    (product,) = [each for each in events if each.key == "aten::mm" and each.self_cpu_time_total]
    assert product.sim_time_total > 0
    profiled.export_stacks(str(tmp_path / "stacks"), "self_sim_time_total")
    with pytest.raises(ValueError, match="'self_sim_time_total'"):
        profiled.export_stacks(str(tmp_path / "stacks"), "sim")


def test_out_of_memory_is_caught_by_the_devices_name(sim: LoadedBackend) -> None:
    with pytest.raises(torch.sim.OutOfMemoryError) as caught:
        torch.empty(1 << 50, device="sim")
    # accelerate and transformers halve the batch for an error of one argument with these words.
    assert isinstance(caught.value, RuntimeError) and len(caught.value.args) == 1
    assert " out of memory." in caught.value.args[0]
    assert "Tried to allocate" in caught.value.args[0]


@pytest.mark.parametrize("call", ["empty", "rendezvous", "get_mem_pool"])
def test_symmetric_memory_is_refused(sim: LoadedBackend, call: str) -> None:
    from torch.distributed import _symmetric_memory

    arguments: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "empty": ((4,), {"device": "sim:1"}),
        "rendezvous": ((torch.ones(2, device="sim"), "group"), {}),
        "get_mem_pool": (("sim",), {}),
    }
    given, options = arguments[call]
    asked = getattr(_symmetric_memory, call, None)
    if asked is None:
        pytest.skip(f"this torch has no {call}")
    assert refusal(NotOffered, asked, *given, **options) == NO_SYMMETRIC_MEMORY


def test_operators_are_checked_with_arguments_of_the_device(sim: LoadedBackend) -> None:
    library = torch.library.Library("asked", "FRAGMENT")
    for name in ("right", "wrong"):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, torch.empty_like, "Meta")
    library.impl("wrong", lambda x: x * 2, "PrivateUse1")  # which records

    def right(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x * 2

    library.impl("right", right, "PrivateUse1")
    x = torch.ones(3, device="sim", requires_grad=True)
    tests = ("test_autograd_registration",)
    for operator in (torch.ops.aten.sin.default, torch.ops.asked.right.default):
        found = torch.library.opcheck(operator, (x,), test_utils=tests)
        assert found == {"test_autograd_registration": "SUCCESS"}
    with pytest.raises(Exception, match="asked::wrong has no kernel for autograd, and a result"):
        torch.library.opcheck(torch.ops.asked.wrong.default, (x,), test_utils=tests)


@pytest.mark.parametrize("place", ["sim", torch.device("cpu"), "sim:0"])
def test_wrappers_are_loaded_to_where_their_tensors_are(
    sim: LoadedBackend, tmp_path: Path, place: Any
) -> None:
    torch.save(Wrapper(torch.ones(2)), tmp_path / "saved.pt")
    with torch.sim.device(1):
        loaded = torch.load(tmp_path / "saved.pt", map_location=place, weights_only=False)
    assert loaded.device == loaded.within.device
    assert (loaded.device.type == "cpu") == (place == torch.device("cpu"))
    torch.save(Wrapper(torch.ones(2, device="sim:1")), tmp_path / "saved.pt")
    assert torch.load(tmp_path / "saved.pt", weights_only=False).device == torch.device("sim:1")
