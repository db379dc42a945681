"""Device memory in several processes: one process's writes are another's values, and nobody's are lost."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import loaded
import pytest
import torch
from other_process import SECONDS, OtherProcess
from torch import nn

from opsmith.errors import NotShareable, SharedMemoryGone
from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)

LEAVES_TENSORS = "another process gives shared memory up when it comes to it"

SPAWN = multiprocessing.get_context("spawn")
FORKSERVER = multiprocessing.get_context("forkserver")


@pytest.fixture(scope="module")
def spawned() -> Iterator[OtherProcess]:
    """Another process."""
    made = OtherProcess("spawn" if loaded.MODE == "copying" else "forkserver")
    yield made
    made.end()


@pytest.fixture
def other(spawned: OtherProcess) -> Iterator[OtherProcess]:
    """The same, which has given up all it had when the test ends; then nothing is left here either."""
    before = allocated()
    yield spawned
    spawned(clear)
    assert spawned(held) == 0
    assert allocated() == before


def allocated() -> int:
    """Bytes of both devices, once it is known what other processes have given up."""
    gc.collect()
    torch.sim.ipc_collect()  # type: ignore[attr-defined]
    return sum(torch.accelerator.memory_allocated(device) for device in range(2))


# ---- what the other process does: `kept` stays there from call to call


def keep(kept: dict[str, Any], name: str, value: Any) -> None:
    kept[name] = value


def clear(kept: dict[str, Any]) -> None:
    kept.clear()


def get(kept: dict[str, Any], name: str) -> Any:
    return kept[name]


def echo(kept: dict[str, Any], value: Any) -> Any:
    return value


def values(kept: dict[str, Any], name: str) -> Any:
    return kept[name].tolist()


def add(kept: dict[str, Any], name: str, number: float) -> None:
    kept[name].add_(number)
    torch.accelerator.synchronize(kept[name].device)


def held(kept: dict[str, Any]) -> int:
    return allocated()


def address(kept: dict[str, Any], *names: str) -> list[int]:
    return [kept[name].untyped_storage().data_ptr() for name in names]


def files(kept: dict[str, Any]) -> int:
    return len(os.listdir("/proc/self/fd"))


def make(kept: dict[str, Any], size: int) -> bytes:
    """The message of a tensor that is kept alive there."""
    kept["made"] = torch.ones(size, device="sim")
    return bytes(ForkingPickler.dumps(kept["made"]))


def receive(kept: dict[str, Any], message: bytes) -> Any:
    return pickle.loads(message).tolist()


def describe(kept: dict[str, Any], name: str) -> Any:
    value = kept[name]
    return (type(value), value.requires_grad, value.is_leaf, value.grad, str(value.device))


# ---- values


@pytest.mark.parametrize("device", ["sim:0", "sim:1"])
def test_writes_are_seen_in_both_directions(device: str, other: OtherProcess) -> None:
    sent = torch.arange(4.0, device=device)
    other(keep, "x", sent)
    assert other(values, "x") == [0, 1, 2, 3]
    other(add, "x", 1)
    assert sent.tolist() == [1, 2, 3, 4]
    sent.mul_(10)
    torch.accelerator.synchronize(device)
    assert other(values, "x") == [10, 20, 30, 40]
    assert sent.is_shared()
    assert sent.share_memory_() is sent


def test_work_that_is_queued_is_done_before_the_other_process_reads(other: OtherProcess) -> None:
    with loaded.fault("slow", 50_000), torch.Stream("sim"):
        sent = torch.zeros(1 << 20, device="sim")
        sent.fill_(3)
        other(keep, "x", sent)
    assert other(total_of, "x") == 3 << 20
    assert other(echo, 1) == 1


def total_of(kept: dict[str, Any], name: str) -> float:
    return float(kept[name].double().sum().item())


def test_views_share_one_storage(other: OtherProcess) -> None:
    whole = torch.arange(12.0, device="sim").reshape(3, 4)
    padding = torch.ones(1000, device="sim")  # the next one lies further in the same segment
    late = torch.arange(3.0, device="sim")
    other(keep, "whole", whole)
    other(keep, "column", whole[:, 2])
    other(keep, "late", late)
    other.tell(keep, "both", [whole.T, whole[1:, ::2]])
    assert other.answer() is None
    first, second = other(address, "whole", "column")
    assert first == second
    assert other(values, "column") == [2, 6, 10]
    assert other(values, "late") == [0, 1, 2]
    other(add, "column", 0.5)
    assert whole[:, 2].tolist() == [2.5, 6.5, 10.5]
    assert [each.tolist() for each in other(get, "both")] == [
        whole.T.tolist(),
        whole[1:, ::2].tolist(),
    ]
    del padding


def test_parameters_and_modules(other: OtherProcess) -> None:
    parameter = nn.Parameter(torch.ones(2, device="sim"))
    other(keep, "p", parameter)
    assert other(describe, "p") == (nn.Parameter, True, True, None, "sim:0")
    leaf = torch.ones(2, device="sim", requires_grad=True)
    other(keep, "leaf", leaf)
    assert other(describe, "leaf") == (torch.Tensor, True, True, None, "sim:0")
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to("sim").share_memory()
    other(keep, "network", {"of": [network]})
    other(train, network(torch.ones(2, 2, device="sim")).sum().item())
    assert torch.equal(network[0].bias.cpu(), torch.full((2,), 7.0))
    assert "Cowardly refusing" in refusal(RuntimeError, other.tell, keep, "x", leaf * 2)


def train(kept: dict[str, Any], total: float) -> None:
    (network,) = kept["network"]["of"]
    assert network(torch.ones(2, 2, device="sim")).sum().item() == total
    with torch.no_grad():
        network[0].bias.fill_(7)
    torch.accelerator.synchronize()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(0, 3, device="sim"),
        lambda: torch.tensor([1 + 2j], device="sim").conj(),
        lambda: torch.tensor([1 + 2j], device="sim").conj().imag,
        lambda: torch.eye(3, device="sim").to_sparse(),
        lambda: torch.tensor(5, device="sim:1"),
        lambda: torch.ones(2, device="sim", dtype=torch.bfloat16),
    ],
)
def test_tensors_of_all_kinds(make: Any, other: OtherProcess) -> None:
    sent = make()
    other(keep, "x", sent)
    received = other(get, "x")
    assert received.dtype == sent.dtype
    assert received.device == sent.device
    assert received.shape == sent.shape
    assert (
        received.tolist() == sent.tolist()
        if not sent.is_sparse
        else torch.equal(received.to_dense().cpu(), sent.to_dense().cpu())
    )
    assert torch.equal(other(to_host, "x"), sent.cpu().resolve_conj().resolve_neg().to_dense())


def to_host(kept: dict[str, Any], name: str) -> torch.Tensor:
    host: torch.Tensor = kept[name].cpu().resolve_conj().resolve_neg().to_dense()
    return host


def test_storages(other: OtherProcess) -> None:
    sent = torch.arange(3, device="sim", dtype=torch.uint8)
    other(keep, "x", sent.untyped_storage())
    other(keep, "typed", sent.storage())
    assert other(list_of, "x") == other(list_of, "typed") == [0, 1, 2]


def list_of(kept: dict[str, Any], name: str) -> list[int]:
    return list(kept[name].cpu())


def test_a_message_with_many_tensors_takes_no_files(other: OtherProcess) -> None:
    before = other(files)
    sent = [torch.full((100_000 if i % 100 == 0 else 1,), i, device="sim") for i in range(3000)]
    own = len(os.listdir("/proc/self/fd"))
    other(keep, "x", sent)
    assert other(ends, "x") == [0, 2999]
    assert other(files) <= before + 1  # the connection
    assert len(os.listdir("/proc/self/fd")) <= own + 3
    del sent


def ends(kept: dict[str, Any], name: str) -> list[int]:
    return [int(kept[name][0][0]), int(kept[name][-1][0])]


# ---- how long memory lives


def test_memory_is_kept_while_another_process_holds_it(other: OtherProcess) -> None:
    before = allocated()
    sent = torch.full((1000,), 5.0, device="sim")
    other(keep, "x", sent)
    del sent
    assert allocated() == before + 4096
    others = [torch.zeros(1000, device="sim") for _ in range(10)]
    assert other(values, "x") == [5.0] * 1000
    del others
    other(clear)
    assert allocated() == before


def test_shared_memory_keeps_its_place(other: OtherProcess) -> None:
    sent = torch.ones(4, device="sim")
    other(keep, "x", sent)
    refused = "it does not own its memory, or shares it with another process"
    assert refused in refusal(RuntimeError, sent.resize_, 100)
    assert refused in refusal(RuntimeError, sent.set_, sent.untyped_storage(), 2, (8,))
    assert sent.shape == (4,)
    assert refused in refusal(RuntimeError, sent.untyped_storage().resize_, 0)
    torch._lazy_clone(sent).add_(1)
    sent.add_(1)
    torch.accelerator.synchronize()
    assert other(values, "x") == [2, 2, 2, 2]
    other(clear)
    allocated()
    assert sent.resize_(100).shape == (100,)


def test_a_tensor_comes_home(other: OtherProcess) -> None:
    sent = torch.arange(4.0, device="sim")
    back = other(echo, sent[1:])
    assert back.untyped_storage().data_ptr() == sent.untyped_storage().data_ptr()
    assert back.tolist() == [1, 2, 3]
    back.add_(1)
    assert sent.tolist() == [0, 2, 3, 4]
    # Within this process too.
    again = pickle.loads(ForkingPickler.dumps(sent))
    assert again.data_ptr() == sent.data_ptr()


def test_memory_of_a_process_that_dies_is_freed(other: OtherProcess) -> None:
    before = allocated()
    third = OtherProcess("forkserver")
    sent = torch.ones(1000, device="sim")
    third(keep, "x", sent)
    other(keep, "x", sent)
    del sent
    third.end()
    assert allocated() == before + 4096
    assert other(values, "x") == [1.0] * 1000
    other(clear)
    assert allocated() == before


def test_a_tensor_is_sent_on_and_outlives_who_sent_it(other: OtherProcess) -> None:
    third = OtherProcess("forkserver")
    received = third(make_and_get, 3)
    other(keep, "x", received)  # asks the third process
    third.end()  # of sim's memory, the system keeps what is in use
    received.add_(1)
    torch.accelerator.synchronize()
    assert other(values, "x") == [2, 2, 2]
    error = refusal(NotShareable, other.tell, keep, "y", received)
    assert error == GONE.format(third.process.pid)


GONE = (
    "memory that process {} has shared is gone: the process has ended, or does not answer\n"
    "  remedy: let the process that sends a tensor live until it is received"
)


def make_and_get(kept: dict[str, Any], size: int) -> torch.Tensor:
    kept["made"] = torch.ones(size, device="sim")
    made: torch.Tensor = kept["made"]
    return made


def test_a_sender_that_ended_is_named() -> None:
    third = OtherProcess("forkserver")
    message = third(make, 3)
    third.end()
    assert refusal(SharedMemoryGone, pickle.loads, message) == (
        f"memory that process {third.process.pid} has shared is gone: the process has ended "
        "(Connection refused)\n  remedy: let the process that sends a tensor live until it is received"
    )


def test_a_message_is_received_once(other: OtherProcess) -> None:
    message = other(make, 3)
    assert pickle.loads(message).tolist() == [1, 1, 1]
    torch.accelerator.synchronize()
    other(clear)
    again = refusal(SharedMemoryGone, pickle.loads, message)
    assert again == (
        f"memory that process {other.process.pid} has shared is gone: its message was received before, and "
        "the tensor was given up\n  remedy: send a tensor once for each process that receives it"
    )


def test_a_message_is_received_twice_while_the_tensor_lives(other: OtherProcess) -> None:
    message = other(make, 3)
    first, second = pickle.loads(message), pickle.loads(message)
    first.add_(1)
    assert second.tolist() == [2, 2, 2]


# ---- what cannot be shared


def test_memory_of_elsewhere_is_refused_at_once() -> None:
    queue = SPAWN.Queue()
    foreign = torch.from_dlpack(torch.ones(2, device="sim"))
    refused = (
        "memory of sim:0 cannot be shared with another process: it was not allocated by opsmith\n"
        "  remedy: hand over a copy, .clone()"
    )
    assert refusal(NotShareable, queue.put, {"x": [foreign]}) == refused
    assert refusal(NotShareable, ForkingPickler.dumps, foreign) == refused
    queue.put("the next one")
    assert queue.get(timeout=SECONDS) == "the next one"
    queue.close()


def test_memory_of_the_cpu_is_shared_as_ever() -> None:
    tensor = torch.ones(2)
    assert not tensor.is_shared()
    assert tensor.share_memory_().is_shared()
    queue = SPAWN.Queue()
    queue.put({"tensor": tensor})
    received = queue.get(timeout=SECONDS)["tensor"]
    received.add_(1)
    assert tensor.tolist() == [2, 2]
    queue.close()


def test_a_forked_process_is_refused() -> None:
    before = allocated()
    fork = multiprocessing.get_context("fork")
    queue, answers = fork.Queue(), fork.Queue()
    process = fork.Process(target=told_of, args=(queue, answers), daemon=True)
    process.start()
    queue.put(torch.ones(1000, device="sim"))
    assert answers.get(timeout=SECONDS) == (
        "Cannot re-initialize sim in forked subprocess. To use sim with multiprocessing, you must use the "
        "'spawn' start method: torch.multiprocessing.set_start_method(\"spawn\")"
    )
    process.join(SECONDS)
    assert process.exitcode == 0
    queue.close()
    queue.join_thread()
    assert allocated() == before


def told_of(queue: Any, answers: Any) -> None:
    try:
        queue.get(timeout=SECONDS)
    except RuntimeError as error:
        answers.put(str(error).splitlines()[0])


# ---- programs


def double(batch: torch.Tensor) -> torch.Tensor:
    return batch * 2


def fill(rank: int, tensor: torch.Tensor) -> None:
    tensor[rank].fill_(rank + 1)
    torch.accelerator.synchronize()


def test_pools() -> None:
    before = allocated()
    with FORKSERVER.Pool(1) as pool:
        sent = [torch.full((3,), float(i), device="sim") for i in range(4)]
        results = pool.map_async(double, sent).get(SECONDS)
        assert [each.tolist() for each in results] == [[2.0 * i] * 3 for i in range(4)]
        assert {each.device for each in results} == {torch.device("sim:0")}
        del results, sent
    assert allocated() == before


def test_processes_that_are_spawned_share_their_arguments() -> None:
    tensor = torch.zeros(2, 3, device="sim")
    started = torch.multiprocessing.start_processes(
        fill, (tensor,), nprocs=2, join=False, start_method="forkserver"
    )
    assert started.join(SECONDS) or started.join(SECONDS)  # returns for each
    assert tensor.tolist() == [[1, 1, 1], [2, 2, 2]]


class OnDevice(torch.utils.data.Dataset[torch.Tensor]):
    """Elements of the device, from memory of the device."""

    def __init__(self) -> None:
        self.elements = torch.arange(6.0, device="sim")

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.elements[index] * 10


def test_a_data_loader_has_its_workers_make_tensors_of_the_device() -> None:
    before = allocated()
    batches = torch.utils.data.DataLoader(
        OnDevice(),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="forkserver",
        timeout=SECONDS,
    )
    assert [batch.tolist() for batch in batches] == [[0, 10], [20, 30], [40, 50]]
    assert {batch.device.type for batch in batches} == {"sim"}
    del batches
    assert allocated() == before


# ---- strangers, and a process that has no descriptors left

# Says what comes of a connection that asks to be heard, or listens; `user` is whose process it is.
ANOTHER = """
import os, socket, struct, sys
address, user, listens = b"\\0" + sys.argv[1].encode(), int(sys.argv[2]), sys.argv[3] == "listen"
if user:
    os.setuid(user)
made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if listens:
    made.bind(address)
    made.listen()
print("ready", flush=True)
sys.stdin.readline()
if not listens:
    made.connect(address)
    print("connected", flush=True)
    try:
        made.send(struct.pack("=I4xQ", 5, 0))  # kFlush
        print("answered" if made.recv(4096) else "closed", flush=True)
    except ConnectionError:
        print("closed", flush=True)
"""
STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs a process as another user")


@contextlib.contextmanager
def another(address: str, user: int, does: str) -> Iterator[subprocess.Popen[str]]:
    """A process without opsmith, which waits for a line before it connects."""
    command = [sys.executable, "-ISc", ANOTHER, address, str(user), does]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def goes_on(process: subprocess.Popen[str]) -> str:
    """The process's next line, once it has been told to connect."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    return process.stdout.readline().strip()


@as_root
def test_a_stranger_at_the_address_of_a_process_that_has_ended_is_not_believed() -> None:
    with another("opsmith-1-0", STRANGER, "listen"):
        assert refusal(RuntimeError, torch.ops.opsmith.receive_storage, "opsmith-1-0", 1) == (
            "memory that process 1 has shared is gone: the process has ended (Connection refused)\n"
            "  remedy: let the process that sends a tensor live until it is received"
        )


@pytest.fixture
def listening() -> Iterator[str]:
    """Where this process listens, for as long as something is shared."""
    storage = torch.ones(3, device="sim").untyped_storage()
    name, memory = torch.ops.opsmith.send_storage(storage)
    yield name
    torch.ops.opsmith.receive_storage(name, memory)


@pytest.mark.parametrize(
    ("user", "answer"),
    [pytest.param(STRANGER, "closed", marks=as_root), (0, "answered")],
    ids=["a stranger", "this user"],
)
def test_only_this_users_processes_are_answered(listening: str, user: int, answer: str) -> None:
    with another(listening, user, "connect") as process:
        assert goes_on(process) == "connected"
        assert process.stdout is not None and process.stdout.readline().strip() == answer


def test_without_descriptors_others_wait_and_nothing_spins(listening: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    with another(listening, 0, "connect") as process:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            assert goes_on(process) == "connected"
            began = time.process_time()
            time.sleep(1)
            # It was the whole second.
            assert time.process_time() - began < 0.5
        finally:
            for number in held:
                os.close(number)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert process.stdout is not None and process.stdout.readline() == "answered\n"
