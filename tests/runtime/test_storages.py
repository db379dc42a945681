"""Storages on sim: moved, resized, written to files, of legacy types."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from opsmith.runtime import LoadedBackend

pytestmark = [
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
    pytest.mark.filterwarnings("ignore:The argument 'device'"),
]


def test_storages_move_to_the_device(sim: LoadedBackend) -> None:
    source = torch.tensor([1.0, 2.0])
    untyped = source.untyped_storage().sim(1)
    assert (untyped.is_sim, untyped.device) == (True, torch.device("sim:1"))
    assert untyped.tolist() == source.untyped_storage().tolist()
    assert untyped.sim(1) is untyped
    typed = source.storage().sim()
    assert (typed.is_sim, typed.dtype, typed.tolist()) == (True, torch.float32, [1.0, 2.0])
    assert not source.storage().is_sim
    assert not source.untyped_storage().is_sim


def test_a_storage_of_the_device_is_a_storage(sim: LoadedBackend) -> None:
    storage = torch.arange(4, dtype=torch.uint8, device="sim:1").untyped_storage()
    clone = storage.clone()
    deep = copy.deepcopy(storage)
    storage.fill_(9)
    assert clone.tolist() == deep.tolist() == [0, 1, 2, 3]
    assert clone.device == deep.device == torch.device("sim:1")
    storage.copy_(torch.tensor([5, 6, 7, 8], dtype=torch.uint8).untyped_storage())
    storage[1] = 0
    assert storage.cpu().tolist() == [5, 0, 7, 8]
    storage.resize_(2)
    assert storage.tolist() == [5, 0]
    assert storage.cpu().pin_memory("sim").is_pinned("sim")


def test_the_bytes_of_a_storage_are_swapped(sim: LoadedBackend) -> None:
    storage = torch.tensor([1, 2], dtype=torch.int16, device="sim").untyped_storage()
    storage.byteswap(torch.int16)
    assert storage.tolist() == [0, 1, 0, 2]
    on_host = torch.tensor([1, 2], dtype=torch.int16).untyped_storage()
    on_host.byteswap(torch.int16)
    assert on_host.tolist() == [0, 1, 0, 2]


def test_types_of_storages(sim: LoadedBackend) -> None:
    storage = torch.ones(2, device="sim").storage()
    assert storage.type() == "torch.sim.FloatStorage"
    assert isinstance(storage, torch.sim.FloatStorage)
    assert not isinstance(storage, torch.sim.HalfStorage)
    assert not isinstance(torch.ones(2).storage(), torch.sim.FloatStorage)
    assert torch.sim.FloatStorage.dtype == torch.float32
    made = torch.sim.LongStorage([3, 4])
    assert (made.device.type, made.dtype, made.tolist()) == ("sim", torch.int64, [3, 4])
    assert torch.sim.LongStorage(5).size() == 5
    assert torch.is_storage(made)


def test_storages_and_tensors_are_pickled(sim: LoadedBackend) -> None:
    tensor = torch.tensor([1.0, 2.0], device="sim:1")
    assert pickle.loads(pickle.dumps(tensor.storage())).device == torch.device("sim:1")
    again = pickle.loads(pickle.dumps(tensor))
    assert (again.device, again.tolist()) == (tensor.device, [1.0, 2.0])


def test_a_typed_storage_is_shared(sim: LoadedBackend) -> None:
    tensor = torch.ones(2, device="sim")
    queue = torch.multiprocessing.get_context("spawn").Queue()
    queue.put([tensor.storage()])
    (received,) = queue.get(timeout=60)
    queue.close()
    received[0] = 7
    assert tensor.tolist() == [7, 1]
    assert isinstance(received, torch.sim.FloatStorage)


@pytest.mark.parametrize("weights_only", [True, False])
def test_files_hold_where_a_tensor_was(
    sim: LoadedBackend, tmp_path: Path, weights_only: bool
) -> None:
    base = torch.arange(6.0, device="sim:1")
    path = tmp_path / "tensors.pt"
    torch.save({"base": base, "view": base[2:4]}, path)
    for place, expected in {None: "sim:1", "sim:0": "sim:0", "sim": "sim:0", "cpu": "cpu"}.items():
        loaded = torch.load(path, map_location=place, weights_only=weights_only)
        assert loaded["base"].device == torch.device(expected)
        loaded["base"].zero_()
        assert loaded["view"].tolist() == [0.0, 0.0], "the view is one no more"
    moved = torch.load(path, map_location={"sim:1": "sim:0"}, weights_only=weights_only)
    assert moved["base"].device == torch.device("sim:0")


def test_the_registry_of_places_knows_the_device(sim: LoadedBackend) -> None:
    storage = torch.UntypedStorage(4, device=torch.device("sim:1"))
    assert torch.serialization.location_tag(storage) == "sim:1"
    restored = torch.serialization.default_restore_location(torch.ones(2).storage(), "sim:1")
    assert (restored.is_sim, restored.device) == (True, torch.device("sim:1"))
    legacy = io.BytesIO()
    torch.save(torch.ones(2, device="sim"), legacy, _use_new_zipfile_serialization=False)
    legacy.seek(0)
    assert torch.load(legacy).device == torch.device("sim:0")


def test_metadata_of_a_tensor_is_saved_with_it(sim: LoadedBackend) -> None:
    tensor = torch.ones(3, device="sim")
    assert torch._utils.get_tensor_metadata(tensor) == {}
    metadata = {"packed": True, "signed": False}
    torch._utils.set_tensor_metadata(tensor, metadata)
    file = io.BytesIO()
    torch.save(tensor, file)
    found = {}
    for place in (None, "sim:1", "cpu"):
        file.seek(0)
        found[place] = torch._utils.get_tensor_metadata(torch.load(file, map_location=place))
    assert found == {None: metadata, "sim:1": metadata, "cpu": {}}
