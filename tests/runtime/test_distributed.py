"""torch.distributed on the device: each collective, what is built on them, and what goes wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from ranks import expect_ranks, run_ranks

WINDOWS = pytest.mark.parametrize("window", ["on", "off"])


@WINDOWS
def test_collectives(window: str) -> None:
    expect_ranks(
        """
        def full(value, *shape): return torch.full(shape or (3,), float(value), device="sim")
        def values(*tensors): return [tensor.tolist() for tensor in tensors]

        assert str(dist.get_backend_config()) == "sim:simccl"
        x = full(rank + 1)
        dist.all_reduce(x)
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        assert x.tolist() == [3.0] * 3
        whole = torch.tensor([7 * rank, 8], device="sim")
        dist.all_reduce(whole, op=dist.ReduceOp.AVG)
        assert whole.tolist() == [3, 8]
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        z = full(1) * (1 + 2j)
        dist.all_reduce(z)
        assert z.tolist() == [2 + 4j] * 3
        half = full(rank).bfloat16()
        dist.all_reduce(half)
        assert half.tolist() == [1.0] * 3
        y = full(rank)
        dist.broadcast(y, 1)
        assert y.tolist() == [1.0] * 3
        dist.reduce(y, 0)
        assert rank or y.tolist() == [2.0] * 3
        gathered = [full(0), full(0)]
        dist.all_gather(gathered, full(rank))
        assert values(*gathered) == values(full(0), full(1))
        dist.gather(full(rank), gathered if rank == 0 else None)
        flat = full(0, 1, 6)
        dist.all_gather_into_tensor(flat, full(rank))
        assert flat.tolist() == [[0.0] * 3 + [1.0] * 3]
        part = full(0)
        dist.scatter(part, [full(5), full(6)] if rank == 0 else None)
        assert part.tolist() == [5.0 + rank] * 3
        dist.reduce_scatter(part, [full(1), full(2)])
        assert part.tolist() == [2.0 + 2 * rank] * 3
        dist.reduce_scatter_tensor(part, full(4, 6), op=dist.ReduceOp.AVG)
        assert part.tolist() == [4.0] * 3
        uneven = full(0, 2 - rank)
        dist.all_to_all_single(uneven, full(rank, 1 + rank), [1 - rank, 1], [1, rank])
        assert uneven.tolist() == [0.0, 1.0][rank:]
        dist.send(full(9), 1) if rank == 0 else dist.recv(part, 0)
        assert rank == 0 or part.tolist() == [9.0] * 3
        calls = [dist.P2POp(dist.isend, full(rank), 1 - rank), dist.P2POp(dist.irecv, part, 1 - rank)]
        for work in dist.batch_isend_irecv(calls): work.wait()
        assert part.tolist() == [1.0 - rank] * 3
        several = [full(1), full(2, 4)]
        with dist._coalescing_manager(device=torch.device("sim"), async_ops=True) as manager:
            for each in several: dist.all_reduce(each)
        manager.wait()
        assert values(*several) == values(full(2), full(4, 4))
        work = dist.all_reduce(x, async_op=True)
        assert [each.tolist() for each in work.get_future().wait()] == [[6.0] * 3]
        assert work.is_completed() and x.tolist() == [6.0] * 3
        objects = [None] * size
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": 0}, {"rank": 1}]
        on_cpu = torch.ones(2)
        dist.all_reduce(on_cpu)
        dist.all_reduce(full(0, 0))
        dist.barrier()
        alone = dist.new_group([0])
        if rank == 0:
            dist.all_reduce(y, group=alone)
        dist.destroy_process_group()
        """,
        OPSMITH_HOST_WINDOW=window,
    )


@WINDOWS
@needs.all_to_all_of_lists()
def test_lists_of_tensors_go_from_all_to_all(window: str) -> None:
    expect_ranks(
        """
        given = [torch.full((3,), 10.0 * rank + to, device="sim") for to in range(size)]
        swapped = [torch.zeros(3, device="sim") for _ in range(size)]
        dist.all_to_all(swapped, given)
        assert [each.tolist() for each in swapped] == [[10.0 * peer + rank] * 3 for peer in range(size)]
        dist.destroy_process_group()
        """,
        OPSMITH_HOST_WINDOW=window,
    )


@WINDOWS
def test_training_on_two_processes_is_training_on_one(window: str) -> None:
    expect_ranks(
        """
        import tempfile
        from torch.distributed import checkpoint
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module)

        source = torch.Generator().manual_seed(0)
        images, labels = torch.randn(8, 8, generator=source), torch.randn(8, 4, generator=source)

        def network():
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)).to("sim")

        def train(model, x, y):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                (model(x.to("sim")) - y.to("sim")).square().mean().backward()
                optimizer.step()
            parameters = model.parameters()
            return [getattr(p, "full_tensor", lambda p=p: p)().detach().cpu() for p in parameters]

        def expect(found):
            for ours, theirs in zip(found, alone, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)

        alone = train(network(), images, labels)
        own = images[rank::size], labels[rank::size]
        together = nn.SyncBatchNorm.convert_sync_batchnorm
        expect(train(nn.parallel.DistributedDataParallel(together(network())), *own))

        mesh = init_device_mesh("sim", (size,))
        sharded = together(network())
        for layer in (sharded[0], sharded[3], sharded):
            fully_shard(layer, mesh=mesh)
        expect(train(sharded, *own))
        folder = [tempfile.mkdtemp() if rank == 0 else None]
        dist.broadcast_object_list(folder)
        checkpoint.save(sharded.state_dict(), checkpoint_id=folder[0])
        empty = {name: torch.zeros_like(value) for name, value in sharded.state_dict().items()}
        checkpoint.load(empty, checkpoint_id=folder[0])
        expect([empty[name].full_tensor().cpu() for name, _ in sharded.named_parameters()])

        split = network()
        split[1] = nn.Identity()
        alone = train(split, images, labels)
        split = network()
        split[1] = nn.Identity()
        parallelize_module(split, mesh, {"0": ColwiseParallel(), "3": RowwiseParallel()})
        expect(train(split, images, labels))
        dist.destroy_process_group()
        """,
        OPSMITH_HOST_WINDOW=window,
    )


CATCH = """
import sys
try:
    {call}
except Exception as error:
    print(type(error).__name__, str(error).splitlines()[0])
sys.stdout.flush()
os._exit(0)
"""


def told(call: str, size: int = 2, **settings: str) -> list[str]:
    """The error of ``call`` on each rank: its type and first line."""
    ranks = run_ranks(CATCH.format(call=call), size, **settings)
    return [output.strip() for _, output, _ in ranks]


def test_gradients_are_compressed_by_hooks() -> None:
    expect_ranks(
        """
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks

        def trained(hook=None):
            torch.manual_seed(0)
            network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to("sim")
            model = nn.parallel.DistributedDataParallel(network)
            if hook is not None:
                model.register_comm_hook(None, hook)
            x = torch.randn(8, 8, generator=torch.Generator().manual_seed(rank)).to("sim")
            model(x).square().mean().backward()
            return torch.cat([each.grad.flatten().cpu() for each in network.parameters()])

        exact = trained()
        for hook, dtype in [
            (hooks.bf16_compress_hook, torch.bfloat16),
            (hooks.bf16_compress_wrapper(hooks.allreduce_hook), torch.bfloat16),
            (hooks.fp16_compress_hook, torch.float16),
        ]:
            found = trained(hook)
            assert torch.equal(found, found.to(dtype).float()), hook
            torch.testing.assert_close(found, exact, rtol=0.02, atol=1e-3)

        def bf16_compress_hook(state, bucket: int):
            return None

        try:
            trained(bf16_compress_hook)
        except ValueError as error:
            assert "bucket annotation should be dist.GradBucket" in str(error)
        else:
            raise AssertionError
        """
    )


def test_a_rank_that_does_not_come_is_an_error_with_the_operation() -> None:
    first, _ = told(
        """
    group, x = dist.new_group(timeout=datetime.timedelta(seconds=5)), torch.ones(3, device="sim")
    dist.broadcast(x, 0, group=group)
    dist.all_reduce(x, group=group) if rank == 0 else dist.recv(x, 0)
""".strip()
    )
    assert re.fullmatch(
        r"DistBackendError all_reduce of float32\[3\] on sim:0, sum failed on rank 0 of 2: .*"
        r"Timed out waiting 5000ms for .* operation to complete",
        first,
    )


@pytest.mark.parametrize("asynchronous", ["", ", async_op=True).wait("])
def test_a_rank_that_dies_is_an_error_on_every_other(asynchronous: str) -> None:
    broadcast = f'dist.broadcast(torch.ones(3, device="sim"), 1{asynchronous})'
    call = f"os._exit(3) if rank == 1 else {broadcast}"
    for rank, said in enumerate(told(call, 3)):
        expected = (
            r"DistBackendError broadcast of float32\[3\] on sim:0, root 1 failed on rank "
            rf"{rank} of 3: .*(Connection closed by|Connection reset by|Read error|Broken pipe).*"
        )
        assert said == "" if rank == 1 else re.fullmatch(expected, said), said


DIFFERENCES = {
    "sizes": 'dist.all_reduce(torch.ones(3 + rank, device="sim"))',
    "dtypes": 'dist.broadcast(torch.ones(3, device="sim").to([torch.half, torch.int][rank]), 0)',
    "collectives": 'x = torch.ones(3, device="sim"); dist.broadcast(x, 0) if rank else dist.all_reduce(x)',
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_calls_that_differ_are_told_where_ranks_compare_them(difference: str) -> None:
    for said in told(DIFFERENCES[difference], TORCH_DISTRIBUTED_DEBUG="DETAIL"):
        assert "Detected mismatch between collectives on ranks" in said
        assert "TensorDeviceTypes=TensorOptions(dtype=" in said


def test_attention_is_split_by_batch_and_by_head() -> None:
    expect_ranks(
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        attend = torch.nn.functional.scaled_dot_product_attention
        mesh = init_device_mesh("sim", (size,))
        operands = [torch.randn(2, 4, 8, 16, generator=torch.Generator().manual_seed(i)) for i in range(3)]
        of_heads, of_all = operands[0].mean(-1, keepdim=True).expand(2, 4, 8, 8), operands[0][0, 0, :, :8]
        for mask in (None, of_heads, of_all):
            on_cpu = [each.clone().requires_grad_() for each in operands]
            expected = attend(*on_cpu, attn_mask=mask)
            expected.square().sum().backward()
            given = mask if mask is None else distribute_tensor(mask.to("sim"), mesh, [Replicate()])
            for way in (Shard(0), Shard(1), Replicate()):
                split = [
                    distribute_tensor(each.to("sim"), mesh, [way]).requires_grad_() for each in operands]
                found = attend(*split, attn_mask=given)
                found.square().sum().backward()
                assert found.placements == (way,)
                torch.testing.assert_close(found.full_tensor().cpu(), expected, rtol=1e-4, atol=1e-4)
                for ours, theirs in zip(split, on_cpu):
                    assert ours.grad.placements == (way,)
                    whole = ours.grad.full_tensor().cpu()
                    torch.testing.assert_close(whole, theirs.grad, rtol=1e-4, atol=1e-4)
        dist.destroy_process_group()
        """
    )


def test_callbacks_call_collectives_and_wait_for_them() -> None:
    expect_ranks(
        """
        def thrice(future):
            x, = future.value()
            for _ in range(2):
                x, = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()).wait()
            return x

        works = [dist.all_reduce(torch.ones(2, device="sim"), async_op=True) for _ in range(3)]
        futures = [work.get_future().then(thrice) for work in works]
        assert [future.wait().tolist() for future in futures] == [[8.0] * 2] * 3
        dist.destroy_process_group()
        """
    )


def test_a_network_interface_that_is_not_there_is_named() -> None:
    for _, output, errors in run_ranks("", GLOO_SOCKET_IFNAME="eth9"):
        assert output == ""
        assert "eth9" in errors.splitlines()[-1]


def test_reductions_of_every_length_and_dtype() -> None:
    expect_ranks(
        """
        for dtype in (torch.float32, torch.bfloat16, torch.half, torch.int64, torch.uint8):
            for length in (0, 1, 5, 1_000, 100_003):
                source = torch.Generator().manual_seed(0)
                parts = [torch.randint(0, 5, (length,), generator=source).to(dtype) for _ in range(size)]
                for op, expected in (
                    (dist.ReduceOp.SUM, torch.stack(parts).sum(0).to(dtype)),
                    (dist.ReduceOp.MAX, torch.stack(parts).amax(0)),
                    (dist.ReduceOp.MIN, torch.stack(parts).amin(0)),
                    (dist.ReduceOp.PRODUCT, torch.stack(parts).prod(0).to(dtype)),
                ):
                    x = parts[rank].to("sim")
                    dist.all_reduce(x, op=op)
                    assert torch.equal(x.cpu(), expected), (dtype, length, op)
        for several in range(20):
            given = [torch.full((several,), 1.0, device="sim") for _ in range(9)]
            works = [dist.all_reduce(each, async_op=True) for each in given]
            assert all(work.result()[0].tolist() == [size] * several for work in works if work.wait())
        dist.destroy_process_group()
        """,
        3,
    )


def test_reductions_overlap_with_the_backward_pass() -> None:
    expect_ranks(
        """
        import time
        from torch.profiler import profile

        layers = [nn.Linear(512, 512) for _ in range(6)]
        model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to("sim"), bucket_cap_mb=1)
        x = torch.randn(256, 512, device="sim")
        for _ in range(3): model(x).sum().backward()
        with profile() as profiled:
            model(x).sum().backward()
        names = [event.name for event in profiled.events()]
        assert names.count("simccl:all_reduce") > 3
        # What DistributedDataParallel times of a step, by events on the device.
        data = model._get_ddp_logging_data()
        assert data["avg_backward_compute_time"] > 0
        assert data["avg_backward_comm_time"] > 0

        # The backward pass of the first layers goes on when a reduction has ended.
        reductions = []
        def reduce(_, bucket):
            reductions.append(dist.all_reduce(bucket.buffer(), async_op=True))
            return reductions[-1].get_future().then(lambda done: done.value()[0])
        model.register_comm_hook(None, reduce)
        def wait(*_):
            deadline = time.monotonic() + 60
            while not any(each.is_completed() for each in reductions):
                assert time.monotonic() < deadline, "no reduction ends before the backward pass does"
                time.sleep(0.001)
        layers[1].register_full_backward_pre_hook(wait)
        model(x).sum().backward()
        assert len(reductions) > 3
        dist.destroy_process_group()
        """
    )


def test_a_second_group_and_one_that_is_shut_down() -> None:
    expect_ranks(
        """
        both, reversed_ = dist.new_group([0, 1]), dist.new_group([1, 0])
        x = torch.ones(2, device="sim")
        for group in (both, reversed_, None): dist.all_reduce(x, group=group)
        assert x.tolist() == [8, 8]
        dist.destroy_process_group(both)
        dist.all_reduce(x)
        dist.destroy_process_group()
        dist.init_process_group(
            init_method="file://" + os.environ["TEST_STORE"] + "2", rank=rank, world_size=size,
            device_id=torch.device("sim:0"),
        )
        dist.all_reduce(x)
        assert x.tolist() == [32, 32]
        dist.destroy_process_group()
        """
    )


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_the_examples_train_as_one_process_does(way: str) -> None:
    script = Path(__file__).parents[2] / "examples" / f"train_{way}.py"

    def losses(*launcher: str) -> list[float]:
        done = subprocess.run(
            [sys.executable, *launcher, str(script), "--epochs", "1"],
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [float(each) for each in re.findall(r"loss (\S+) on", done.stdout)]

    together = losses("-m", "torch.distributed.run", "--nproc-per-node", "2")
    assert together == pytest.approx(losses(), abs=5e-6)
