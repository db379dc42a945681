"""torch.distributed by a vendor's library of collectives: vendor_collectives.cpp, on sim's streams."""

from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from opsmith.build.csrc import PUBLIC_HEADERS
from opsmith.build.toolchain import find_compiler
from opsmith.runtime import LoadedBackend
from ranks import expect_ranks, run_ranks

CALLS = """
import ctypes
vendor_calls = ctypes.CDLL(os.environ["OPSMITH_COLLECTIVES"]).vendor_calls
"""


@pytest.fixture(scope="module")
def settings(sim: LoadedBackend, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which ranks use the library."""
    folder = tmp_path_factory.mktemp("vendor")
    library = folder / "libvendor.so"
    source = Path(__file__).with_name("vendor_collectives.cpp")
    subprocess.run(
        [
            *find_compiler(folder).command,
            *("-std=c++20", "-O1", "-shared", "-fPIC", "-I", PUBLIC_HEADERS, source, "-o", library),
        ],
        check=True,
    )
    return {"OPSMITH_COLLECTIVES": str(library), "TEST_DRIVER": str(sim.built.driver)}


def expect_ranks_by_the_library(script: str, **settings: str) -> None:
    """As expect_ranks(); the script finds ``vendor_calls()`` too."""
    expect_ranks(CALLS + dedent(script), **settings)


@pytest.mark.parametrize("window", ["on", "off"])
def test_what_the_library_has_goes_by_it(settings: dict[str, str], window: str) -> None:
    expect_ranks_by_the_library(
        """
        def full(value, *shape): return torch.full(shape or (3,), float(value), device="sim")
        def values(*tensors): return [tensor.tolist() for tensor in tensors]
        def by_the_library(expected, call):
            before = vendor_calls()
            call()
            assert vendor_calls() - before == expected, vendor_calls() - before

        x = full(rank + 1)
        by_the_library(1, lambda: dist.all_reduce(x))
        by_the_library(1, lambda: dist.all_reduce(x, op=dist.ReduceOp.AVG))
        assert x.tolist() == [3.0] * 3
        long = torch.arange(700_000.0, device="sim") + rank
        by_the_library(1, lambda: dist.all_reduce(long, async_op=True).wait())
        assert torch.equal(long.cpu(), 2 * torch.arange(700_000.0) + 1)
        gaps = full(0, 3, 2).t()
        gaps.copy_(torch.arange(6.0).view(2, 3) * (1 + rank))
        by_the_library(1, lambda: dist.all_reduce(gaps))
        assert gaps.tolist() == [[0, 3, 6], [9, 12, 15]]
        y = full(rank).half()
        by_the_library(1, lambda: dist.broadcast(y, 1))
        assert y.tolist() == [1.0] * 3
        gathered = [full(0), full(0)]
        by_the_library(1, lambda: dist.all_gather(gathered, full(rank)))
        assert values(*gathered) == values(full(0), full(1))
        flat = full(0, 6)
        by_the_library(1, lambda: dist.all_gather_into_tensor(flat, full(rank)))
        assert flat.tolist() == [0.0] * 3 + [1.0] * 3
        part = full(0)
        by_the_library(1, lambda: dist.reduce_scatter(part, [full(1 + rank), full(2)]))
        assert part.tolist() == [3.0 + rank] * 3
        by_the_library(1, lambda: dist.reduce_scatter_tensor(part, full(4, 6), op=dist.ReduceOp.AVG))
        assert part.tolist() == [4.0] * 3
        swapped = full(0, 6)
        ours = torch.arange(6.0, device="sim") + 10 * rank
        by_the_library(1, lambda: dist.all_to_all_single(swapped, ours))
        assert swapped.tolist() == [[0, 1, 2, 10, 11, 12], [3, 4, 5, 13, 14, 15]][rank]

        z = full(1) * (1 + 2j)
        by_the_library(1, lambda: dist.all_reduce(z))
        assert z.tolist() == [2 + 4j] * 3

        # By the host: what the library has no entry, dtype or reduction for, and tensors without elements.
        uneven = full(0, 2 - rank)
        by_the_library(
            0, lambda: dist.all_to_all_single(uneven, full(rank, 1 + rank), [1 - rank, 1], [1, rank]))
        assert uneven.tolist() == [0.0, 1.0][rank:]
        bits = torch.tensor([5 + rank], device="sim")
        by_the_library(0, lambda: dist.all_reduce(bits, op=dist.ReduceOp.BAND))
        assert bits.tolist() == [4]
        by_the_library(0, lambda: dist.all_reduce(full(0, 0)))
        dist.barrier()

        # The library's own refusal names the call.
        try:
            dist.all_reduce(torch.ones(2, device="sim").int())
        except dist.DistBackendError as error:
            said = str(error).splitlines()[0]
        assert said == (
            "all_reduce of int32[2] on sim:0, sum failed on rank "
            f"{rank} of 2: testccl: only sums of float32 are reduced"
        ), said
        try:
            dist.all_reduce(torch.ones(2, device="sim:1"))
        except dist.DistBackendError as error:
            said = str(error).splitlines()
        assert said[0].endswith(
            "this rank's tensors in the group were on sim:0 before, and a group of testccl has one "
            "device for each rank"), said
        assert said[1] == "  remedy: make another group for the other device"
        dist.destroy_process_group()
        """,
        OPSMITH_HOST_WINDOW=window,
        **settings,
    )


def test_training_by_the_library_is_training_on_one(settings: dict[str, str]) -> None:
    expect_ranks_by_the_library(
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        source = torch.Generator().manual_seed(0)
        images, labels = torch.randn(8, 8, generator=source), torch.randn(8, 4, generator=source)

        def network():
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to("sim")

        def train(model, x, y):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                (model(x.to("sim")) - y.to("sim")).square().mean().backward()
                optimizer.step()
            parameters = model.parameters()
            return [getattr(p, "full_tensor", lambda p=p: p)().detach().cpu() for p in parameters]

        own = images[rank::size], labels[rank::size]
        alone = train(network(), images, labels)
        sharded = network()
        for layer in (sharded[0], sharded[2], sharded):
            fully_shard(layer, mesh=init_device_mesh("sim", (size,)))
        for model in (nn.parallel.DistributedDataParallel(network()), sharded):
            before = vendor_calls()
            for ours, theirs in zip(train(model, *own), alone, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
            assert vendor_calls() > before + 3
        dist.destroy_process_group()
        """,
        **settings,
    )


def test_an_entry_that_the_library_lacks_goes_by_the_host(settings: dict[str, str]) -> None:
    expect_ranks_by_the_library(
        """
        part = torch.zeros(3, device="sim")
        dist.reduce_scatter_tensor(part, torch.ones(6, device="sim"))
        assert part.tolist() == [2.0] * 3 and vendor_calls() == 0
        dist.destroy_process_group()
        """,
        TEST_WITHOUT="reduce_scatter",
        **settings,
    )


def told(**settings: str) -> str:
    """Standard error of rank 0, with a library that cannot be used."""
    (_, _, errors), _ = run_ranks("", **settings)
    return errors


def test_libraries_that_do_not_fit(settings: dict[str, str]) -> None:
    driver = settings["TEST_DRIVER"]
    assert (
        "OPSMITH_COLLECTIVES names a library that cannot be opened: /nowhere/libccl.so: cannot open shared "
        "object file: No such file or directory\n"
        "  remedy: name one that exports `opsmith_get_collectives`, or `off`"
    ) in told(OPSMITH_COLLECTIVES="/nowhere/libccl.so")
    assert (
        f"OPSMITH_COLLECTIVES names {driver}, which does not export `opsmith_get_collectives`\n"
        '  remedy: declare it extern "C" with default visibility'
    ) in told(OPSMITH_COLLECTIVES=driver)
    library = settings["OPSMITH_COLLECTIVES"]
    assert (
        f"the collectives of {library} leave the required entry `join` NULL\n"
        "  remedy: implement it as opsmith_collectives.h says"
    ) in told(TEST_WITHOUT="join", **settings)
    assert (
        f"the collectives of {library} were built with version 7 of opsmith_collectives.h (a table of 88 "
        "bytes), but this opsmith has version 1 (88 bytes)\n"
        "  remedy: rebuild them with this opsmith's header"
    ) in told(TEST_WITHOUT="version", **settings)
