"""``opsmith.trace`` and ``opsmith trace``: what they show is what happened, and tracing changes nothing."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
import torch

import opsmith
from command import run_opsmith
from opsmith.errors import FilterInvalid, OperatorUnknown, TraceRejected
from opsmith.observe.programs.trace import check_filter
from opsmith.runtime import LoadedBackend
from opsmith.runtime.records.trace.recording import Trace
from opsmith.runtime.records.trace.short import short
from opsmith.runtime.records.trace.traced_calls import (
    How,
    TracedCall,
    TracedThread,
    TraceFilter,
    totals,
)
from opsmith.schema import Catalogue, torch_version

_TIME = re.compile(r" [\d.]+ (µs|ms|s)(?=( raised)?$)", re.MULTILINE)


def without_times(text: str) -> str:
    return _TIME.sub("", text)


def shown(body: Callable[[], object]) -> str:
    """The trace of the calls of ``body`` as text, the times left out."""
    with opsmith.trace() as traced:
        body()
    return without_times(traced.text())


def expect(body: Callable[[], object], expected: str) -> None:
    assert shown(body) == dedent(expected).strip()


@pytest.fixture(autouse=True)
def backward_on_this_thread() -> Iterator[None]:
    """As it is by itself where the host sees the device's memory."""
    with torch.autograd.set_multithreading_enabled(False):
        yield


@pytest.fixture
def x(sim: LoadedBackend) -> torch.Tensor:
    return torch.arange(6.0, device="sim").reshape(2, 3)


# ---- in short


def test_in_short(sim: LoadedBackend) -> None:
    tensors = [torch.ones(size, device="sim") for size in (2, 3, 4)]
    with opsmith.trace() as traced:
        torch.ones(4).neg()
        torch.zeros(2).neg()
        for each in tensors:
            each.erfinv().relu()
        torch.special.erfinv(tensors[0])
        torch.ones(2)
    lines = [re.sub(r"[\d.]+ (µs|ms|s)\b", "…", line) for line in short(traced.threads)]
    assert lines == [
        "4 calls off the device: aten::neg, aten::ones, aten::zeros …",
        "3 times, … in all, the last:",
        "  [call] aten::erfinv key=PrivateUse1 route=fallback (float32[4]) sim:0 …",
        "  [call] aten::relu key=PrivateUse1 route=derived (float32[4]) sim:0 …",
        "[call] aten::special_erfinv key=AutogradPrivateUse1 route=composite (float32[2]) sim:0 …",
        "  [redispatch] aten::erfinv key=PrivateUse1 route=fallback (float32[2]) sim:0 …",
        "1 call off the device: aten::ones …",
    ]


def test_a_repeated_step_is_shown_once() -> None:
    def call(operator: str, nanoseconds: int) -> TracedCall:
        return TracedCall(
            How.CALL,
            operator,
            "PrivateUse1",
            "kernel",
            None,
            False,
            "sim:0",
            0,
            nanoseconds,
            0,
            False,
        )

    step = ("a", "b", "b", "b", "c")
    calls = tuple(call(name, 10**6) for name in ("a", *step * 3, "a", "b"))
    lines = [*short([TracedThread(1, 1, "", calls)])]
    shown = "[call] {} key=PrivateUse1 route=kernel sim:0 1.00 ms".format
    assert lines == [
        shown("a"),
        "3 times, 15.00 ms in all, the last:",
        f"  {shown('a')}",
        "  3 times, 3.00 ms in all, the last:",
        f"    {shown('b')}",
        f"  {shown('c')}",
        shown("a"),
        shown("b"),
    ]


def test_the_command_shows_all_on_request(program: Path) -> None:
    short_one = opsmith_trace("--backend", "sim", program, "sim")
    whole = opsmith_trace("--backend", "sim", "--all", program, "sim")
    assert (
        short_one.stderr
        == f"in short: --all shows each of {len(whole.stdout.splitlines())} calls\n"
    )
    assert whole.stderr == ""
    assert (
        "[call] aten::neg key=PrivateUse1 route=derived (float32[2, 3]) sim:0" in short_one.stdout
    )
    assert "[redispatch] aten::neg key=PrivateUse1" in whole.stdout


# ---- ten calls, and what PyTorch's dispatcher does for each


def test_no_gradient_is_needed(x: torch.Tensor) -> None:
    # Still the autograd key comes first.
    expect(
        lambda: x.lerp(x, 0.5),
        """
        [call] aten::lerp.Scalar key=AutogradPrivateUse1 (float32[2, 3], float32[2, 3]) sim:0
          [redispatch] aten::lerp.Scalar key=PrivateUse1 route=derived (float32[2, 3], float32[2, 3]) sim:0
        """,
    )


def test_composite(x: torch.Tensor) -> None:
    # flatten has no kernel for any device: the autograd key itself decomposes it.
    expect(
        lambda: x.flatten(),
        """
        [call] aten::flatten.using_ints key=AutogradPrivateUse1 route=composite (float32[2, 3]) sim:0
          [call] aten::view key=AutogradPrivateUse1 (float32[2, 3]) sim:0
            [redispatch] aten::view key=ADInplaceOrView (float32[2, 3]) sim:0
              [redispatch] aten::view key=PrivateUse1 route=kernel (float32[2, 3]) sim:0
        """,
    )


def test_a_gradient_and_its_backward(sim: LoadedBackend) -> None:
    leaf = torch.ones(2, device="sim", requires_grad=True)
    upstream = torch.ones(2, device="sim")
    expect(
        lambda: (leaf * upstream).backward(upstream),
        """
        [call] aten::mul.Tensor key=AutogradPrivateUse1 (float32[2], float32[2]) sim:0
          [redispatch] aten::mul.Tensor key=PrivateUse1 route=derived (float32[2], float32[2]) sim:0
        [backward] MulBackward0
          [call] aten::mul.Tensor key=AutogradPrivateUse1 (float32[2], float32[2]) sim:0
            [redispatch] aten::mul.Tensor key=PrivateUse1 route=derived (float32[2], float32[2]) sim:0
        [backward] torch::autograd::AccumulateGrad
          [call] aten::detach key=AutogradPrivateUse1 (float32[2]) sim:0
            [redispatch] aten::detach key=ADInplaceOrView (float32[2]) sim:0
              [redispatch] aten::detach key=PrivateUse1 route=composite (float32[2]) sim:0
        """,
    )


def test_autocast(sim: LoadedBackend) -> None:
    a = torch.ones(2, 2, device="sim", dtype=torch.bfloat16)

    def product() -> None:
        with torch.autocast("sim", dtype=torch.bfloat16):
            a.mm(a)  # nothing to cast

    expect(
        product,
        """
        [call] aten::mm key=AutocastPrivateUse1 (bfloat16[2, 2], bfloat16[2, 2]) sim:0
          [callBoxed] aten::mm key=AutogradPrivateUse1 (bfloat16[2, 2], bfloat16[2, 2]) sim:0
            [redispatch] aten::mm key=PrivateUse1 route=derived (bfloat16[2, 2], bfloat16[2, 2]) sim:0
        """,
    )


def test_fallback(x: torch.Tensor) -> None:
    expect(
        lambda: x.erfinv(),
        """
        [call] aten::erfinv key=AutogradPrivateUse1 (float32[2, 3]) sim:0
          [redispatch] aten::erfinv key=PrivateUse1 route=fallback (float32[2, 3]) sim:0
            [redispatch] aten::erfinv key=CPU (float32[2, 3]) cpu
        """,
    )


def test_a_kernel_that_refuses(sim: LoadedBackend) -> None:
    z = torch.ones(2, device="sim", dtype=torch.complex64)
    expect(
        lambda: z.sin(),
        """
        [call] aten::sin key=AutogradPrivateUse1 (complex64[2]) sim:0
          [redispatch] aten::sin key=PrivateUse1 route=derived, fell back (complex64[2]) sim:0
            [redispatch] aten::sin key=CPU (complex64[2]) cpu
        """,
    )


def test_derived_in_place(x: torch.Tensor) -> None:
    # The kernel is the out variant's, and runs into `self`.
    expect(
        lambda: x.relu_(),
        """
        [call] aten::relu_ key=AutogradPrivateUse1 (float32[2, 3]) sim:0
          [redispatch] aten::relu_ key=ADInplaceOrView (float32[2, 3]) sim:0
            [redispatch] aten::relu_ key=PrivateUse1 route=derived (float32[2, 3]) sim:0
        """,
    )


def test_a_python_kernel_registered_while_tracing(sim: LoadedBackend, x: torch.Tensor) -> None:
    def calls() -> None:
        x.erfinv()
        with sim.kernel("erfinv")(lambda self: self):
            x.erfinv()
        x.erfinv()

    above = """
        [call] aten::erfinv key=AutogradPrivateUse1 (float32[2, 3]) sim:0
          [redispatch] aten::erfinv key=PrivateUse1 route=fallback (float32[2, 3]) sim:0"""
    on_cpu = """
            [redispatch] aten::erfinv key=CPU (float32[2, 3]) cpu"""
    # The plan is asked at the end, when the Python kernel is gone.
    expect(calls, above + on_cpu + above + above + on_cpu)
    with sim.kernel("erfinv")(lambda self: self):
        assert "aten::erfinv key=PrivateUse1 route=kernel" in shown(x.erfinv)


def test_a_view(x: torch.Tensor) -> None:
    expect(
        lambda: x.view(3, 2),
        """
        [call] aten::view key=AutogradPrivateUse1 (float32[2, 3]) sim:0
          [redispatch] aten::view key=ADInplaceOrView (float32[2, 3]) sim:0
            [redispatch] aten::view key=PrivateUse1 route=kernel (float32[2, 3]) sim:0
        """,
    )


def test_a_custom_operator_defined_while_tracing(sim: LoadedBackend, x: torch.Tensor) -> None:
    library = torch.library.Library("tracetest", "DEF")

    def define_and_call() -> None:
        library.define("twice(Tensor x, Tensor? y, Tensor[] more) -> Tensor")
        library.impl("twice", lambda x, y, more: x.as_strided((1,), (1,)), "PrivateUse1")
        torch.ops.tracetest.twice(x, None, [torch.ones(2)])

    expect(
        define_and_call,
        """
        [call] aten::ones key=BackendSelect () cpu
          [redispatch] aten::ones key=CPU route=composite () cpu
            [call] aten::empty.memory_format key=BackendSelect () cpu
              [redispatch] aten::empty.memory_format key=CPU () cpu
            [call] aten::fill_.Scalar key=CPU (float32[2]) cpu
        [callBoxed] tracetest::twice key=AutogradPrivateUse1 (float32[2, 3], cpu float32[2]) sim:0
          [redispatch] tracetest::twice key=PrivateUse1 route=kernel (float32[2, 3], cpu float32[2]) sim:0
            [call] aten::as_strided key=AutogradPrivateUse1 (float32[2, 3]) sim:0
              [redispatch] aten::as_strided key=ADInplaceOrView (float32[2, 3]) sim:0
                [redispatch] aten::as_strided key=PrivateUse1 route=kernel (float32[2, 3]) sim:0
        """,
    )
    library._destroy()


def test_redispatches_without_autograd(sim: LoadedBackend) -> None:
    # A factory function has no tensor: BackendSelect finds the device.
    expect(
        lambda: torch.empty(2, device="sim"),
        """
        [call] aten::empty.memory_format key=BackendSelect () sim
          [redispatch] aten::empty.memory_format key=PrivateUse1 route=kernel () sim
        """,
    )


def test_transforms(x: torch.Tensor) -> None:
    # Each level of torch.func ends in a boxed call at the level below.
    expect(
        lambda: torch.vmap(torch.sin)(x),
        """
        [call] aten::sin key=FuncTorchDynamicLayerFrontMode (float32[3]) sim:0
          [callBoxed] aten::sin key=FuncTorchBatched (float32[3]) sim:0
            [call] aten::sin key=FuncTorchDynamicLayerBackMode (float32[2, 3]) sim:0
              [callBoxed] aten::sin key=AutogradPrivateUse1 (float32[2, 3]) sim:0
                [redispatch] aten::sin key=PrivateUse1 route=derived (float32[2, 3]) sim:0
        """,
    )


def test_what_raises_says_so_and_raises_the_same(x: torch.Tensor) -> None:
    def refused() -> None:
        with pytest.raises(RuntimeError, match=r"shape '\[7\]' is invalid for input of size 6"):
            x.view(7)

    expect(
        refused,
        """
        [call] aten::view key=AutogradPrivateUse1 (float32[2, 3]) sim:0 raised
          [redispatch] aten::view key=ADInplaceOrView (float32[2, 3]) sim:0 raised
            [redispatch] aten::view key=PrivateUse1 route=kernel (float32[2, 3]) sim:0 raised
        """,
    )


def test_boxed_calls_from_python(x: torch.Tensor) -> None:
    first = shown(lambda: torch.ops.aten.neg(x)).splitlines()[0]
    assert first == "[callBoxed] aten::neg key=AutogradPrivateUse1 (float32[2, 3]) sim:0"
    with opsmith.trace(shapes=False) as traced:  # which tells no boxed call of Python's
        torch.ops.aten.neg(x)
    assert without_times(str(traced)).splitlines() == [
        "[call] aten::neg key=AutogradPrivateUse1 sim:0",
        "  [redispatch] aten::neg key=PrivateUse1 route=derived sim:0",
    ]


# ---- tracing changes nothing


def training() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(72, 3),
    ).to("sim")  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())
    images = torch.randn(4, 1, 8, 8).to("sim")
    target = torch.tensor([0, 1, 2, 0]).to("sim")
    seen = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), target)
        loss.backward()
        optimizer.step()
        seen += [loss.detach().cpu(), *(each.grad.cpu() for each in model.parameters())]
    return [*seen, *(each.detach().cpu() for each in model.state_dict().values())]


def test_a_training_step_is_the_same(sim: LoadedBackend) -> None:
    expected = training()
    with opsmith.trace() as traced:
        found = training()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(expected, training(), strict=True))
    nodes = {call.operator for call in traced.calls if call.how is How.NODE}
    assert {"ConvolutionBackward0", "NativeBatchNormBackward0", "AddmmBackward0"} <= nodes
    backward = [call for call in traced.calls if call.operator == "aten::convolution_backward"]
    assert backward and all(call.in_backward for call in backward)
    forward = [call for call in traced.calls if call.operator == "aten::convolution"]
    assert forward and not any(call.in_backward for call in forward)


def test_results_alias_as_without(x: torch.Tensor) -> None:
    with opsmith.trace():
        out = torch.empty(0, device="sim")
        assert torch.add(x, x, out=out) is out
        assert x.add_(0) is x
        view = x[0]
        values, indices = x.max(0)
        held = torch.empty(0, device="sim"), torch.empty(0, device="sim", dtype=torch.int64)
        assert torch.max(x, 0, out=held)[0] is held[0]
    assert view.data_ptr() == x.data_ptr() and view._base is x._base
    assert torch.equal(values, held[0]) and torch.equal(indices, held[1])
    assert out.tolist() == (x * 2).tolist()


def test_what_is_asked_of_the_dispatcher_does_not_change(x: torch.Tensor) -> None:
    def facts() -> list[object]:
        names = [f"aten::{name}" for name in ("add.Tensor", "linear", "view", "mm", "empty_like")]
        return [
            fact
            for name in names
            for fact in (
                torch._C._dispatch_dump(name),
                torch._C._dispatch_dump_table(name),
                torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutogradPrivateUse1"),
            )
        ]

    before = facts()
    with opsmith.trace() as traced:
        torch.nn.functional.linear(x, x).add(1)
        assert facts() == before
    assert facts() == before
    assert {"aten::linear", "aten::add.Tensor"} <= {call.operator for call in traced.calls}


def test_a_kernel_that_was_taken_during_a_trace_outlives_it() -> None:
    x = torch.ones(3)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    with opsmith.trace():
        x.sin()
        kernel = torch.library.get_kernel("aten::sin", "CPU")
        assert torch.equal(kernel.call_boxed(keys, x), x.sin())
    assert torch.equal(kernel.call_boxed(keys, x), x.sin())


def test_modes_of_python_and_subclasses(x: torch.Tensor) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return function(*args, **(kwargs or {})) + 1

    def body() -> None:
        with Mode():
            results.append(x.neg())

    results: list[torch.Tensor] = []
    text = shown(body)
    assert torch.equal(results[0], 1 - x)
    assert "[redispatch] aten::neg key=Python (float32[2, 3]) sim:0" in text
    assert "[callBoxed] aten::neg key=PrivateUse1 route=derived (float32[2, 3]) sim:0" in text


# ---- what is traced


def test_threads_have_their_own_tracks(x: torch.Tensor) -> None:
    def work() -> None:
        for _ in range(20):
            x.neg()

    with opsmith.trace() as traced:
        x.abs()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(each.calls) for each in traced.threads] == [
        len(traced.threads[0].calls),
        40,
        40,
        40,
    ]
    assert [each.is_main for each in traced.threads] == [True, False, False, False]
    text = traced.text().splitlines()
    assert text[0] == "main thread:"
    assert sum(line.startswith("thread ") for line in text) == 3


def test_a_trace_begins_and_ends_while_threads_call(sim: LoadedBackend) -> None:
    done = threading.Event()
    wrong: list[torch.Tensor] = []
    x = torch.ones(4, device="sim")

    def work() -> None:
        if not torch.equal((x + x).neg().cpu(), torch.full((4,), -2.0)):
            wrong.append(x)

    def work_on() -> None:
        while not done.is_set():
            work()

    def work_in_new_threads() -> None:
        while not done.is_set():
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

    workers = (work_on, work_on, work_in_new_threads)
    threads = [threading.Thread(target=worker) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for _ in range(30):
            with opsmith.trace(shapes=False) as traced:
                torch.ones(4, device="sim").mul(2)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert any(call.operator == "aten::mul.Tensor" for call in traced.calls)


def test_calls_beyond_the_limit_are_counted(x: torch.Tensor) -> None:
    with opsmith.trace(limit=5) as traced:
        for _ in range(4):
            x.neg()  # two kernels
    assert (len(traced.calls), traced.dropped) == (5, 3)


def test_one_trace_at_a_time(x: torch.Tensor) -> None:
    with (
        opsmith.trace(),
        pytest.raises(TraceRejected, match="a trace runs already"),
        opsmith.trace(),
    ):
        pass
    with pytest.raises(TraceRejected, match="a limit of 0 calls"), opsmith.trace(limit=0):
        pass
    with opsmith.trace() as traced:
        x.neg()
    assert len(traced.calls) == 2


def test_an_exception_ends_the_trace_and_passes(x: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="mine"), opsmith.trace(module="nothing") as traced:
        raise ValueError("mine")
    assert traced.calls == ()
    with pytest.raises(ValueError, match="mine"), opsmith.trace() as traced:
        x.neg()
        raise ValueError("mine")
    assert [call.operator for call in traced.calls] == ["aten::neg"] * 2


def test_many_tensors_are_cut_short(x: torch.Tensor) -> None:
    with opsmith.trace() as traced:
        torch.cat([x] * 30)
        torch.ones(1, 1, 1, 1, 1, 1, 1, device="sim").neg()
    cat = next(call for call in traced.calls if call.operator == "aten::cat")
    assert cat.more_tensors and cat.tensors is not None and len(cat.tensors) == 20
    assert "float32[2, 3], …) sim:0" in traced.text()
    assert "(float32[1, 1, 1, 1, 1, 1, 1])" in traced.text()


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.neg()).sum()


def step(net: Net, x: torch.Tensor) -> None:
    net(x).backward()


@pytest.mark.parametrize("path", ["layers.1", "net.layers.1", "*.1"])
def test_a_module_with_its_backward(x: torch.Tensor, path: str) -> None:
    net = Net().to("sim")
    with opsmith.trace(module=path) as traced:
        step(net, x)
    lines = [line for line in without_times(str(traced)).splitlines() if line[:2] != "  "]
    assert lines == ["[module] net.layers.1", "[backward] AddmmBackward0", "[backward] TBackward0"]
    operators = [call.operator for call in traced.calls]
    assert operators.count("aten::linear") == 1
    assert "aten::neg" not in operators and "aten::sum" not in operators


def test_modules_themselves_and_two_of_them(x: torch.Tensor) -> None:
    net = Net().to("sim")
    with opsmith.trace(module=[net.layers[0], "layers.1"]) as traced:
        step(net, x)
    modules = [call.operator for call in traced.calls if call.how is How.MODULE]
    assert modules == ["net.layers.0", "net.layers.1"]


def test_a_module_that_is_not_there(x: torch.Tensor) -> None:
    net = Net().to("sim")
    with pytest.raises(FilterInvalid) as raised, opsmith.trace(module="net.layers.3"):
        step(net, x)
    assert str(raised.value) == (
        "no module `net.layers.3` was called (did you mean net.layers.1, net.layers.0, net.layers?)\n"
        "  remedy: name it by its path in the model, as named_modules() does; compiled modules are not seen"
    )
    nothing = pytest.raises(FilterInvalid, match="no module `net` was called: none was")
    with nothing, opsmith.trace(module="net"):
        x.neg()


# ---- showing


def call(operator: str, key: str, depth: int, took: int | None, route: str = "") -> TracedCall:
    return TracedCall(How.CALL, operator, key, route, None, False, "cpu", 0, took, depth, False)


TREE = TracedThread(
    1, 1, "", (
        call("aten::linear", "AutogradCPU", 0, 1000, "composite"),
        call("aten::addmm", "AutogradCPU", 1, 600),
        call("aten::addmm", "CPU", 2, 500),
        call("aten::linear", "AutogradCPU", 1, 100, "composite"),
        call("aten::add.Tensor", "CPU", 0, None),
    ),
)  # fmt: skip


def test_totals() -> None:
    found = {
        (each.operator, each.key): (each.calls, each.seconds, each.own_seconds)
        for each in totals([TREE], TraceFilter())
    }
    assert found == {
        ("aten::linear", "AutogradCPU"): (
            2,
            1e-6,
            4e-7,
        ),  # the inner one is in the outer one's time
        ("aten::addmm", "AutogradCPU"): (1, 6e-7, 1e-7),
        ("aten::addmm", "CPU"): (1, 5e-7, 5e-7),
        ("aten::add.Tensor", "CPU"): (1, 0.0, 0.0),
    }
    (only,) = totals([TREE], TraceFilter(operators=("addmm",), keys=("CPU",)))
    assert (only.calls, only.seconds, only.own_seconds) == (1, 5e-7, 5e-7)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"operators": ["addmm"]}, ["[call] aten::addmm key=AutogradCPU", "  [call] aten::addmm key=CPU"]),
        ({"keys": ["CPU"]}, ["[call] aten::addmm key=CPU", "[call] aten::add.Tensor key=CPU"]),
        ({"depth": 1}, ["[call] aten::linear key=AutogradCPU", "[call] aten::add.Tensor key=CPU"]),
        ({"operators": ["add"]}, ["[call] aten::add.Tensor key=CPU"]),
        ({"operators": ["add*"], "depth": 1}, ["[call] aten::add.Tensor key=CPU"]),
        ({"keys": ["Auto*"], "operators": ["aten::addmm"]}, ["[call] aten::addmm key=AutogradCPU"]),
        ({"routes": ["composite"]}, 2 * ["[call] aten::linear key=AutogradCPU"]),
    ],
)  # fmt: skip
def test_filters(filters: dict[str, object], expected: list[str]) -> None:
    trace = Trace()
    trace.threads = (TREE,)
    lines = trace.text(**filters).splitlines()  # type: ignore[arg-type]
    found = [re.sub(r"( route=composite)? cpu .*", "", line) for line in lines]
    assert [line.strip() for line in found] == [line.strip() for line in expected]
    assert all(line.startswith("  ") for line in found[1:] if "addmm" in line)
    assert "did not return" in trace.text().splitlines()[-1]


def test_perfetto(x: torch.Tensor, tmp_path: Path) -> None:
    with opsmith.trace() as traced:
        (x.clone().requires_grad_() * 2).sum().backward()
    traced.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "M"}
    assert names == {"process_name", "thread_name"}
    calls = [event for event in events if event["ph"] == "X"]
    assert len(calls) == len(traced.calls)
    assert {(event["pid"], event["tid"]) for event in calls} == {(os.getpid(), os.getpid())}
    assert {"call", "backward"} <= {event["cat"] for event in calls}
    assert calls[0]["ts"] == 0
    # Each lies within the one that it is nested in, and begins no earlier than the one before.
    open_until: list[float] = []
    for event, known in zip(calls, traced.calls, strict=True):
        end = event["ts"] + event["dur"]
        del open_until[known.depth :]
        assert not open_until or end <= open_until[-1] + 1e-6
        open_until.append(end)
    assert [event["ts"] for event in calls] == sorted(event["ts"] for event in calls)
    assert any(event["args"].get("route") == "derived" for event in calls)
    with pytest.raises(opsmith.OpsmithError, match="cannot be written"):
        traced.save(tmp_path / "no" / "folder.json")


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (TraceFilter(operators=("ad.Tensor",)), "has no operator `ad.Tensor` (did you mean"),
        (TraceFilter(keys=("AutogradPrivatUse1",)), "no dispatch key `AutogradPrivatUse1` (did you mean"),
        (TraceFilter(routes=("fallbak",)), "no plan has the route `fallbak` (did you mean fallback?)"),
    ],
)  # fmt: skip
def test_filters_that_nothing_can_pass(
    catalogue: Catalogue, chosen: TraceFilter, message: str
) -> None:
    with pytest.raises((OperatorUnknown, FilterInvalid), match=re.escape(message)):
        check_filter(chosen, catalogue)


# ---- the command


PROGRAM = """\
import os, signal, sys, threading
import torch

x = torch.empty(2, 3, device="sim" if "sim" in sys.argv else "cpu")
x.neg()
if "thread" in sys.argv:
    thread = threading.Thread(target=x.sin)
    thread.start()
    thread.join()
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        x.cos()
        os._exit(0)
    os.waitpid(child, 0)
if "raise" in sys.argv:
    raise ValueError("mine")
if "exit" in sys.argv:
    sys.exit(3)
if "_exit" in sys.argv:
    os._exit(4)
if "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
if "interrupt" in sys.argv:
    os.kill(os.getpid(), signal.SIGINT)
"""
NEG_ON_CPU = """\
[call] aten::empty.memory_format key=BackendSelect () cpu
  [redispatch] aten::empty.memory_format key=CPU () cpu
[call] aten::neg key=AutogradCPU (float32[2, 3]) cpu
  [redispatch] aten::neg key=CPU (float32[2, 3]) cpu
"""


@pytest.fixture
def program(tmp_path: Path, sim: LoadedBackend) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


# A trace begins when torch calls the packages that load themselves.
opsmith_trace = partial(run_opsmith, "trace", env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"})


@pytest.mark.parametrize(
    ("how", "status"),
    [("", 0), ("raise", 1), ("exit", 3), ("_exit", 4), ("kill", 137), ("interrupt", 130)],
)
def test_however_a_program_ends_the_trace_up_to_there_is_shown(
    program: Path, how: str, status: int
) -> None:
    done = opsmith_trace(program, how)
    assert (done.returncode, without_times(done.stdout)) == (status, NEG_ON_CPU)
    assert ("ValueError: mine" in done.stderr) == (how == "raise")


def test_threads_and_forks_and_a_backend(program: Path) -> None:
    done = opsmith_trace("--json", "--backend", "sim", program, "sim", "thread", "fork")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["dropped"]) == (0, 0)
    assert answer["backend"].endswith("drivers/sim/backend.yaml")
    served = [
        [
            (call["operator"], call["route"], call["tensors"])
            for call in thread["calls"]
            if call.get("key") == "PrivateUse1"
        ]
        for thread in answer["threads"]
    ]
    # The main thread, the other one, and the fork.
    assert served == [
        [("aten::empty.memory_format", "kernel", []), ("aten::neg", "derived", ["float32[2, 3]"])],
        [("aten::sin", "derived", ["float32[2, 3]"])],
        [("aten::cos", "derived", ["float32[2, 3]"])],
    ]
    first, second, fork = answer["threads"]
    assert first["process"] == second["process"] == first["thread"] != second["thread"]
    assert fork["process"] not in (first["process"], None) and fork["is_main"]


def test_a_program_that_loads_its_backend_itself_as_a_module(
    tmp_path: Path, sim: LoadedBackend
) -> None:
    (tmp_path / "itself.py").write_text(
        'import sys, torch, opsmith\ntorch.ones(1).neg()\nbackend = opsmith.load("sim")\n'
        '@backend.kernel("trunc")\ndef trunc(self):\n    return self\n'
        'torch.ones(1, device="sim").trunc()\nprint(sys.argv[1:])\n'
    )
    done = opsmith_trace(
        "--key", "PrivateUse1", "--operator", "trunc", "--no-shapes", "-m", "itself", "--depth",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert without_times(done.stdout).splitlines() == [
        "['--depth']",
        "[redispatch] aten::trunc key=PrivateUse1 route=kernel sim:0",
    ]


def test_files_and_formats(program: Path, tmp_path: Path) -> None:
    done = opsmith_trace("-o", tmp_path / "trace.json", program)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"wrote {tmp_path / 'trace.json'}\n"
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"].count("aten::neg") == 2
    done = opsmith_trace("--format", "table", "--json", program)
    answer = json.loads(done.stdout)
    counts = {(each["operator"], each["key"]): each["calls"] for each in answer["totals"]}
    assert counts == {
        ("aten::empty.memory_format", "BackendSelect"): 1,
        ("aten::empty.memory_format", "CPU"): 1,
        ("aten::neg", "AutogradCPU"): 1,
        ("aten::neg", "CPU"): 1,
    }
    done = opsmith_trace("--format", "table", "--limit", 3, program)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["operator", "key", "route", "calls", "total", "ms", "own", "ms"]
    assert len(lines) == 4
    assert done.stderr == "1 more calls came after the first 3 and were not recorded (--limit)\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--module", "model.layers.3"],
            "error: no module `model.layers.3` was called: none was\n  remedy: name it by its path in the "
            "model, as named_modules() does; compiled modules are not seen\n",
        ),
        (
            ["--operator", "mylib::negg"],
            "error: the program called nothing named `mylib::negg`\n  remedy: `opsmith trace --format table` "
            "lists all that it calls\n",
        ),
        (
            ["--operator", "negg"],
            f"error: torch {torch_version()} has no operator `negg` (did you mean neg, neg_, ne?)\n  "
            "remedy: `opsmith ops --search` finds operators; wildcards are allowed, as in `conv*`\n",
        ),
        (
            ["-o", "/no/such/folder/trace.json"],
            "error: `/no/such/folder/trace.json` cannot be written: No such file or directory\n"
            "  remedy: name a file in a folder of yours\n",
        ),
    ],
)
def test_what_is_asked_for_and_is_not_there(
    program: Path, options: list[str], message: str
) -> None:
    done = opsmith_trace(*options, program)
    assert (done.returncode, done.stderr) == (1, message)


def test_programs_that_cannot_be_traced(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print(1)")
    # A fork has imported torch: by its environment this is a process of its own.
    done = opsmith_trace(tmp_path / "plain.py", env={"PYTHONUNBUFFERED": "1"})
    assert (done.returncode, done.stdout) == (1, "1\n")
    assert done.stderr == (
        f"error: `{tmp_path / 'plain.py'}` was not traced: it imported no torch, or one that was told to "
        "load no backends\n  remedy: trace a program that imports torch, without "
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0\n"
    )
    done = opsmith_trace("missing.py")
    assert (done.returncode, done.stderr) == (
        1,
        "error: there is no program `missing.py`\n  remedy: name a Python file, or a module after -m; "
        "options of opsmith stand before it\n",
    )
