"""The map of DispatchStubs is the installed torch's; a description's stubs are served, or refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import fork_server
from opsmith.build.csrc import INCLUDE_DIRS
from opsmith.build.toolchain import find_compiler, find_torch
from opsmith.build.units import generated_units
from opsmith.description import Execution, read_backend
from opsmith.emit import emit
from opsmith.plan import Plan, Route, resolve
from opsmith.schema import Catalogue, read_stubs, torch_release
from opsmith.schema.catalogue import cpu_kernels
from opsmith.schema.recorded import shown

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "find_stubs"))
from declarations import compatible, read_declarations
from test_emit_everything import complaints

Describe = Callable[..., Path]


# ---- the map


def test_every_declared_stub_is_in_the_map() -> None:
    declared = read_declarations(find_torch().root)
    known = read_stubs()
    assert {d.name: (d.header, d.exported) for d in declared} == {
        name: (stub.header, stub.exported) for name, stub in known.stubs.items()
    }
    headers = sorted({d.header for d in declared})
    together = compatible(headers, find_torch().root)
    assert known.isolated == {header for group in together[1:] for header in group}


@pytest.mark.nightly
@pytest.mark.compiles
def test_signatures_are_the_headers(tmp_path: Path) -> None:
    known = read_stubs()
    root = find_torch().root
    includes = [word for folder in find_torch().include_dirs for word in ("-isystem", str(folder))]
    for headers in compatible(sorted({s.header for s in known.stubs.values()}), root):
        lines = [f"#include <{header}>" for header in headers]
        for stub in known.stubs.values():
            if stub.header in headers:
                lines.append(
                    f"static_assert(std::is_same_v<at::native::{stub.name}_DECLARE_DISPATCH_type::FnPtr, "
                    f"std::add_pointer_t<{stub.signature}>>);"
                )
        source = tmp_path / "signatures.cpp"
        source.write_text("\n".join(lines) + "\n")
        command = [
            *find_compiler(tmp_path).command,
            "-std=c++20",
            "-fsyntax-only",
            *includes,
            source,
        ]
        said = subprocess.run(command, capture_output=True, text=True).stderr
        assert said == ""


def test_callers_are_pytorchs_cpu_kernels() -> None:
    kernels = cpu_kernels()
    callers = read_stubs().callers
    assert {name: caller.kernel for name, caller in callers.items()} == {
        name: kernels[name] for name in callers
    }


def test_known_callers() -> None:
    known = read_stubs()
    assert known.operators("abs_stub") == ("abs.out",)
    assert known.callers["abs.out"].kernel == "at::native::abs_out"
    assert known.callers["sin.out"].kernel == "at::native::structured_sin_out"
    assert known.callers["sin.out"].structured
    assert "sub.out" in known.operators("add_stub")


# ---- the plan


@pytest.fixture
def plan(describe: Describe, catalogue: Catalogue) -> Callable[..., Plan]:
    def run(kernels: str, **description: str) -> Plan:
        return resolve(read_backend(describe(kernels, **description), catalogue), catalogue)

    return run


def test_a_filled_stub_serves_the_group(plan: Callable[..., Plan]) -> None:
    planned = plan("- {stub: sin_stub, kernel_name: chip::sin}")
    for name in ("sin", "sin_", "sin.out"):
        entry = planned.entry(name)
        assert entry.route is Route.STUB
        assert re.sub(r"\(/\S*/", "(", entry.why) == (
            "PyTorch's `at::native::structured_sin_out` calls `sin_stub`, filled with `chip::sin` "
            "(kernels.yaml:5:6); PyTorch's meta function checks and shapes it"
        )


def test_a_kernel_of_the_operator_is_preferred_to_a_stub(plan: Callable[..., Plan]) -> None:
    planned = plan(
        """
        - {stub: sin_stub, kernel_name: chip::sin_stub}
        - {op: sin_, kernel_name: chip::sin_}
        - {stub: cos_stub, kernel_name: chip::cos_stub}
        - {op: cos.out, kernel_name: chip::cos, structured: true}
        - {stub: abs_stub, kernel_name: chip::abs_stub}
        - {op: abs, kernel_name: chip::abs}
        """
    )
    routes = {name: planned.entry(name).route for name in planned.by_name}
    assert (routes["sin_"], routes["sin"], routes["sin.out"]) == (
        Route.KERNEL, Route.STUB, Route.STUB,
    )  # fmt: skip
    assert {routes[name] for name in ("cos", "cos_", "cos.out")} == {Route.STRUCTURED}
    assert (routes["abs"], routes["abs_"], routes["abs.out"]) == (
        Route.KERNEL, Route.DERIVED, Route.STUB,
    )  # fmt: skip


def test_stubs_that_are_filled_twice_come_from_the_first_library(
    describe: Describe, catalogue: Catalogue, tmp_path: Path
) -> None:
    backend = describe("- {stub: sin_stub, kernel_name: chip::first}")
    (tmp_path / "more.yaml").write_text(
        "library: more\nsources: [kernels.cpp]\n"
        "kernels: [{stub: sin_stub, kernel_name: chip::second}]\n"
    )
    backend.write_text(backend.read_text().replace("[kernels.yaml]", "[kernels.yaml, more.yaml]"))
    planned = resolve(read_backend(backend, catalogue), catalogue)
    assert [stub.symbol for stub in planned.stubs] == ["chip::first"]


def test_a_host_kernel_gets_copies_without_a_host_window(plan: Callable[..., Plan]) -> None:
    planned = plan(
        "- {stub: sin_stub, kernel_name: chip::sin}",
        header="execution: host",
        driver="{sources: [driver.c], host_window: false}",
    )
    assert planned.entry("sin.out").route is Route.STUB
    assert [stub.execution for stub in planned.stubs] == [Execution.COPIES]


# ---- opsmith stubs


def opsmith_stubs(*arguments: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        [sys.executable, "-m", "opsmith", "stubs", *arguments], env={**os.environ, "COLUMNS": "110"}
    )


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that ``opsmith stubs --json`` promises for each stub."""

    name: str
    signature: str
    header: str
    exported: bool
    operators: list[str]
    served: bool
    obstacle: str


def test_json() -> None:
    rows = msgspec.json.decode(opsmith_stubs("--json").stdout, type=list[Row])
    assert len(rows) == len(read_stubs().stubs)
    for row in rows:
        assert row.served == (row.obstacle == "") == (row.exported and row.operators != [])
    (row,) = (row for row in rows if row.name == "add_stub")
    assert row == Row(
        name="add_stub",
        signature="void (at::TensorIteratorBase&, const at::Scalar&)",
        header="ATen/native/BinaryOps.h",
        exported=True,
        operators=list(read_stubs().operators("add_stub")),
        served=True,
        obstacle="",
    )


def test_table() -> None:
    text = opsmith_stubs("abs_stub").stdout
    assert "void (at::TensorIteratorBase&)" in text and "abs.out" in text
    assert text.splitlines()[-1] == "1 stubs; opsmith serves 1 operators through 1 of them"


def test_no_stub_of_that_name() -> None:
    run = opsmith_stubs("abz_stub")
    assert run.returncode == 1
    assert run.stderr == (
        f"error: torch {shown(torch_release())} has no DispatchStub `abz_stub`, nor one that serves "
        "an operator of that name (did you mean abs_stub, tan_stub, sub_stub?)\n"
        "  remedy: `opsmith stubs` lists every stub\n"
    )


# ---- the generated code

REGISTRATIONS = """
#include <opsmith/generated/stub.h>

#include <ATen/native/IndexKernel.h>
#include <ATen/native/UnaryOps.h>

// void (at::TensorIterator&, const at::Scalar&)
//
// `chip::masked_fill` (chiplib, kernels.yaml:6:6), for masked_fill_.Scalar, masked_fill_.Tensor
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(
    masked_fill_stub, (&opsmith::StubKernel<"masked_fill_stub", &::chip::masked_fill, opsmith::Runs::kOnHost,
                                            opsmith::Stubs::kOwnDtypes>::call))
}  // namespace at::native

// void (at::TensorIteratorBase&)
//
// `chip::sin` (chiplib, kernels.yaml:5:6), for sin.out
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(
    sin_stub, (&opsmith::StubKernel<"sin_stub", &::chip::sin, opsmith::Runs::kOnHost,
                                    opsmith::Stubs::kCommonDtype, at::ScalarType::Float>::call))
}  // namespace at::native
"""


def test_generated_code(
    describe: Describe, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = describe(
        """
        - {stub: sin_stub, kernel_name: chip::sin, dtypes: [Float]}
        - {stub: masked_fill_stub, kernel_name: chip::masked_fill}
        """,
        header="execution: host",
    )
    monkeypatch.chdir(path.parent)
    files = {
        file.name: file.text
        for file in emit(resolve(read_backend(Path(path.name), catalogue), catalogue))
    }
    assert (
        "// sin_stub (chiplib, kernels.yaml:5:6)\n"
        "namespace chip {\n"
        "void sin(at::TensorIteratorBase&);\n"
        "}\n"
    ) in files["ChipNativeFunctions.h"]
    assert files["RegisterChipStubs.cpp"].endswith(REGISTRATIONS)
    wrappers = "".join(text for name, text in files.items() if re.search(r"_\d\.cpp", name))
    assert (
        """
  try {
    opsmith::Structured<::at::native::structured_sin_out, 1> op(opsmith::Given::kOut, out);
    op.meta(self);
    op.impl(self, op.result(0));
    op.finish();
    return out;
  } catch (const opsmith::StubRejected&) {
    return opsmith::call_boxed<at::_ops::sin_out, &opsmith::fallback>(self, out);
  }
"""
        in wrappers
    )
    assert "return ::at::native::masked_fill__cpu(self, mask, value);" in wrappers


@pytest.mark.compiles
def test_every_served_stub_compiles_together(plan: Callable[..., Plan], tmp_path: Path) -> None:
    """The generated code of all stubs at once: types, headers, and every caller's arguments."""
    known = read_stubs()
    served = [name for name in known.stubs if not known.obstacle(name)]
    planned = plan(
        "\n".join(
            f"- {{stub: {name}, kernel_name: chip::{name.replace('::', '_')}, dtypes: [Float]}}"
            for name in served
        )
    )
    assert [stub.stub for stub in planned.stubs] == sorted(served)
    folder = tmp_path / "generated"
    folder.mkdir()
    assert complaints(planned, folder, len(served)) == []


@pytest.mark.compiles
def test_what_the_build_compiles_together_may_stand_together(
    plan: Callable[..., Plan], tmp_path: Path
) -> None:
    """Stubs whose headers clash with others are units of their own; custom operators stand beside stubs."""
    planned = plan(
        """
        - {stub: sin_stub, kernel_name: chip::sin}
        - {stub: polar_stub, kernel_name: chip::polar}
        - {stub: GroupNormKernel, kernel_name: chip::group_norm}
        - {func: 'myop::scale(Tensor self, float factor) -> Tensor', kernel_name: chip::scale,
           meta: {same_as: self}}
        """
    )
    for file in emit(planned, laid_out=False):
        (tmp_path / file.name).write_text(file.text)
    units = generated_units(sorted(tmp_path.glob("*.cpp")))
    assert [unit.name for unit in units] == [
        "generated.cpp",
        "RegisterChipStubs_TensorFactories.cpp",
        "RegisterChipStubs_group_norm.cpp",
    ]
    together = {source.name for source in units[0].sources}
    assert {"RegisterChipStubs.cpp", "RegisterCustomChip.cpp"} < together
    compiler, torch = find_compiler(tmp_path), find_torch()
    includes = [word for folder in torch.include_dirs for word in ("-isystem", str(folder))]
    for unit in units:
        source = tmp_path / f"unit_{unit.name}"
        source.write_text("".join(f'#include "{each}"\n' for each in unit.sources))
        command = [*compiler.command, "-std=c++20", "-fsyntax-only", *unit.flags, *includes]
        checked = subprocess.run(
            [*command, *(f"-I{folder}" for folder in INCLUDE_DIRS), source],
            capture_output=True,
            text=True,
        )
        assert checked.returncode == 0, checked.stderr[:3000]
