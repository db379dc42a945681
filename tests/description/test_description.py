"""Descriptions: what is read, and the text of each error with its place and remedy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from opsmith.description import (
    Execution,
    FallbackDefault,
    find_backend,
    manifest,
    read_backend,
)
from opsmith.description.device_names import check_device_name
from opsmith.errors import (
    BackendUnknown,
    DescriptionError,
    FileMissing,
    KernelDuplicate,
    KernelRejected,
    KeyUnknown,
    Location,
    OperatorUnknown,
    SchemaInvalid,
    SyntaxInvalid,
)
from opsmith.schema import Catalogue, read_catalogue

Describe = Callable[..., Path]


def test_a_description_is_read_with_its_places(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        """
        - op: aten::add.out
          kernel_name: chip::add
          structured: true
          dtypes: [Real, Long]
        """,
        header="execution: host\ntype_alias: {Real: [Float, Double]}",
        fallback="{deny: [topk]}",
    )
    backend = read_backend(path, catalogue)
    assert backend.name == "chip"
    assert [library.name for library in backend.libraries] == ["chiplib", "runtime"]
    (kernel,) = backend.libraries[0].kernels
    assert (kernel.operator, kernel.symbol, kernel.structured) == ("add.out", "chip::add", True)
    assert kernel.dtypes == (("", ("Float", "Double", "Long")),)
    assert kernel.execution is Execution.HOST
    assert str(kernel.location) == f"{path.parent}/kernels.yaml:6:5"
    assert backend.fallback.default is FallbackDefault.CPU
    assert [operator.name for operator in backend.fallback.deny] == ["topk"]
    assert backend.driver.sources == ((path.parent / "driver.c").resolve(),)


def test_a_shipped_backend_is_found_by_name() -> None:
    assert find_backend("sim").name == "backend.yaml"


def refused(kind: type[DescriptionError], path: Path, catalogue: Catalogue) -> str:
    """The error's text, with the folder of the description as ``DIR``."""
    with pytest.raises(kind) as caught:
        read_backend(path, catalogue)
    return str(caught.value).replace(str(path.parent), "DIR")


def test_unknown_backend() -> None:
    with pytest.raises(BackendUnknown) as caught:
        find_backend("simm")
    assert str(caught.value) == (
        "there is no backend `simm` (did you mean sim?)\n"
        "  remedy: name a shipped backend (sim) or the path of a backend.yaml"
    )


def test_unknown_operator(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: add.Tensr, kernel_name: f}")
    assert refused(OperatorUnknown, path, catalogue) == (
        f"DIR/kernels.yaml:5:6: torch {catalogue.torch} has no operator `add.Tensr` "
        "(did you mean add.Tensor, add.Scalar, add.out?)\n"
        "  remedy: name the overload too; `opsmith plan` lists every operator"
    )


def test_an_overload_left_out(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: add, kernel_name: f}")
    assert "has no operator `add` (did you mean " in refused(OperatorUnknown, path, catalogue)


def test_unknown_key(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: add.out, kernel_name: f, dtype: [Float]}")
    keys = ", ".join(field.encode_name for field in msgspec.structs.fields(manifest._Kernel))
    assert refused(KeyUnknown, path, catalogue) == (
        "DIR/kernels.yaml:5:35: unknown key `dtype` (did you mean dtypes?)\n"
        f"  remedy: the keys here are {keys}"
    )


def test_unknown_key_at_the_top(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(header="kernel: []")
    assert refused(KeyUnknown, path, catalogue).startswith(
        "DIR/kernels.yaml:3:1: unknown key `kernel` (did you mean kernels?)\n"
    )


def test_symint_for_a_library_and_for_one_kernel(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        """
        - {op: new_empty, kernel_name: f}
        - {op: relu, kernel_name: g, symint: false}
        """,
        header="symint: true",
    )
    kernels = read_backend(path, catalogue).libraries[0].kernels
    assert [kernel.symint for kernel in kernels] == [True, False]


def test_structured_meta_is_override_or_left_out(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: add.out, kernel_name: f, structured: true, structured_meta: mine}")
    assert refused(SyntaxInvalid, path, catalogue).startswith("DIR/kernels.yaml:5:")


def test_missing_key(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: add.out}")
    assert refused(SyntaxInvalid, path, catalogue) == (
        "DIR/kernels.yaml:5:5: the key `kernel_name` is missing\n"
        "  remedy: add `kernel_name: …` here, or `autograd: …` for a function that differentiates too"
    )


def test_wrong_type(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: add.out, kernel_name: f, structured: 3}")
    assert refused(SyntaxInvalid, path, catalogue) == (
        "DIR/kernels.yaml:5:35: `kernels.0.structured` has the wrong type: expected `bool`, got `int`\n"
        "  remedy: see docs/describe/description.md for what each key takes"
    )


def test_a_mapping_where_a_list_belongs(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("op: add.out")
    assert refused(SyntaxInvalid, path, catalogue) == (
        "DIR/kernels.yaml:4:1: `kernels` has the wrong type: expected `list`, got `mapping`\n"
        "  remedy: see docs/describe/description.md for what each key takes"
    )


def test_duplicate_kernel(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: add.out, kernel_name: f}\n- {op: aten::add.out, kernel_name: g}")
    assert refused(KernelDuplicate, path, catalogue) == (
        "DIR/kernels.yaml:6:6: two kernels for `add.out` in library `chiplib`; the first is `f` at "
        "DIR/kernels.yaml:5:6\n"
        "  remedy: keep one; another library can hold the other, in order of preference"
    )


def test_duplicate_yaml_key(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(header="library: again")
    assert refused(SyntaxInvalid, path, catalogue) == (
        "DIR/kernels.yaml:3:1: the key `library` stands twice; first at DIR/kernels.yaml:1:1\n"
        "  remedy: remove one of the two"
    )


def test_schema_instead_of_a_name(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: 'add.out(Tensor self) -> Tensor', kernel_name: f}")
    assert refused(SchemaInvalid, path, catalogue) == (
        "DIR/kernels.yaml:5:6: `add.out(Tensor self) -> Tensor` is a schema where an operator's name "
        "belongs\n"
        "  remedy: write `op: add.out`, or `func:` with the schema to declare an operator of your own"
    )


def test_a_name_that_does_not_parse(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: 'add..out', kernel_name: f}")
    assert refused(SchemaInvalid, path, catalogue) == (
        "DIR/kernels.yaml:5:6: `add..out` is not an operator's name\n"
        "  remedy: write name.overload as native_functions.yaml does, e.g. add.out"
    )


def test_unknown_dtype(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: add.out, kernel_name: f, dtypes: [Flaot]}")
    assert refused(KernelRejected, path, catalogue) == (
        "DIR/kernels.yaml:5:35: unknown dtype `Flaot` (did you mean Float, BFloat16?)\n"
        "  remedy: use a c10 ScalarType name such as Float or Long, or a name from type_alias"
    )


def test_not_yaml(describe: Describe, catalogue: Catalogue) -> None:
    path = describe()
    path.write_text("backend: [chip\ndriver: {}\n")
    text = refused(SyntaxInvalid, path, catalogue)
    assert text.startswith("DIR/backend.yaml:2:7: this is not YAML: ")
    assert text.endswith("\n  remedy: check the indentation and quotes around this place")


def test_a_library_by_its_old_name(describe: Describe, catalogue: Catalogue) -> None:
    path = describe()
    path.write_text("backend: chip\ndriver: sim\nlibraries: [hosted]\n")
    with pytest.warns(FutureWarning, match="`hosted` is called `example_kernels` now") as warned:
        backend = read_backend(path, catalogue)
    assert [(each.filename, each.lineno) for each in warned] == [(str(path), 3)]
    assert [library.name for library in backend.libraries] == ["example_kernels", "runtime"]


def test_missing_library(describe: Describe, catalogue: Catalogue) -> None:
    path = describe()
    path.write_text("backend: chip\ndriver: {sources: [driver.c]}\nlibraries: [example_kernel]\n")
    assert refused(FileMissing, path, catalogue) == (
        "DIR/backend.yaml:3:13: there is no kernel library `example_kernel` (did you mean example_kernels?)\n"
        "  remedy: name a shipped library (example_kernels, optimized, portable, quantized) or the path of a "
        "manifest, relative to this file"
    )


def test_missing_source(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(driver="{sources: [nowhere.c]}")
    assert refused(FileMissing, path, catalogue) == (
        "DIR/backend.yaml:2:20: no file matches `nowhere.c` in DIR\n"
        "  remedy: paths are relative to the YAML file that names them"
    )


def test_driver_neither_built_nor_sources(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(driver="{host_window: off}")
    assert refused(SyntaxInvalid, path, catalogue) == (
        "DIR/backend.yaml:2:1: a driver is a shipped one, a built library or sources to build, and "
        "exactly one of them\n"
        "  remedy: write `driver: sim`, `driver: {library: path/to/libmychip.so}` or "
        "`driver: {sources: [mychip.cpp]}`"
    )


def test_a_device_name_that_torch_uses(describe: Describe, catalogue: Catalogue) -> None:
    path = describe()
    path.write_text("backend: cuda\ndriver: {sources: [driver.c]}\n")
    assert refused(SyntaxInvalid, path, catalogue) == (
        "DIR/backend.yaml:1:1: `cuda` cannot name a device\n"
        "  remedy: use lower-case letters, digits and _, and none of torch's own device names"
    )


def test_a_shipped_driver_is_named(describe: Describe, catalogue: Catalogue) -> None:
    driver = read_backend(describe(driver="sim"), catalogue).driver
    assert driver.sources == read_backend(find_backend("sim"), catalogue).driver.sources
    assert str(driver.location).endswith("backend.yaml:2:1")
    path = describe(driver="{name: sim, host_window: off}")
    assert not read_backend(path, catalogue).driver.host_window


def test_unknown_driver(describe: Describe, catalogue: Catalogue) -> None:
    assert refused(BackendUnknown, describe(driver="simm"), catalogue) == (
        "DIR/backend.yaml:2:1: no driver called `simm` comes with opsmith (did you mean sim?)\n"
        "  remedy: name a shipped one (sim), or write `driver: {sources: [mychip.cpp]}`"
    )


def test_no_device_is_called_like_anything_of_pytorch(tmp_path: Path) -> None:
    # In a process of its own: here a device may have been loaded, which is then one of them.
    listed = subprocess.run(
        [sys.executable, "-c", _NAMES_OF_PYTORCH],
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    operators = {name.partition(".")[0] for name in read_catalogue().operators}
    names = {name for name in listed.stdout.split() if re.fullmatch("[a-z][a-z0-9_]*", name)}
    free = []
    for name in sorted(names - operators):
        with suppress(SyntaxInvalid):
            check_device_name(name, Location(tmp_path))
            free.append(name)
    assert len(names) > 500 and free == []
    for name in ("chip", "sim", "mychip", "npu", "cpu2", "neuron_core", "opencl"):
        check_device_name(name, Location(tmp_path))


_NAMES_OF_PYTORCH = """
import pkgutil, torch
from torch.nn.utils.rnn import PackedSequence
print(*dir(torch), *(module.name for module in pkgutil.iter_modules(torch.__path__)))
for owner in (torch.Tensor, torch.nn.Module, PackedSequence):
    print(*dir(owner), *(name[3:] for name in dir(owner) if name.startswith("is_")))
"""


def test_a_device_name_that_is_an_operator(describe: Describe, catalogue: Catalogue) -> None:
    path = describe()
    path.write_text(path.read_text().replace("backend: chip", "backend: neg"))
    assert refused(SyntaxInvalid, path, catalogue) == (
        "DIR/backend.yaml:1:1: `neg` cannot name a device: it is an operator, and the C++ function "
        "`at::neg` leaves no room for a namespace of that name\n"
        "  remedy: choose another name, e.g. `negchip`"
    )
