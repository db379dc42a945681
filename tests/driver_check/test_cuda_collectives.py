"""NCCL as cuda_driver's collectives, on the stand-in for GPUs and NCCL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opsmith.build.backend import build_backend
from opsmith.build.driver_library import build_driver
from opsmith.description import find_backend, read_backend

GPU = Path(__file__).parents[2] / "tools" / "gpu"
sys.path.insert(0, str(GPU))
import stand_in  # noqa: E402

RANK = Path(__file__).with_name("nccl_rank.py")
BY_THE_HOST = "; OPSMITH_COLLECTIVES=off has collectives go by the host\n"


class Ranks:
    """The driver on the stand-in, and programs of several processes that use it."""

    def __init__(self, folder: Path) -> None:
        backend = read_backend(find_backend("cuda_driver"), None)
        self.driver = build_driver(backend.name, backend.driver)
        _, nccl = stand_in.compiled(folder, "libcuda.cpp", "libnccl.cpp")
        self.settings = {"LD_LIBRARY_PATH": str(folder), "OPSMITH_NCCL_LIBRARY": str(nccl)}

    def run(self, part: str, folder: Path, *devices: int, **settings: str) -> list[str]:
        """The output of the rank on each of ``devices``; all end well."""

        def run(rank: int) -> str:
            place = {
                "RANK": rank,
                "SIZE": len(devices),
                "DEVICE": devices[rank],
                "ID": folder / "id",
            }
            done = subprocess.run(
                [sys.executable, str(RANK), str(self.driver), part],
                env=os.environ | self.settings | {k: str(v) for k, v in place.items()} | settings,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
            return done.stdout

        with ThreadPoolExecutor(len(devices)) as pool:
            return list(pool.map(run, range(len(devices))))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return Ranks(tmp_path_factory.mktemp("nccl"))


@pytest.mark.parametrize("devices", [(0,), (0, 1)])
def test_each_collective(ranks: Ranks, tmp_path: Path, devices: tuple[int, ...]) -> None:
    assert ranks.run("values", tmp_path, *devices) == [""] * len(devices)


def test_two_ranks_on_one_device_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    said = (
        "join a group of 2 on device 1: invalid usage (run with NCCL_DEBUG=WARN for details); Duplicate "
        "GPU detected : rank 0 and rank 1 both on CUDA device 2000; each rank needs a GPU of its own, and "
        f"all the same release of NCCL{BY_THE_HOST}"
    )
    assert ranks.run("joining", tmp_path, 1, 1) == [said, said]


def test_a_library_that_is_missing(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks.run("joining", tmp_path, 0, OPSMITH_NCCL_LIBRARY="/none/libnccl.so.2") == [
        "OPSMITH_NCCL_LIBRARY names no library that opens: /none/libnccl.so.2; pip install "
        "nvidia-nccl-cu13, or -cu12, which a CUDA build of torch brings, or name its libnccl.so.2 in "
        f"OPSMITH_NCCL_LIBRARY{BY_THE_HOST}"
    ]


@pytest.mark.nightly  # the driver gives what is pending some seconds
def test_a_rank_that_leaves_ends_what_is_pending(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks.run("pending", tmp_path, 0, 1) == ["NOT_READY\n", ""]


@pytest.mark.nightly  # compiles the backend of another night's test
def test_torch_distributed_goes_by_it(tmp_path: Path) -> None:
    backend = Path(__file__).parents[1] / "kernels" / "cublas_backend" / "backend.yaml"
    build_backend(backend)  # else each rank's time goes into it
    settings = stand_in.built(tmp_path / "stand_in") | {"OPSMITH_CHECK_PATIENCE": "10"}
    done = subprocess.run(
        [sys.executable, str(GPU / "check" / "collectives.py"), str(backend)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [each["wrong"] for each in found["one"] + found["two"]] == [[]] * 3
    for rank, each in enumerate(found["two on a device"]):
        assert each["says"].startswith(
            f"all_reduce of float32[1] on cublasgpu:0, sum failed on rank {rank} of 2: NCCL: join a group of "
            "2 on device 0: invalid usage"
        )
    assert found["missing"][0]["says"].startswith(
        "the collectives of the driver cannot be used: OPSMITH_NCCL_LIBRARY names no library that opens: "
    )
