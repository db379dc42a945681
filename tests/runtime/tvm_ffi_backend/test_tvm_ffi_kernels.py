"""Functions of tvm-ffi's that a manifest names: values, variants, memory, streams, refusals, counts."""

# mypy: disable-error-code=attr-defined
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import needs
import opsmith
from opsmith.description import TvmFunction
from opsmith.errors import KernelRejected
from opsmith.plan import Entry, Place
from opsmith.runtime.module.streams import native_handle
from opsmith.runtime.python.described_functions import function_of_kernel

needs.require("tvm-ffi")
import tvm_ffi  # noqa: E402
from tvm_ffi.libinfo import find_libtvm_ffi, include_paths  # noqa: E402

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"))


HERE = Path(__file__).parent


def compile_kernels() -> None:
    """Makes ``kernels.so``, which the description names, of ``kernels.cpp``."""
    source, library = HERE / "kernels.cpp", HERE / "kernels.so"
    if library.exists() and library.stat().st_mtime > source.stat().st_mtime:
        return
    unfinished = HERE / f"{os.getpid()}.so"
    includes = [f"-I{each}" for each in include_paths()]
    options = ["-std=c++17", "-shared", "-fPIC", *includes, source, find_libtvm_ffi()]
    subprocess.run(["c++", *options, "-o", unfinished], check=True)
    unfinished.replace(library)


compile_kernels()
SIM = opsmith.load(str(HERE / "backend.yaml"))
ON_COPIES = SIM.plan.host is Place.COPIES


def functions() -> ModuleType:
    """``functions.py`` as opsmith has imported it."""
    (module,) = (
        each for name, each in sys.modules.items() if name.startswith("opsmith_file_functions")
    )
    return module


def moved(value: Any) -> Any:
    if isinstance(value, list):
        return [moved(each) for each in value]
    return value.to("sim") if isinstance(value, Tensor) and value.dim() else value


def agree(function: Callable[..., Tensor], *args: Any, **options: Any) -> None:
    """The device's result has the CPU's values; the host counts as such where it works on copies."""
    there = [moved(each) for each in args]
    with opsmith.count_fallbacks(callers=False) as block:
        found = function(*there, **options)
    torch.testing.assert_close(found.cpu(), function(*args, **options))
    assert block.fallbacks.kernel_calls == int(ON_COPIES), block.fallbacks


def test_the_plan_says_where_they_run() -> None:
    entry = SIM.plan.entry("add.Tensor")
    assert (entry.library, entry.place) == ("vectors", SIM.plan.host)
    assert ("on copies in host memory: there is no host window" in entry.why) is ON_COPIES
    assert entry.next is not None
    assert entry.next.library == "optimized"
    assert SIM.plan.entry("exp2").place is Place.DEVICE


def test_pointwise_functions_get_operands_of_one_shape() -> None:
    x = torch.randn(3, 4)
    agree(torch.add, x, torch.randn(3, 4))
    agree(torch.add, x, torch.randn(4))
    agree(torch.add, x, 2.5)
    agree(torch.add, x, torch.tensor(2.5))
    agree(torch.add, x, torch.arange(4))
    agree(torch.add, x.t(), torch.randn(4, 3))
    agree(torch.add, torch.empty(0, 3), 1.0)


def test_variants_are_derived() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for function in (
        lambda x, y: x.clone().add_(y),
        lambda x, y: torch.add(x, y, out=torch.empty(0, device=x.device)),
        lambda x, y: torch.add(x, y, out=torch.empty(4, 3, device=x.device).t()),
        lambda x, y: torch.add(x, y, out=torch.empty(3, 4, device=x.device, dtype=torch.double)),
    ):
        torch.testing.assert_close(function(x.to("sim"), y.to("sim")).cpu(), function(x, y))
    device = x.to("sim").requires_grad_()
    (device + 1).square().sum().backward()
    torch.testing.assert_close(device.grad.cpu(), 2 * (x + 1))


def test_numbers_truths_and_lists() -> None:
    agree(torch.softmax, torch.randn(3, 5), -1)
    agree(torch.clamp, torch.randn(9), min=-0.5)
    agree(torch.clamp, torch.randn(9), max=1)
    agree(torch.cat, [torch.randn(2, 3), torch.randn(3, 1).t().expand(4, 3)])
    agree(torch.flip, torch.randn(7), [0])


def test_out_of_another_shape_is_resized_for_them() -> None:
    x = torch.randn(5)
    out = torch.empty(0, device="sim")
    assert torch.ops.aten.flip.out(x.to("sim"), [0], out=out) is out
    torch.testing.assert_close(out.cpu(), x.flip(0))
    alias = x.to("sim")  # whose kernel would read what it has written
    torch.ops.aten.flip.out(alias, [0], out=alias)
    torch.testing.assert_close(alias.cpu(), x.flip(0))


def test_the_host_sees_the_memory_itself_through_the_window() -> None:
    x = torch.arange(4, device="sim")
    with opsmith.count_fallbacks(callers=False) as block:
        found = int(torch.bitwise_not(x)[0])
    moved_bytes = sum(each.bytes_moved for each in block.fallbacks.counts)
    if ON_COPIES:
        assert moved_bytes == 2 * x.nbytes
    else:
        assert (found, moved_bytes) == (torch.sim.host_array(x).ctypes.data, 0)


def test_the_work_of_the_stream_is_done_before() -> None:
    with torch.Stream("sim"):
        x = torch.zeros(1 << 20, device="sim")
        for _ in range(10):
            x.add_(1.0)
            x.mul_(2.0)
        assert x[0].item() == 2**11 - 2


def test_calls_with_arguments_that_it_is_not_given_go_on() -> None:
    x = torch.randn(4)
    with opsmith.count_fallbacks(callers=False) as block:
        found = torch.add(x.to("sim"), x.to("sim"), alpha=3)
    torch.testing.assert_close(found.cpu(), x + 3 * x)
    assert block.fallbacks.kernel_calls == int(ON_COPIES)
    torch.testing.assert_close(torch.add(x.double().to("sim"), 1).cpu(), x.double() + 1)


def test_what_fails_goes_on_or_is_told() -> None:
    x = torch.randn(4)
    torch.testing.assert_close(torch.tan(x.to("sim")).cpu(), torch.tan(x))
    torch.testing.assert_close(
        torch.softmax(x.view(2, 2).to("sim"), 0).cpu(), x.view(2, 2).softmax(0)
    )
    with pytest.raises(opsmith.Unsupported) as error:
        torch.erfinv(x.to("sim"))
    assert str(error.value) == (
        f"{HERE / 'host.yaml'}:14:6: `kernels.so:unwilling` failed in this call of `erfinv.out`: "
        "RuntimeError: the unit is busy\n"
        "  remedy: limit the entry to the dtypes that it takes (`dtypes`), or let other kernels serve such "
        "calls (`on_error: fallback`)"
    )


def test_functions_that_are_missing_are_located() -> None:
    for call, message in {
        torch.sinh: f"{HERE / 'host.yaml'}:15:6: `{HERE / 'kernels.so'}` has no `missing`, the kernel of "
        "`sinh.out`\n  remedy: export it, TVM_FFI_DLL_EXPORT_TYPED_FUNC(missing, …), or name another",
        torch.cosh: f"{HERE / 'device.yaml'}:8:6: `{HERE / 'functions.py'}` has no `missing`, the kernel of "
        "`cosh.out`\n  remedy: define it there, or name another",
        torch.i0: f"{HERE / 'registry.yaml'}:6:6: tvm-ffi's registry has no `opsmith.tests.i0`, the kernel "
        "of `i0.out`\n  remedy: import what registers it before, or name that with `module`",
    }.items():
        with pytest.raises(KernelRejected) as error:
            call(torch.ones(2, device="sim"))
        assert str(error.value) == message


def call_anew(entry: Entry) -> None:
    """A call of the kernel of ``sinh.out`` as ``entry`` has it, looked up as at the first call."""
    schema = "sinh.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"
    function_of_kernel(entry, schema)(torch.ones(2), out=torch.empty(2))


def test_tvm_ffi_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm_ffi", None)
    with pytest.raises(KernelRejected) as error:
        call_anew(SIM.plan.entry("sinh.out"))
    assert str(error.value).startswith(
        f"{HERE / 'host.yaml'}:15:6: `kernels.so:missing`, the kernel of `sinh.out`, needs tvm-ffi, which "
        "cannot be imported: "
    )
    assert str(error.value).endswith("\n  remedy: pip install apache-tvm-ffi")


def test_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    library = tmp_path / "kernels.so"
    library.write_bytes(b"no library")
    entry = SIM.plan.entry("sinh.out")
    assert entry.call is not None
    function = TvmFunction(str(library), "sinh")
    kernel = replace(entry.call.kernel, function=function)
    with pytest.raises(KernelRejected, match=r"the kernel of `sinh.out`, cannot be loaded: "):
        call_anew(replace(entry, call=replace(entry.call, kernel=kernel)))


def test_functions_of_the_registry() -> None:
    def digamma(x: Any, out: Any) -> None:
        torch.from_dlpack(out).copy_(torch.from_dlpack(x).digamma())

    tvm_ffi.register_global_func("opsmith.tests.digamma", digamma)
    agree(torch.digamma, torch.rand(5))


def test_tensors_of_the_device_and_its_stream() -> None:
    x = torch.rand(3, 4)
    with torch.Stream("sim") as stream:
        there = x.to("sim")
        torch.testing.assert_close(torch.exp2(there).cpu(), torch.exp2(x))
        torch.testing.assert_close(torch.log2(there.t()).cpu(), torch.log2(x.t()))
        torch.testing.assert_close(
            torch.atan2(there, torch.ones(())).cpu(), torch.atan2(x, torch.ones(()))
        )
        seen = functions().SEEN
        assert {each[:2] for each in seen} == {("ext_dev:0", native_handle(stream))}
        assert {each[2] for each in seen} == {(4, 1), (3, 1)}  # of what was made contiguous, too
        seen.clear()
        torch.sinc(there.t())
        assert seen == [("cuda:0", native_handle(stream), (1, 4))] * 2


def test_copies_are_counted_and_denied() -> None:
    x = torch.randn(4, device="sim")
    with opsmith.fallback("deny"):
        if not ON_COPIES:
            x + x
            return
        with pytest.raises(NotImplementedError, match="its kernel runs on the host, on copies"):
            x + x


@needs.feature("GRAPHS")
def test_a_graph_does_not_record_them() -> None:
    x = torch.randn(4, device="sim")
    recorded = torch.sim.graph(torch.sim.SimGraph())
    with pytest.raises(NotImplementedError, match="its kernel runs on the host at once"), recorded:
        x + x
