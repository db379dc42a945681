"""torch.compile with Inductor: its C++ over the host window, beside the CPU's eager results."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import fork_server
import needs
from opsmith.schema import torch_version
from opsmith.schema.torch_names import Feature

pytestmark = pytest.mark.compiles

_BEGIN = """
import copy
import opsmith
opsmith.load("sim")
import torch
from torch import nn
from torch._inductor import metrics
"""


def run(script: str, tmp_path: Path, **settings: str) -> list[str]:
    """The lines that the script prints; what it compiles is not kept."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), **settings}
    done = fork_server.run(
        [sys.executable, "-c", _BEGIN + dedent(script)], env=environment, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_network_trains_in_fused_kernels(tmp_path: Path) -> None:
    lines = run(
        """
        network = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
        there = copy.deepcopy(network).to("sim")
        compiled = torch.compile(there, dynamic=True)
        for rows in (8, 9):
            x = torch.randn(rows, 16)
            network.zero_grad()
            there.zero_grad()
            expected, loss = network(x).square().mean(), compiled(x.to("sim")).square().mean()
            expected.backward()
            loss.backward()
            torch.testing.assert_close(loss.cpu(), expected)
            for ours, theirs in zip(there.parameters(), network.parameters(), strict=True):
                torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
        print(metrics.generated_kernel_count > 2, torch._dynamo.utils.counters["graph_break"])
        on_second = torch.compile(lambda x: (x * 2).relu().sum(-1))(torch.ones(3, 4, device="sim:1"))
        print(on_second, torch.accelerator.current_device_index())
        """,
        tmp_path,
    )
    assert lines == [
        "True Counter()",
        "tensor([8., 8., 8.], device='sim:1') 0",
    ]


def test_dynamo_has_the_whole_interface_of_the_device(tmp_path: Path) -> None:
    lines = run(
        """
        from torch._dynamo.device_interface import CudaInterface, DeviceInterface, get_interface_for_device
        found = get_interface_for_device("sim")
        # From 2.15 on; the base class answers rightly for any device.
        answered = {
            "exposes_streams", "get_cache_system_info", "get_cpp_device_options", "get_multi_processor_count",
            "is_gpu",
        }
        for base, theirs, ours in (
            (DeviceInterface, CudaInterface, found),
            (DeviceInterface.Worker, CudaInterface.Worker, found.Worker),
        ):
            names = {name for name in {**vars(base), **vars(theirs)} if not name.startswith("__")}
            print(sorted(names - set(vars(ours)) - answered))
        print(get_interface_for_device("sim:1") is get_interface_for_device(torch.device("sim", 0)) is found)
        print(found.exchange_device(1), found.current_device(), found.maybe_exchange_device(-1))
        print(found.exchange_device(0), found.current_device(), found.device_count(), found.is_available())
        stream = found.Stream(device="sim")
        with found.stream(stream):
            print(found.current_stream() == stream, found.get_raw_stream(0) == stream.native_handle)
        found._set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)
        print(found.current_stream() == stream)
        found.set_stream(torch.sim.default_stream())
        event = found.Event(device="sim")
        event.record()
        found.synchronize("sim:0")
        print(event.query(), found.is_bf16_supported(), found.is_dtype_supported(torch.float32))
        of_first, of_second = (found.get_device_properties(f"sim:{index}") for index in (0, 1))
        found.Worker.set_device(1)
        print(found.Worker.current_device(), found.Worker.get_device_properties() == of_second)
        print(found.get_compute_capability() == of_first.architecture, found.is_triton_capable())
        kept = torch.ones(1000, device="sim")
        print(found.memory_allocated() >= 4000)
        try:
            found.raise_if_triton_unavailable()
        except RuntimeError as error:
            print(error)
        """,
        tmp_path,
    )
    assert lines == [
        "[]",
        "[]",
        "True",
        "0 1 -1",
        "1 0 2 True",
        "True True",
        "True",
        "True True True",
        "1 True",
        "True False",
        "True",
        "This device is not capable of supporting Triton",
    ]


def test_a_librarys_operator_is_called_with_its_arguments_in_order(tmp_path: Path) -> None:
    lines = run(
        """
        x, weight = torch.randn(4, 8, device="sim"), torch.randn(8, device="sim")

        def program(x):
            return torch.ops.optimized.rms_norm(x * 2, [8], weight, 1e-5).relu()

        torch.testing.assert_close(torch.compile(program, fullgraph=True)(x), program(x))
        print("done")
        """,
        tmp_path,
    )
    assert lines == ["done"]


def test_code_of_another_build_of_the_backend_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    lines = run(
        """
        import pathlib, sys
        from dataclasses import replace
        from torch._dynamo.utils import counters
        from torch._inductor.codegen import common
        from opsmith.runtime.compile import inductor
        from opsmith.runtime.loaded import loaded_backend

        def compile_again():
            counters.clear()
            torch._dynamo.reset()
            compiled = torch.compile(lambda x: x * 2)(torch.ones(2, device="sim"))
            found = counters["inductor"]
            print(compiled.tolist(), found["fxgraph_cache_hit"], found["fxgraph_cache_miss"])

        torch._inductor.config.fx_graph_remote_cache = False
        torch._functorch.config.enable_autograd_cache = False
        compile_again()
        compile_again()
        loaded = loaded_backend()
        other = pathlib.Path(PATH)
        other.write_bytes(loaded.built.library.read_bytes() + b"another build")
        rebuilt = replace(loaded, built=replace(loaded.built, library=other))
        inductor.loaded_backend = lambda: rebuilt
        common.custom_backend_passes["sim"] = inductor._CalledOperators("sim")
        compile_again()
        """.replace("PATH", repr(str(tmp_path / "other.so"))),
        tmp_path,
    )
    assert lines == ["[2.0, 2.0] 0 1", "[2.0, 2.0] 1 0", "[2.0, 2.0] 0 1"]


def test_sums_are_scattered_as_on_the_cpu(tmp_path: Path) -> None:
    lines = run(
        """
        from opsmith.runtime.compile.compiled_graphs import compiled_graphs
        torch.set_num_threads(2)  # one adds without atomics
        def add(x, y):
            return x.scatter_add(0, torch.zeros(64, dtype=torch.long, device=x.device), y + 1) * 2
        print(torch.compile(add)(torch.ones(64, device="sim"), torch.ones(64, device="sim"))[:2].tolist())
        print(repr(compiled_graphs[0].reason), compiled_graphs[0].kernels > 0)
        """,
        tmp_path,
    )
    assert lines == ["[258.0, 2.0]", "'' True"]


def test_an_error_without_words_is_told_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "failing_pass.py").write_text("def fail(graph):\n    assert graph is None\n")
    lines = run(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from failing_pass import fail
        from opsmith.runtime.compile.compiled_graphs import compiled_graphs
        torch._inductor.config.post_grad_custom_post_pass = fail
        print(torch.compile(lambda x: x * 2)(torch.ones(2, device="sim")).tolist())
        print(compiled_graphs[0].reason)
        """,
        tmp_path,
    )
    place = f"fail, {tmp_path / 'failing_pass.py'}:2: assert graph is None"
    assert lines == ["[2.0, 2.0]", f"InductorError: AssertionError: {place}"]


_VENDOR = """
from torch._inductor.codegen.common import DeviceOpOverrides
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen

class Scheduling(TritonScheduling):
    def __init__(self, scheduler):
        if scheduler is not None:
            raise RuntimeError("the vendor's scheduling has no compiler here")

class Wrapper(PythonWrapperCodegen):
    @staticmethod
    def create(*given):
        return "the vendor's wrapper"

class DeviceOps(DeviceOpOverrides):
    def synchronize(self):
        return "vendor.synchronize()"
"""


def test_the_names_of_tritons_classes_are_registered(tmp_path: Path) -> None:
    (tmp_path / "vendor_triton.py").write_text(_VENDOR)
    lines = run(
        """
        from dataclasses import replace
        from opsmith.description import Inductor, Triton
        from opsmith.runtime.loaded import loaded_backend
        # The plan of a description with these names, without a build of its own.
        classes = {name: f"vendor_triton:{called}" for name, called in
            {"scheduling": "Scheduling", "wrapper": "Wrapper", "device_ops": "DeviceOps"}.items()}
        backend = loaded_backend()
        served = replace(backend.plan.compiling, inductor=Inductor.TRITON, triton=Triton("simc", **classes))
        plan = replace(backend.plan, compiling=served)
        object.__setattr__(backend, "__class__", type("Described", (type(backend),), {"plan": plan}))
        import sys
        from types import ModuleType
        from torch._dynamo.device_interface import get_interface_for_device
        from torch._inductor.codegen import common
        from opsmith.runtime.compile.compiled_graphs import compiled_graphs
        print(torch.compile(lambda x: x * 2)(torch.ones(2, device="sim")).tolist())
        print(compiled_graphs[0].reason)
        print(type(common.get_wrapper_codegen_for_device("sim").create(False, None, None)).__name__)
        print(common.get_device_op_overrides("sim").synchronize())
        interface = get_interface_for_device("sim")
        backends = ModuleType("triton.backends")
        backends.backends = {"nvidia": None}
        sys.modules.update({"triton": ModuleType("triton"), "triton.backends": backends})
        try:
            interface.raise_if_triton_unavailable()
        except RuntimeError as error:
            print(error)
        backends.backends["simc"] = None
        interface.raise_if_triton_unavailable()
        print(interface.is_triton_capable())
        try:
            common.get_wrapper_codegen_for_device("sim", cpp_wrapper=True).create(False, None, None)
        except NotImplementedError as error:
            print(str(error).splitlines()[0])
        """,
        tmp_path,
        PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    )
    lost = needs.taken_away("TRITON_GRAPHS")
    assert lines == [
        "[2.0, 2.0]",
        f"TorchNameMissing: {lost}"
        if lost
        else "InductorError: RuntimeError: the vendor's scheduling has no compiler here",
        "str",
        "vendor.synchronize()",
        "triton has no backend `simc`, which sim asks for: it has nvidia",
        "True",
        "graphs in C++ (`cpp_wrapper`, AOTInductor) are not written for the device",
    ]


@needs.feature("DEVICE_CONTEXTS")
def test_devices_streams_and_events_stay_in_graphs(tmp_path: Path) -> None:
    lines = run(
        """
        side = torch.sim.Stream()

        def program(x):
            with torch.sim.device(1):
                there = torch.ones(3, device="sim")
            y, done = x + 1, torch.sim.Event()
            side.wait_stream(torch.sim.current_stream())
            with torch.sim.stream(side), torch.sim.device_of(there):
                z = y * 2
            done.record(side)
            done.wait()
            with torch.sim.stream(None):
                torch.sim.synchronize()
            return (z + there.to(z.device)).relu(), there

        for backend in ("eager", "inductor"):
            compiled = torch.compile(program, fullgraph=True, backend=backend)
            found, there = compiled(torch.ones(3, device="sim"))
            print(found.tolist(), there.device, torch.sim.current_device())
            print(torch.sim.current_stream() == torch.sim.default_stream())
        """,
        tmp_path,
    )
    assert lines == ["[5.0, 5.0, 5.0] sim:1 0", "True"] * 2


_PACKAGED = """
import torch
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.norm, self.outside = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(16, 4)
        self.register_buffer("table", torch.randn(16))
    def forward(self, x):
        x = self.norm(self.inside(x)).relu().flatten(1) + self.table.to(x)
        last = self.outside(x).softmax(-1)
        return last, torch.sort(last, stable=True)[1], torch.zeros(2, device=x.device)
torch.manual_seed(0)
network = Network().eval()
there = copy.deepcopy(network).to(DEVICE)
x = torch.randn(5, 3, 4, 4)
def compare(call, place):
    for ours, theirs in zip(call(x.to(place)), network(x), strict=True):
        assert ours.device == torch.device(place), ours.device
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)
"""


@needs.feature("AOT_INDUCTOR")
def test_a_package_of_aotinductor_runs_on_the_device(tmp_path: Path) -> None:
    lines = run(
        _PACKAGED.replace("DEVICE", '"sim"')
        + dedent("""
        rows = torch.export.Dim("rows", max=16)
        example = (torch.randn(2, 3, 4, 4, device="sim"),)
        exported = torch.export.export(there, example, dynamic_shapes=({0: rows},))
        path = torch._inductor.aoti_compile_and_package(exported, package_path=PATH)
        with torch.no_grad():
            model = torch._inductor.aoti_load_package(path)
            compare(model, "sim:0")
            compare(torch._inductor.aoti_load_package(path, device_index=1), "sim:1")
            network.outside.weight.mul_(2)
            new = network.outside.weight.detach().to("sim")
            model.load_constants({"outside.weight": new}, check_full_update=False)
            new.zero_()
            compare(model, "sim:0")
        torch.sim.synchronize()
        print(torch.sim.current_device(), sorted(model.get_constant_fqns())[-1])
        """).replace("PATH", repr(str(tmp_path / "network.pt2"))),
        tmp_path,
    )
    assert lines[-1] == "0 table"


@needs.feature("AOT_INDUCTOR")
def test_a_package_needs_loops_that_the_device_can_run(tmp_path: Path) -> None:
    lines = run(
        """
        class Scaled(nn.Module):
            def forward(self, x):
                return x * 2
        exported = torch.export.export(Scaled(), (torch.ones(3, device="sim"),))
        try:
            torch._inductor.aoti_compile_and_package(exported)
        except Exception as error:
            print(error)
        """,
        tmp_path,
        OPSMITH_HOST_WINDOW="off",
    )
    wanted = "AOTInductor's packages have loops, and no library of the backend has a fused kernel"
    assert any(wanted in line for line in lines), lines


@pytest.mark.nightly
@needs.feature("AOT_INDUCTOR")
def test_graphs_in_cpp_train(tmp_path: Path) -> None:
    lines = run(
        _PACKAGED.replace("DEVICE", '"sim"')
        + dedent("""
        from opsmith.runtime.compile.compiled_graphs import compiled_graphs
        network.train(), there.train()
        with torch._inductor.config.patch(cpp_wrapper=True):
            compiled = torch.compile(there, fullgraph=True)
            for _ in range(2):
                compare(compiled, "sim:0")
            for module in (network, there):
                module.zero_grad()
            compiled(x.to("sim"))[0].square().sum().backward()
            network(x)[0].square().sum().backward()
        for ours, theirs in zip(there.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-4)
        print({bool(graph.kernels) for graph in compiled_graphs}, {graph.reason for graph in compiled_graphs})
        """),
        tmp_path,
    )
    assert lines == ["{True} {''}"]


@pytest.mark.nightly
def test_convolutions_keep_the_memory_formats_of_the_program(tmp_path: Path) -> None:
    """On the CPU Inductor brings both to channels-last."""
    lines = run(
        """
        from torch._inductor.utils import run_and_get_code
        network = nn.Sequential(nn.Conv2d(8, 80, 3), nn.ReLU(), nn.Conv2d(80, 8, 3))
        x = torch.randn(2, 8, 9, 9)
        for device in ("cpu", "sim"):
            there = copy.deepcopy(network).to(device)
            found, code = run_and_get_code(torch.compile(there), x.to(device))
            torch.testing.assert_close(found.cpu(), network(x))
            print("(3920, 1, 560, 80)" in code[0], "(3920, 49, 7, 1)" in code[0])
        """,
        tmp_path,
    )
    assert lines == ["True False", "False True"]


@pytest.mark.nightly
def test_gradients_of_pools_are_called_where_loops_would_look_up_each_element(
    tmp_path: Path,
) -> None:
    lines = run(
        """
        from opsmith.runtime.compile.compiled_graphs import compiled_graphs
        pool = torch.compile(lambda x: nn.functional.max_pool2d(x.relu(), 2))
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(2, 3, 6, 6).contiguous(memory_format=layout)
            ours, theirs = x.to("sim").requires_grad_(), x.clone().requires_grad_()
            pool(ours).square().sum().backward()
            nn.functional.max_pool2d(theirs.relu(), 2).square().sum().backward()
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
            print([name for graph in compiled_graphs for name in graph.called])
            compiled_graphs.clear()
        """,
        tmp_path,
    )
    assert lines == ["['aten.max_pool2d_with_indices_backward.default']", "[]"]


@pytest.mark.nightly
def test_convolutions_random_numbers_and_attention(tmp_path: Path) -> None:
    run(
        """
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(8 * 64, 4))
        there = copy.deepcopy(network).to("sim")
        compiled = torch.compile(there)
        x = torch.randn(2, 3, 16, 16)
        expected, found = network(x), compiled(x.to("sim"))
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
        expected.sum().backward()
        found.sum().backward()
        for ours, theirs in zip(there.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-4)
        dropped = torch.compile(lambda x: nn.functional.dropout(x, 0.5))(torch.ones(10_000, device="sim"))
        assert set(dropped.unique().tolist()) == {0.0, 2.0} and 0.9 < dropped.mean() < 1.1
        attend = nn.functional.scaled_dot_product_attention
        q = torch.randn(2, 4, 16, 8)
        found = torch.compile(lambda q: attend(q, q, q, is_causal=True))(q.to("sim"))
        torch.testing.assert_close(found.cpu(), attend(q, q, q, is_causal=True))
        """,
        tmp_path,
    )


def test_a_backward_pass_draws_again_what_it_recomputes(tmp_path: Path) -> None:
    run(
        """
        from torch.utils.checkpoint import checkpoint

        def noisy(x):
            return (x * torch.normal(0.0, 1.0, x.shape, device=x.device)).sin()

        def recomputed(x):
            return checkpoint(noisy, x, use_reentrant=False).sum()

        for backend in ("aot_eager", "inductor"):
            torch.manual_seed(1)
            x = torch.ones(8, 16, device="sim:1", requires_grad=True)
            torch.compile(recomputed, backend=backend, dynamic=backend == "inductor")(x).backward()
            noise = torch.normal(0.0, 1.0, x.shape, generator=torch.Generator("sim:1").manual_seed(1),
                                 device="sim:1")
            torch.testing.assert_close(x.grad, noise * noise.cos())

        from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
        from torch.fx.experimental.proxy_tensor import make_fx

        def twice(n):
            state, drawn = run_and_save_rng_state(torch.ops.aten.rand.default, [n], device="sim:1")
            return drawn, run_with_rng_state(state, torch.ops.aten.rand.default, [n], device="sim:1")

        first, second = make_fx(lambda x: twice(len(x)), tracing_mode="fake")(torch.ones(5))(torch.ones(5))
        assert torch.equal(first, second) and not torch.equal(first, twice(5)[0])
        """,
        tmp_path,
    )


def test_without_a_host_window_the_kernels_are_called(tmp_path: Path) -> None:
    lines = run(
        """
        from opsmith.runtime.compile.compiled_graphs import compiled_graphs
        network = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
        there = copy.deepcopy(network).to("sim")
        x = torch.randn(8, 16)
        expected, found = network(x), torch.compile(there)(x.to("sim"))
        torch.testing.assert_close(found.cpu(), expected)
        expected.sum().backward()
        found.sum().backward()
        for ours, theirs in zip(there.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
        print(metrics.generated_kernel_count, *{graph.reason for graph in compiled_graphs})
        forward = compiled_graphs[0]
        print(*(name for name in forward.called if "layer_norm" in name))
        """,
        tmp_path,
        OPSMITH_HOST_WINDOW="off",
    )
    assert lines == [
        "0 no library of the backend has a fused kernel",
        "aten.native_layer_norm.default",
    ]


@needs.feature("GRAPHS")
def test_reduce_overhead_replays_what_calls_kernels(tmp_path: Path) -> None:
    lines = run(
        """
        import logging, sys
        logging.getLogger("opsmith").setLevel(logging.INFO)
        logging.getLogger("opsmith").addHandler(logging.StreamHandler(sys.stdout))
        runs = []
        replay = torch.sim.SimGraph.replay
        torch.sim.SimGraph.replay = lambda graph: (runs.append(graph), replay(graph))[1]

        def runs_of(call):
            runs.clear()
            return call(), len(runs)

        network = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
        there = copy.deepcopy(network).to("sim")
        compiled = torch.compile(there, mode="reduce-overhead")
        pairs = []

        def train():
            for step in range(6):
                x = torch.randn(3 + step // 4, 8)
                for call, given in ((network, x), (compiled, x.to("sim"))):
                    given.requires_grad_()
                    result = call(given)
                    result.square().sum().backward()
                    pairs.append((result.detach().cpu(), given.grad.cpu()))
            for model in (network, there):
                torch.optim.SGD(model.parameters(), 0.01).step()

        _, count = runs_of(train)  # of shapes that were seen twice before the forward pass, and the backward
        for theirs, ours in zip(pairs[::2], pairs[1::2], strict=True):
            torch.testing.assert_close(ours, theirs)
        _, again = runs_of(train)  # parameters have changed where they are
        for theirs, ours in zip(pairs[::2], pairs[1::2], strict=True):
            torch.testing.assert_close(ours, theirs)
        print(count > 5, again > count)

        def calls(function, given):
            compiled = torch.compile(function, mode="reduce-overhead")
            return runs_of(lambda: [compiled(given) for _ in range(4)])

        ones = torch.ones(1000, device="sim")
        found, count = calls(lambda x: nn.functional.dropout(x, 0.5), ones)
        print(count, {bool((a == b).all()) for a in found for b in found if a is not b})
        found, count = calls(lambda x: x.add_(1), ones)  # the caller's tensor changes in each call
        print(count, ones[0].item(), found[0] is ones)
        found, count = calls(torch.linalg.svdvals, ones.reshape(10, 100))  # falls back
        print(count, round(found[3][0].item()))
        """,
        tmp_path,
        OPSMITH_HOST_WINDOW="off",
    )
    reason = lines.pop(3)
    assert reason.startswith(
        "a graph is not replayed, and its operators are called: aten::_linalg_svd"
    )
    assert lines == ["True True", "3 {False}", "0 5.0 True", "0 158"]


def test_reduce_overhead_calls_kernels_where_no_graphs_are_recorded(tmp_path: Path) -> None:
    """As on a torch without ``torch.accelerator.Graph``."""
    lines = run(
        """
        import logging, sys
        vars(torch.accelerator).pop("Graph", None)
        logging.getLogger("opsmith").setLevel(logging.INFO)
        logging.getLogger("opsmith").addHandler(logging.StreamHandler(sys.stdout))
        compiled = torch.compile(lambda x: x * 2 + 1, mode="reduce-overhead")
        for _ in range(3):
            print(compiled(torch.ones(2, device="sim")).tolist())
        """,
        tmp_path,
        OPSMITH_HOST_WINDOW="off",
    )
    assert lines == [
        "a graph is not replayed, and its operators are called: "
        f"torch {torch_version()} has no torch.accelerator.Graph: {Feature.GRAPHS.value}",
        *["[3.0, 3.0]"] * 3,
    ]
