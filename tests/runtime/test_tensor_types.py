"""``torch.sim.FloatTensor`` and its kin, as legacy programs use them."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy
import pytest
import torch

from refusal import refusal

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

pytestmark = [
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
    pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type"),
]


def test_types_name_tensors(sim: LoadedBackend) -> None:
    x = torch.ones(2, device="sim:1")
    assert x.type() == "torch.sim.FloatTensor"
    assert str(torch.sim.FloatTensor) == "<class 'torch.sim.FloatTensor'>"
    assert torch.sim.FloatTensor.__name__ == torch.cuda.FloatTensor.__name__
    assert torch.sim.HalfTensor.dtype == torch.float16
    assert (torch.sim.HalfTensor.is_sim, torch.sim.HalfTensor.is_cuda) == (True, False)
    for name in dir(type(torch.FloatTensor)):
        if name.startswith("is_"):
            assert getattr(torch.sim.FloatTensor, name) == getattr(torch.FloatTensor, name)
    assert pickle.loads(pickle.dumps(torch.sim.FloatTensor)) is torch.sim.FloatTensor


def test_isinstance_asks_for_device_and_dtype(sim: LoadedBackend) -> None:
    x = torch.ones(2, device="sim:1")
    assert isinstance(x, torch.sim.FloatTensor)
    assert isinstance(torch.nn.Parameter(x), torch.sim.FloatTensor)
    assert not isinstance(x, torch.sim.DoubleTensor)
    assert not isinstance(x, torch.FloatTensor)
    assert not isinstance(x.cpu(), torch.sim.FloatTensor)
    assert not isinstance(3.0, torch.sim.FloatTensor)


@pytest.mark.parametrize("name", [False, True])
def test_tensors_become_of_a_type(sim: LoadedBackend, name: bool) -> None:
    for source in (torch.tensor([1.5, 2.5]), torch.tensor([1.5, 2.5], device="sim")):
        x = source.type("torch.sim.IntTensor" if name else torch.sim.IntTensor)
        assert (x.device, x.dtype, x.tolist()) == (torch.device("sim:0"), torch.int32, [1, 2])
    x = torch.ones(1, device="sim")
    assert x.type(torch.sim.FloatTensor) is x
    assert x.type("torch.FloatTensor").is_cpu


def test_a_call_makes_a_tensor(sim: LoadedBackend) -> None:
    make = torch.sim.FloatTensor
    for made in (
        make(2, 3),
        make(torch.Size([2, 3])),
        make(size=(2, 3)),
        make(numpy.int64(2), 3),
    ):
        assert (made.shape, made.type()) == ((2, 3), "torch.sim.FloatTensor")
    assert make().shape == (0,)
    for values in ([1, 2], (1, 2), range(1, 3), numpy.array([1.0, 2.0])):
        assert make(values).tolist() == [1.0, 2.0]
    assert make([[1, 2], [3, 4]]).shape == (2, 2)
    assert make(2, device="sim:1").device == torch.device("sim:1")
    with torch.sim.device(1):
        assert make([1]).device == torch.device("sim:1")
    assert torch.sim.BoolTensor([0, 2]).tolist() == [False, True]


def test_a_call_shares_memory(sim: LoadedBackend) -> None:
    x = torch.zeros(3, device="sim:1", requires_grad=True)
    same = torch.sim.FloatTensor(x)
    assert same.data_ptr() == x.data_ptr()
    same.sum().backward()
    assert x.grad is not None
    x = torch.arange(3.0, device="sim:1")
    assert torch.sim.FloatTensor(x.untyped_storage()).tolist() == [0.0, 1.0, 2.0]
    assert torch.sim.FloatTensor(x.storage()).data_ptr() == x.data_ptr()


def test_a_call_refuses_what_is_of_another_type(sim: LoadedBackend) -> None:
    make = torch.sim.FloatTensor
    assert refusal(TypeError, make, torch.ones(1)) == (
        "expected a torch.sim.FloatTensor, but got a torch.FloatTensor; convert it: "
        '.to("sim", torch.float32)'
    )
    assert refusal(TypeError, make, torch.ones(1, device="sim").half().storage()) == (
        "expected a storage of torch.float32 on sim, but got torch.float16 on sim:0"
    )
    for wrong in (1.0, True, "a", {1: 2}, None):
        with pytest.raises(
            TypeError, match=r"takes sizes, a sequence, a tensor or a storage, not a"
        ):
            make(wrong)
    with pytest.raises(TypeError, match="integers, or one sequence"):
        make(1, 2.0)
    with pytest.raises(TypeError, match="makes tensors on sim, not on cpu"):
        make(1, device="cpu")
    assert refusal(TypeError, make, torch.ones(1, device="sim"), device="sim:1") == (
        "torch.sim.FloatTensor shares the memory of a tensor or storage where it is; move the result: "
        '.to("sim:1")'
    )


@pytest.fixture
def defaults() -> Iterator[None]:
    """The default device and dtype are PyTorch's again after the test."""
    yield
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.get_default_device() == torch.device("cpu")


@pytest.mark.parametrize("name", [False, True])
def test_a_type_becomes_the_default(sim: LoadedBackend, defaults: None, name: bool) -> None:
    torch.set_default_tensor_type("torch.sim.DoubleTensor" if name else torch.sim.DoubleTensor)
    for made in (torch.zeros(2), torch.tensor([1.5]), torch.nn.Linear(1, 1).weight):
        assert made.type() == "torch.sim.DoubleTensor"
    torch.set_default_tensor_type(torch.HalfTensor)
    assert torch.tensor([1.5]).type() == "torch.HalfTensor"


def test_only_floating_types_become_the_default(sim: LoadedBackend, defaults: None) -> None:
    for wrong in (torch.sim.LongTensor, "torch.sim.LongTensor", "torch.sim.NoTensor", torch.Tensor):
        with pytest.raises((TypeError, AttributeError)):
            torch.set_default_tensor_type(wrong)
    assert torch.zeros(1).type() == "torch.FloatTensor"
