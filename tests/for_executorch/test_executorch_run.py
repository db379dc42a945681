"""``opsmith executorch run``, and libraries loaded into a process: who serves, and what is refused how."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fork_server
from command import run_opsmith
from executorch_chip import PLAIN, write_chip
from executorch_programs import Largest, Mixed, Silu, Small, build, export, matrices
from opsmith.build.executorch import find_executorch
from opsmith.build.toolchain import find_compiler
from opsmith.errors import (
    FileMissing,
    InputsRejected,
    LibraryRejected,
    OperatorsUnserved,
    OpsmithError,
    ProgramFailed,
    ProgramInvalid,
)
from opsmith.executorch import library_file as library_module
from opsmith.executorch.inputs import check_inputs
from opsmith.executorch.program import read_program
from opsmith.executorch.run import run_program
from opsmith.executorch.tasks import Expected, Stop
from refusal import refusal

pytestmark = pytest.mark.usefixtures("runtime_in_forks")


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chip(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def whole(chip: Path) -> Path:
    """The library with every kernel of chip."""
    return build(chip, chip.parent / "whole").library


@pytest.fixture(scope="module")
def mixed(chip: Path) -> Path:
    return export(Mixed(), matrices(), chip.parent / "mixed.pte", chip).program


@pytest.fixture(scope="module")
def small(chip: Path) -> Path:
    return export(Small(), matrices(), chip.parent / "small.pte", chip).program


@pytest.fixture(scope="module")
def selected(chip: Path, mixed: Path) -> Path:
    """The library for ``mixed``."""
    return build(chip, chip.parent / "selected", mixed).library


SERVED = {
    "aten::add.out": "fast",
    "aten::relu.out": "plain",
    "aten::mul.out": "fast",
    "aten::sigmoid.out": "executorch",
    "dim_order_ops::_to_dim_order_copy.out": "executorch",
}


def test_a_selected_library_serves_its_program(mixed: Path, selected: Path) -> None:
    ran = run_program(mixed, [selected])
    assert ran.served_by == SERVED
    assert ran.outputs == ("float32[3, 4]", "float64[3, 4]")
    assert ran.difference is not None and ran.difference <= 1e-6
    assert ran.eager_ms is not None and ran.eager_ms > 0 < ran.ms


def test_the_whole_library_serves_any_program(mixed: Path, whole: Path) -> None:
    ran = run_program(mixed, [whole.parent])
    assert ran.served_by == SERVED
    assert ran.difference is not None and ran.difference <= 1e-6


def test_without_a_library_the_runtime_serves_all(mixed: Path) -> None:
    ran = run_program(mixed)
    assert set(ran.served_by.values()) == {"executorch"}
    assert ran.difference is not None and ran.difference <= 1e-6


def test_what_a_library_was_not_built_for_is_the_runtimes(
    chip: Path, selected: Path, tmp_path: Path
) -> None:
    x, y = torch.randn(5), torch.randn(5)
    rows = export(Small(), (x, y), tmp_path / "rows.pte", chip).program
    ran = run_program(rows, [selected])
    assert ran.served_by == {"aten::add.out": "executorch"}
    assert ran.difference == 0


class Sums(nn.Module):
    """Adds to what it is given what it has seen before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor([3.0, 0.0, 1.0]))
        self.register_buffer("unkept", torch.full((3,), 5.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x)
        self.unkept.mul_(2)
        return self.seen + self.unkept


def test_what_a_program_changes_starts_as_in_the_module(
    chip: Path, whole: Path, tmp_path: Path
) -> None:
    """ExecuTorch alone leaves such memory as it is."""
    sums = export(Sums(), (torch.ones(3),), tmp_path / "sums.pte", chip).program
    assert run_program(sums, [whole]).difference == 0


def test_several_results(chip: Path, whole: Path, tmp_path: Path) -> None:
    largest = export(Largest(), matrices(1), tmp_path / "largest.pte", chip).program
    ran = run_program(largest, [whole])
    assert ran.served_by == {"aten::max.dim_max": "plain"}
    assert (ran.outputs, ran.difference) == (("float32[3]", "int64[3]"), 0)


@pytest.fixture(scope="module")
def scaled(chip: Path) -> Path:
    """A program with an operator that only chip has."""
    library = torch.library.Library("chip", "DEF")
    library.define("scale(Tensor self, float factor) -> Tensor")
    library.define("scale.out(Tensor self, float factor, *, Tensor(a!) out) -> Tensor(a!)")
    library.impl("scale", lambda self, factor: self * factor, "CompositeExplicitAutograd")

    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = torch.ops.chip.scale(x, 2.5)
            return result

    return export(Scaled(), matrices(1), chip.parent / "scaled.pte", chip).program


def test_a_custom_operator(scaled: Path, whole: Path, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.pt"
    torch.save(matrices(1), inputs)
    ran = run_program(scaled, [whole], inputs)
    assert ran.served_by == {"chip::scale.out": "plain"}
    # Nothing tells the process that runs it of chip::scale in Python.
    assert ran.difference is None
    assert ran.not_compared.startswith("its exported graph cannot be loaded: ")
    assert refusal(OperatorsUnserved, run_program, scaled, [], inputs) == (
        f"`{scaled}` calls operators for which not even ExecuTorch 1.4.1 has a kernel:\n"
        "  chip::scale.out Float(0,1) Float(0,1) Float(0,1) (did you mean aten::clone.out?)\n"
        f"  remedy: build a library for it, and name that: opsmith executorch build backend.yaml --for "
        f"{scaled} -o DIR"
    )


def test_the_command(mixed: Path, selected: Path) -> None:
    done = run_opsmith("executorch", "run", mixed, "--library", selected, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["reading mixed.pte", "running mixed.pte"]
    lines = done.stdout.splitlines()
    report = json.loads(lines[-1])
    assert report.keys() == {"max_difference_from_eager", "served_by", "ms", "eager_ms"}
    assert report["served_by"] == SERVED
    assert lines[-4] == "outputs     float32[3, 4], float64[3, 4]"
    # A row for each instruction, and both products among them.
    assert sum("aten::mul.out" in line for line in lines[:-4]) == 2


def test_inputs_from_a_file(small: Path, whole: Path, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.pt"
    torch.save((torch.full((3, 4), 1.0), torch.full((3, 4), 2.0)), inputs)
    ran = run_program(small, [whole], inputs)
    assert (ran.difference, ran.served_by) == (0, {"aten::add.out": "fast"})


# ---- inputs


def test_no_inputs(small: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.pte"
    shutil.copy(small, alone)
    assert refusal(InputsRejected, run_program, alone) == (
        f"`{alone}`: there are no inputs to call it with: no exported graph is kept beside it\n"
        "  remedy: name a file that torch.save wrote with --input, or export the program with `opsmith "
        "executorch export`, which keeps them"
    )


def test_a_file_that_holds_no_inputs(small: Path, tmp_path: Path) -> None:
    assert refusal(FileMissing, lambda: run_program(small, [], tmp_path / "inputs.pt")) == (
        f"there are no inputs `{tmp_path}/inputs.pt`\n"
        "  remedy: write them with torch.save: a Tensor, or a tuple of them"
    )
    (tmp_path / "inputs.pt").write_text("three")
    with pytest.raises(InputsRejected) as refused:
        run_program(small, [], tmp_path / "inputs.pt")
    assert str(refused.value).startswith(f"`{tmp_path}/inputs.pt`: torch.load cannot read it: ")


MATRIX = Expected("Float", (0, 1), (3, 4), dynamic=False)
ROWS = Expected("Float", (0, 1), (5, 4), dynamic=True)
IMAGE = Expected("Float", (0, 2, 3, 1), (1, 2, 3, 4), dynamic=False)
TURNED = Expected("Float", (1, 0), (3, 4), dynamic=False)


@pytest.mark.parametrize(
    ("inputs", "expected", "reason", "remedy"),
    [
        (
            (),
            MATRIX,
            "it takes 1 inputs, and 0 are given",
            "give one for each argument of the module that was exported, in their order",
        ),
        ((3,), MATRIX, "input 0 is 3, and it takes float32[3, 4]", "give a Tensor"),
        (
            matrices(1, torch.float64),
            MATRIX,
            "input 0 is float64[3, 4], and it takes float32[3, 4]",
            "convert it: x.to(torch.float32)",
        ),
        (
            (torch.ones(12),),
            MATRIX,
            "input 0 is float32[12], and it takes float32[3, 4]",
            "a program's Tensors keep the number of dimensions that it was exported with",
        ),
        (
            (torch.ones(2, 4),),
            MATRIX,
            "input 0 is float32[2, 4], and it takes float32[3, 4]",
            "export it with a dynamic shape: torch.export.Dim says which sizes may change",
        ),
        (
            (torch.ones(6, 4),),
            ROWS,
            "input 0 is float32[6, 4], and it takes float32[≤ 5, ≤ 4], the export's bounds",
            "export it with larger ones: torch.export.Dim(name, max=…)",
        ),
        (
            (torch.ones(4, 3).t(),),
            MATRIX,
            "input 0 is float32[3, 4], and it takes float32[3, 4] contiguous, not with the strides [1, 3]",
            "lay it out: x.contiguous()",
        ),
        (
            (torch.ones(3, 8)[:, ::2],),
            MATRIX,
            "input 0 is float32[3, 4], and it takes float32[3, 4] contiguous, not with the strides [8, 2]",
            "lay it out: x.contiguous()",
        ),
        (
            (torch.ones(1, 2, 3, 4),),
            IMAGE,
            "input 0 is float32[1, 2, 3, 4], and it takes float32[1, 2, 3, 4] channels-last, not with the "
            "strides [24, 12, 4, 1]",
            "lay it out: x.to(memory_format=torch.channels_last)",
        ),
        (
            matrices(1),
            TURNED,
            "input 0 is float32[3, 4], and it takes float32[3, 4] in the dim order [1, 0], in which the "
            "runtime takes no Tensor",
            "export it with contiguous or channels-last example inputs",
        ),
    ],
)
def test_inputs_that_the_program_was_not_exported_for(
    inputs: tuple[Any, ...], expected: Expected, reason: str, remedy: str
) -> None:
    with pytest.raises(Stop) as stopped:
        check_inputs("model.pte", inputs, [expected])
    assert (stopped.value.failure.reason, stopped.value.failure.remedy) == (reason, remedy)


def is_taken(given: torch.Tensor, expected: Expected) -> bool:
    try:
        check_inputs("model.pte", [given], [expected])
    except Stop:
        return False
    return True


def test_inputs_within_the_bounds_are_taken() -> None:
    assert is_taken(*matrices(1), MATRIX)
    assert is_taken(torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last), IMAGE)
    taken = [is_taken(torch.ones(rows, 4), ROWS) for rows in (0, 1, 4, 5, 6)]
    assert taken == [True, True, True, True, False]


def test_beyond_the_exports_bound(chip: Path, whole: Path, tmp_path: Path) -> None:
    rows = torch.export.Dim("rows", max=5)
    shapes = ({0: rows}, {0: rows})
    program = export(Small(), matrices(), tmp_path / "rows.pte", chip, shapes).program
    inputs = tmp_path / "inputs.pt"
    torch.save((torch.ones(5, 4), torch.ones(5, 4)), inputs)
    assert run_program(program, [whole], inputs).difference == 0
    torch.save((torch.ones(6, 4), torch.ones(6, 4)), inputs)
    assert refusal(InputsRejected, run_program, program, [whole], inputs) == (
        f"`{program}`: input 0 is float32[6, 4], and it takes float32[≤ 5, ≤ 4], the export's bounds\n"
        "  remedy: export it with larger ones: torch.export.Dim(name, max=…)"
    )


# ---- libraries

LOAD_ONCE = (
    "load each library once, and beside no other that has its operators, as executorch.kernels.quantized "
    "has; build it anew where it was built for something else"
)


def test_the_same_library_twice(small: Path, whole: Path, tmp_path: Path) -> None:
    assert refusal(LibraryRejected, run_program, small, [whole, whole.parent]) == (
        f"`{whole}` is named twice, and its kernels can be registered once\n"
        "  remedy: name each library once"
    )
    copy = tmp_path / "libcopy.so"
    shutil.copy(whole, copy)
    assert refusal(LibraryRejected, run_program, small, [whole, copy]) == (
        f"`{whole}` and `{copy}` both have a kernel of aten::mul.out for the key "
        "v1/6;0,1|6;0,1|6;0,1|6;0,1, and the runtime holds one\n"
        "  remedy: name one of them; or list the kernel libraries of both in one backend.yaml, in order of "
        "preference, and build that"
    )


def patched(library: Path, path: Path, old: bytes, new: bytes) -> Path:
    """A copy of ``library`` that says ``new`` in the place of ``old``, which is as long."""
    content = library.read_bytes()
    assert old in content and len(old) == len(new)
    path.write_bytes(content.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b'"executorch":"1.4.1"', b'"executorch":"1.3.0"', "ExecuTorch 1.3.0, and this is 1.4.1"),
        (
            b'"machine":"x86_64"',
            b'"machine":"mips64"',
            "a processor of the kind mips64, and this is x86_64",
        ),
    ],
)
def test_a_library_for_something_else(
    small: Path, whole: Path, tmp_path: Path, old: bytes, new: bytes, what: str
) -> None:
    other = patched(whole, tmp_path / "libother.so", old, new)
    assert refusal(LibraryRejected, run_program, small, [other]) == (
        f"`{other}` was built for {what}\n"
        "  remedy: build it anew here: opsmith executorch build backend.yaml -o DIR"
    )


def test_a_library_for_another_python(small: Path, whole: Path, tmp_path: Path) -> None:
    here = sys.implementation.cache_tag
    assert here is not None
    other = "cpython-" + "9" * (len(here) - len("cpython-"))
    library = patched(
        whole,
        tmp_path / "libother.so",
        f'"python":"{here}"'.encode(),
        f'"python":"{other}"'.encode(),
    )
    assert refusal(LibraryRejected, run_program, small, [library]) == (
        f"`{library}` was built for the Python {other}, and this is {here}\n"
        "  remedy: build it anew here: opsmith executorch build backend.yaml -o DIR"
    )


def test_a_library_for_a_processor_with_more(
    chip: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = find_compiler(tmp_path).command
    monkeypatch.setenv("CXX", f"{shlex.join(compiler)} -mavx2 -mfma")
    library = build(chip, tmp_path / "avx2", small).library
    monkeypatch.setattr(library_module, "processor_features", lambda: {"fpu", "sse2", "fma"})
    assert refusal(LibraryRejected, run_program, small, [library]) == (
        f"`{library}` needs avx, avx2, which this processor has not\n"
        "  remedy: build it anew here: opsmith executorch build backend.yaml -o DIR, without -march in CXX"
    )


def test_the_library_itself_asks_for_its_runtimes_version(
    small: Path, whole: Path, tmp_path: Path
) -> None:
    """For those who load it without opsmith: the file's description is not all that says it."""
    other = patched(whole, tmp_path / "libother.so", b"1.4.1\0", b"1.3.0\0")
    assert refusal(LibraryRejected, run_program, small, [other]) == (
        f"`{other}` cannot be loaded: the library was built for ExecuTorch 1.3.0, and this is 1.4.1+cpu\n"
        f"  remedy: {LOAD_ONCE}"
    )


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda content: b"a library", "it is no shared library"),
        (lambda content: content[:5000], "it is damaged"),
    ],
)
def test_what_is_no_library_of_opsmith(
    small: Path, whole: Path, tmp_path: Path, damage: Callable[[bytes], bytes], why: str
) -> None:
    path = tmp_path / "libbroken.so"
    path.write_bytes(damage(whole.read_bytes()))
    assert refusal(LibraryRejected, run_program, small, [path]) == (
        f"`{path}` is no kernel library of opsmith for ExecuTorch: {why}\n"
        "  remedy: name the file that `opsmith executorch build` wrote into its folder"
    )


SELF_REGISTERED = """
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
#include <executorch/runtime/kernel/kernel_includes.h>
using executorch::aten::Scalar;
using executorch::aten::Tensor;
using executorch::runtime::KernelRuntimeContext;
static Tensor& scale_out(KernelRuntimeContext& ctx, const Tensor& self, double factor, Tensor& out) {
  for (ssize_t i = 0; i < self.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = float(factor) * self.const_data_ptr<float>()[i];
  }
  return out;
}
EXECUTORCH_LIBRARY(NAMESPACE, NAME, scale_out);
"""


def self_registered(path: Path, namespace: str, name: str) -> Path:
    """A library whose one kernel registers itself under ``namespace::name``."""
    executorch = find_executorch()
    source = path.with_suffix(".cpp")
    source.write_text(SELF_REGISTERED.replace("NAMESPACE", namespace).replace("NAME", f'"{name}"'))
    folders = executorch.headers.include_dirs
    subprocess.run(
        ["c++", "-std=c++17", "-fPIC", "-shared", "-DNDEBUG", "-DC10_USING_CUSTOM_GENERATED_MACROS",
         *(f"-I{folder}" for folder in folders), source, *executorch.libraries, "-o", path],
        check=True,
    )  # fmt: skip
    return path


def test_a_library_that_registers_itself(
    scaled: Path, small: Path, whole: Path, tmp_path: Path
) -> None:
    library = self_registered(tmp_path / "libscaler.so", "chip", "scale.out")
    inputs = tmp_path / "inputs.pt"
    torch.save(matrices(1), inputs)
    assert run_program(scaled, [library], inputs).served_by == {"chip::scale.out": "scaler"}
    clash = self_registered(tmp_path / "libclash.so", "aten", "add.out")
    assert refusal(LibraryRejected, run_program, small, [clash]) == (
        f"`{clash}` registers aten::add.out, for which there is a kernel already, and ExecuTorch's runtime "
        "ends the process that does so\n"
        "  remedy: leave out one of the two; a library of `opsmith executorch build` has kernels for "
        "aten::add.out beside others, since they have keys"
    )
    # Two of them with one operator are as bad, in whichever order.
    twin = self_registered(tmp_path / "libtwin.so", "chip", "scale.out")
    for libraries in ([library, twin], [twin, library]):
        said = refusal(LibraryRejected, run_program, scaled, libraries, inputs)
        assert said.startswith(f"`{libraries[1]}` registers chip::scale.out, for which there is ")


def test_a_library_that_is_not_there(small: Path, tmp_path: Path) -> None:
    assert refusal(FileMissing, lambda: run_program(small, [tmp_path / "lib.so"])) == (
        f"the kernel library `{tmp_path}/lib.so` cannot be read: No such file or directory\n"
        "  remedy: name the file that `opsmith executorch build` wrote into its folder"
    )
    assert refusal(LibraryRejected, run_program, small, [tmp_path]) == (
        f"`{tmp_path}` holds no shared libraries, and one is wanted\n"
        "  remedy: name a file, or a folder that `opsmith executorch build` wrote"
    )


# ---- programs


def test_a_kernel_that_fails_says_why(chip: Path, whole: Path, tmp_path: Path) -> None:
    program = export(Small(), matrices(2, torch.float64), tmp_path / "doubles.pte", chip).program
    said = refusal(ProgramFailed, run_program, program, [whole])
    assert said.startswith(f"`{program}` failed: method->execute() failed with error 0x12\n")
    assert "plain refuses 2 dimensions" in said
    assert "KernelCall failed at instruction 0:0 in operator aten::add.out: 0x12" in said
    assert said.endswith("  remedy: the lines above are what ExecuTorch's runtime said")


def test_a_kernel_that_ends_the_process(tmp_path: Path) -> None:
    backend = write_chip(tmp_path / "chip")
    source = backend.with_name("plain.cpp")
    text = source.read_text().replace(
        "map<float>(self, out, [](float x) { return x /",
        "std::abort(); map<float>(self, out, [](float x) { return x /",
    )
    source.write_text(f"#include <cstdlib>\n{text}")
    program = export(Silu(), matrices(1), tmp_path / "silu.pte", backend).program
    library = build(backend, tmp_path / "out", program).library
    said = refusal(ProgramFailed, run_program, program, [library]).splitlines()
    assert said[0] == f"running `{program}` ended the process with SIGABRT"
    assert said[-1] == (
        "  remedy: the last lines are what ExecuTorch's runtime said; opsmith itself is unharmed"
    )


def test_an_operator_that_nobody_has(small: Path, whole: Path, tmp_path: Path) -> None:
    program = tmp_path / "other.pte"
    program.write_bytes(small.read_bytes().replace(b"aten::add", b"aten::ads"))
    said = refusal(OperatorsUnserved, run_program, program, [whole]).splitlines()
    assert said[0] == (
        f"`{program}` calls operators for which neither its libraries nor ExecuTorch 1.4.1 has a kernel:"
    )
    assert said[1].startswith(
        "  aten::ads.out Float(0,1) Float(0,1) Float(0,1) Float(0,1) (did you mean aten::add.out, "
    )


def test_damaged_programs_are_refused(small: Path, whole: Path, tmp_path: Path) -> None:
    content = small.read_bytes()
    program = tmp_path / "damaged.pte"
    inputs = tmp_path / "inputs.pt"
    torch.save(matrices(), inputs)
    refused = []
    for place in range(40, len(content), len(content) // 3):
        program.write_bytes(content[:place] + b"\xff" * 8 + content[place + 8 :])
        try:
            run_program(program, [whole], inputs)
        except OpsmithError as error:
            refused.append(error)
    assert refused and all(error.remedy for error in refused)
    program.write_bytes(b"")
    with pytest.raises(ProgramInvalid):
        run_program(program)


def test_a_method_that_it_has_not(small: Path) -> None:
    assert refusal(InputsRejected, run_program, small, method="forwards") == (
        f"`{small}` has no method `forwards` (did you mean forward?)\n  remedy: its methods are forward"
    )
    assert list(read_program(small).inputs) == ["forward"]


# ---- libraries in a process of one's own


def run_python(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        [sys.executable, "-W", "ignore", "-c", dedent(code), *arguments],
        imports=fork_server.EXECUTORCH,
    )


def test_load_library_serves_programs_that_are_loaded_later(small: Path, whole: Path) -> None:
    done = run_python(
        """
        import sys, torch
        from opsmith.executorch import load_library, read_program
        from executorch.runtime import Runtime

        program, library = sys.argv[1:]
        loaded = load_library(library, [read_program(program)])
        print(loaded.server("aten::add.out", "v1/6;0,1|6;0,1|6;0,1|6;0,1"))
        print(repr(loaded.server("aten::add.out", "v1/7;0|7;0|7;0|7;0")))
        print(loaded.server("chip::nothing.out", ""))
        method = Runtime.get().load_program(program).load_method("forward")
        print(method.execute([torch.ones(3, 4), torch.ones(3, 4)])[0].unique().tolist())
        """,
        small,
        whole,
    )
    assert done.stdout.splitlines() == ["fast", "''", "None", "[2.0]"], done.stderr


def test_inputs_of_another_layout_are_refused_where_a_program_runs_itself(
    chip: Path, whole: Path, tmp_path: Path
) -> None:
    image = torch.ones(1, 2, 3, 4)
    contiguous = export(Small(), (image, image), tmp_path / "contiguous.pte", chip).program
    last = image.to(memory_format=torch.channels_last)
    channels_last = export(Small(), (last, last), tmp_path / "last.pte", chip).program
    done = run_python(
        """
        import sys, torch
        from pathlib import Path
        from opsmith.errors import InputsRejected
        from opsmith.executorch import load_library
        from executorch.runtime import Runtime

        load_library(sys.argv[1])
        from executorch.extension.pybindings import portable_lib

        image = torch.arange(24.).reshape(1, 2, 3, 4)
        last = image.to(memory_format=torch.channels_last)
        def tried(call, *arguments):
            try:
                print(call(*arguments)[0].flatten()[:3].tolist())
            except InputsRejected as error:
                print(error)
        for path, fits, other in [(sys.argv[2], image, last), (sys.argv[3], last, image)]:
            for source in (path, Path(path).read_bytes()):
                method = Runtime.get().load_program(source).load_method("forward")
                tried(method.execute, [fits, fits])
                tried(method.execute, [fits, other])
            module = portable_lib._load_for_executorch(path)
            tried(module.forward, (fits, fits))
            tried(module.run_method, "forward", (other, fits))
        """,
        whole,
        contiguous,
        channels_last,
    )

    def lines(path: object, place: int, layout: str, strides: list[int], remedy: str) -> list[str]:
        return [
            f"`{path}`: input {place} is float32[1, 2, 3, 4], and it takes float32[1, 2, 3, 4] {layout}, "
            f"not with the strides {strides}",
            f"  remedy: lay it out: {remedy}",
        ]

    computed, expected = "[0.0, 2.0, 4.0]", []
    for path, *told in [
        (contiguous, "contiguous", [24, 1, 8, 2], "x.contiguous()"),
        (
            channels_last,
            "channels-last",
            [24, 12, 4, 1],
            "x.to(memory_format=torch.channels_last)",
        ),
    ]:
        for place, name in [(1, path), (1, "the program's buffer"), (0, path)]:
            expected += [computed, *lines(name, place, *told)]  # type: ignore[arg-type]
    assert done.stdout.splitlines() == expected, done.stderr


def test_a_library_says_whose_kernel_is_there_already(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "libcopy.so"
    shutil.copy(whole, copy)
    done = run_python(
        """
        import sys
        from opsmith.errors import LibraryRejected
        from opsmith.executorch import load_library

        load_library(sys.argv[1])
        try:
            load_library(sys.argv[2])
        except LibraryRejected as error:
            print(error)
        """,
        whole,
        copy,
    )
    assert done.stdout.splitlines() == [
        f"`{copy}` cannot be loaded: aten::mul.out has a kernel for the key v1/6;0,1|6;0,1|6;0,1|6;0,1 "
        f"already, that of {whole}",
        f"  remedy: {LOAD_ONCE}",
    ], done.stderr


def test_torch_loads_it_too(small: Path, selected: Path) -> None:
    done = run_python(
        """
        import sys, torch, ctypes
        from executorch.runtime import Runtime

        program, library = sys.argv[1:]
        runtime = Runtime.get()
        torch.ops.load_library(library)
        torch.ops.load_library(library)
        method = runtime.load_program(program).load_method("forward")
        print(method.execute([torch.ones(3, 4), torch.ones(3, 4)])[0].unique().tolist())
        loaded = ctypes.CDLL(library)
        loaded.opsmith_executorch_error.restype = ctypes.c_char_p
        loaded.opsmith_executorch_server.restype = ctypes.c_char_p
        print(loaded.opsmith_executorch_error())
        print(loaded.opsmith_executorch_server(b"aten::add.out", b"v1/6;0,1|6;0,1|6;0,1|6;0,1"))
        """,
        small,
        selected,
    )
    assert done.stdout.splitlines() == ["[2.0]", "b''", "b'fast'"], done.stderr


def test_a_backend_with_the_same_operator_twice_is_fine(tmp_path: Path) -> None:
    """Two operators of a library may be served by one function."""
    plain = PLAIN + "  - {op: sigmoid.out, kernel_name: chip::plain::relu_out, dtypes: [Float]}\n"
    built = build(write_chip(tmp_path / "chip", plain=plain), tmp_path / "out")
    assert sum(each.symbol == "chip::plain::native::relu_out" for each in built.kernels) == 2
