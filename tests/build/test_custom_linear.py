"""`examples/custom_linear/`: kernels that C++ registers, by `opsmith build` and CMake; what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fork_server
from command import run_opsmith

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_linear"

# Operators are found by the symbols of what is built.
pytestmark = pytest.mark.needs("binutils")

WHOLE_WAY = """\
eager: as torch.nn.functional.linear
exported with myop.custom_linear.default
ExecuTorch: the same
"""


def ran(folder: Path) -> str:
    libraries = [folder / f"libcustom_linear_{runtime}.so" for runtime in ("torch", "executorch")]
    run = fork_server.run(
        [sys.executable, EXAMPLE / "run.py", *libraries],
        imports=fork_server.EXECUTORCH,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


def test_opsmith_build_goes_the_whole_way(tmp_path: Path) -> None:
    source = EXAMPLE / "custom_linear.cpp"
    run = run_opsmith("build", str(source), "-o", str(tmp_path / "built"), "--json")
    assert run.returncode == 0, run.stderr
    built = json.loads(run.stdout.splitlines()[-1])
    line = (
        source.read_text()
        .splitlines()
        .index('EXECUTORCH_LIBRARY(myop, "custom_linear.out", custom_linear::custom_linear_out);')
    )
    assert built["operators"] == [
        {
            "out": "myop::custom_linear.out(Tensor arg0, Tensor arg1, Tensor? arg2, *, Tensor(a!) out) -> "
            "Tensor(a!)",
            "functional": "myop::custom_linear(Tensor arg0, Tensor arg1, Tensor? arg2) -> Tensor",
            "kernel": "custom_linear::custom_linear_out",
            "location": f"{source}:{line + 1}:1",
        }
    ]
    assert ran(tmp_path / "built") == WHOLE_WAY


@pytest.mark.needs("cmake")
def test_cmake_goes_the_whole_way(tmp_path: Path) -> None:
    for command in (
        ["cmake", "-S", EXAMPLE, "-B", tmp_path, f"-DPython3_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", tmp_path, "-j2"],
    ):
        run = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert ran(tmp_path) == WHOLE_WAY


USED = """
import sys, torch
torch.ops.load_library(sys.argv[1])
op = torch.ops.myop.custom_linear
w, x, b = torch.randn(4, 3), torch.randn(2, 5, 3), torch.randn(4)
linear = torch.nn.functional.linear
same = torch.testing.assert_close
same(op(w, x, b), linear(x, w, b))
same(op(w, x, None), linear(x, w))
# Transposed operands are copied, and out takes any shape.
same(op(torch.randn(3, 4).t(), x, b).shape, (2, 5, 4))
same(op(w, x.transpose(0, 1), b), linear(x.transpose(0, 1), w, b))
out = torch.empty(7)
op.out(w, x, b, out=out)
same(out, linear(x, w, b))
assert op(w, x[:0], b).shape == (0, 5, 4)
assert op(w.to("meta"), x.to("meta"), b.to("meta")).shape == (2, 5, 4)
for arguments in ((w.double(), x, b), (w, x[..., :2], b)):
    try:
        op(*arguments)
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


def test_the_operator_behaves_as_pytorchs_do(tmp_path: Path) -> None:
    run_opsmith("build", str(EXAMPLE / "custom_linear.cpp"), "-o", str(tmp_path))
    run = fork_server.run(
        [sys.executable, "-c", USED, tmp_path / "libcustom_linear_torch.so"], timeout=600
    )
    kernel = "`custom_linear::custom_linear_out`"
    refused = f"myop::custom_linear: its kernel {kernel} refuses the call: Check failed"
    assert (run.stdout.splitlines(), run.returncode) == (
        [
            f"NotImplementedError {refused} (weight.scalar_type() == ScalarType::Float && "
            "input.scalar_type() == ScalarType::Float): weight and input are Float",
            f"RuntimeError {refused} (weight.dim() == 2 && input.dim() >= 1 && input.size(input.dim() - 1) "
            "== weight.size(1)): weight is [out, in] and input [..., in]",
        ],
        0,
    ), run.stderr[-2000:]


HEAD = """\
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
#include <executorch/runtime/kernel/kernel_includes.h>
using executorch::aten::Tensor;
using executorch::runtime::KernelRuntimeContext;
"""
SCALE = "Tensor& scale_out(KernelRuntimeContext&, const Tensor& self, {more}Tensor& out) {{ return out; }}\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(
            "",
            "{source}: no kernel is registered here\n"
            '  remedy: end the file with EXECUTORCH_LIBRARY(myop, "scale.out", scale_out);, or describe the '
            "kernels in a manifest",
            id="nothing registered",
        ),
        pytest.param(
            SCALE.format(more="float factor, ")
            + 'EXECUTORCH_LIBRARY(myop, "scale.out", scale_out);\n',
            "",
            id="a type that no schema has",
        ),
        pytest.param(
            SCALE.format(more="") + 'EXECUTORCH_LIBRARY(myop, "scale", scale_out);\n',
            "{source}:6:1: `myop::scale` is no out variant's name\n"
            "  remedy: write it like myop::scale.out, or myop::scale.Scalar_out for another overload",
            id="no out variant's name",
        ),
        pytest.param(
            SCALE.format(more="")
            + 'EXECUTORCH_LIBRARY(myop, "scale.out", scale_out);\n'
            + 'EXECUTORCH_LIBRARY(myop, "scale.out", scale_out);\n',
            "{source}:6:1: `myop::scale.out` is registered twice\n"
            "  remedy: remove one, or give it another overload: `scale.Scalar_out`",
            id="registered twice",
        ),
        pytest.param(
            "namespace {\n"
            + SCALE.format(more="")
            + '}\nEXECUTORCH_LIBRARY(myop, "scale.out", scale_out);\n',
            "{source}:8:1: `myop::scale.out`: `(anonymous namespace)::scale_out` is not visible outside its "
            "file\n"
            "  remedy: move it out of the anonymous namespace",
            id="in an anonymous namespace",
        ),
    ],
)
def test_what_cannot_be_an_operator_is_refused(text: str, error: str, tmp_path: Path) -> None:
    source = tmp_path / "scale.cpp"
    source.write_text(HEAD + text)
    run = run_opsmith("build", str(source))
    assert run.returncode == 1
    assert error.format(source=source) in run.stderr


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    run = run_opsmith("build", str(tmp_path / "none.cpp"))
    assert f"{tmp_path}/none.cpp: no such file" in run.stderr


def test_a_function_that_is_declared_only_is_named(tmp_path: Path) -> None:
    source = tmp_path / "scale.cpp"
    source.write_text(
        f"{HEAD}Tensor& scale_out(KernelRuntimeContext&, const Tensor& self, Tensor& out);\n"
        'EXECUTORCH_LIBRARY(myop, "scale.out", scale_out);\n'
    )
    run = run_opsmith("build", str(source))
    assert run.returncode == 1
    assert "the sources do not define `scale_out(" in run.stderr
