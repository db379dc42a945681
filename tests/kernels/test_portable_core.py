"""Every operator of Core ATen, and of those that ExecuTorch serves, has a kernel or a reason why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import torch

import opsmith
from opsmith.build.executorch import find_executorch

FOLDER = Path(opsmith.__file__).parent / "kernels" / "portable"


def core_operators() -> list[torch._C.FunctionSchema]:
    """The schemas that PyTorch tags as Core ATen, without those that are out variants themselves."""
    core = []
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        packet = getattr(torch.ops.aten, name, None) if namespace == "aten" else None
        overload = getattr(packet, schema.overload_name or "default", None)
        if overload is None or torch.Tag.core not in overload.tags:
            continue
        if not any(argument.is_out for argument in schema.arguments):
            core.append(schema)
    return core


def inputs(schema: torch._C.FunctionSchema, *without: str) -> list[tuple[str, str]]:
    return [
        (argument.name, str(argument.type))
        for argument in schema.arguments
        if not argument.is_out and argument.name not in without
    ]


def out_variants(schema: torch._C.FunctionSchema) -> set[str]:
    """The out variants that take what the operator takes; a view's is its copy's."""
    options = ("dtype", "layout", "device", "pin_memory")
    names = {schema.name, f"{schema.name}_copy"}
    return {
        f"{other.name}.{other.overload_name}".removeprefix("aten::")
        for other in torch._C._jit_get_all_schemas()
        if other.name in names
        and any(argument.is_out for argument in other.arguments)
        and inputs(other, *options, "generator") == inputs(schema, *options, "generator")
    }


def named(schema: torch._C.FunctionSchema) -> str:
    overload = f".{schema.overload_name}" if schema.overload_name else ""
    return schema.name.removeprefix("aten::") + overload


def test_every_core_operator_has_a_kernel_or_a_reason() -> None:
    manifest = msgspec.yaml.decode((FOLDER / "kernels.yaml").read_bytes())
    kernels = {entry["op"] for entry in manifest["kernels"] if "op" in entry}
    reasons = msgspec.yaml.decode((FOLDER / "not_covered.yaml").read_bytes(), type=dict[str, str])
    without = []
    needless = []
    for schema in core_operators():
        served = bool(out_variants(schema) & kernels)
        # Reasons are given for an operator or for all its overloads.
        reason = named(schema) in reasons or named(schema).partition(".")[0] in reasons
        if not served and not reason:
            without.append(named(schema))
        if served and named(schema) in reasons:
            needless.append(named(schema))
    assert (without, needless) == ([], [])


def names_in(document: Path) -> set[str]:
    """The operators of a manifest, or of one of ExecuTorch's YAML files."""
    decoded = msgspec.yaml.decode(document.read_bytes())
    entries = decoded["kernels"] if isinstance(decoded, dict) else decoded
    return {entry.get("op") or entry["func"].partition("(")[0] for entry in entries}


def without_kernel_or_reason(operators: set[str]) -> list[str]:
    """Those of the operators for which no library has a kernel, and that are not named as left out."""
    manifests = FOLDER.parent.glob("*/kernels.yaml")
    kernels = {name for manifest in manifests for name in names_in(manifest)}
    reasons = msgspec.yaml.decode((FOLDER / "not_covered.yaml").read_bytes(), type=dict[str, str])
    return [
        operator
        for operator in sorted(operators - kernels)
        if operator not in reasons
        and operator.partition(".")[0] not in reasons
        and operator.partition("::")[0] not in reasons
    ]


def test_every_operator_of_the_runtimes_yaml_files_has_a_kernel_or_a_reason() -> None:
    folder = find_executorch().root / "kernels"
    files = {path.relative_to(folder).as_posix(): path for path in folder.glob("*/*.yaml")}
    assert {"portable/functions.yaml", "quantized/quantized.yaml"} <= files.keys()
    named = {name for path in files.values() for name in names_in(path)}
    assert without_kernel_or_reason(named) == []


# In a process of its own, since it cannot be undone: the kernels of the wheel's libraries.
REGISTERED = """
import torch
from executorch.extension.pybindings import _portable_lib
for library in {libraries}:
    torch.ops.load_library(library)
print(*_portable_lib._get_operator_names())
"""


def test_every_operator_that_the_wheel_registers_has_a_kernel_or_a_reason() -> None:
    root = find_executorch().root
    libraries = sorted(str(path) for path in root.rglob("*_ops_aot_lib.*"))
    assert len(libraries) == 2
    script = REGISTERED.format(libraries=libraries)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    names = {name.removeprefix("aten::") for name in done.stdout.split()}
    assert {"llama::custom_sdpa.out", "quantized_decomposed::embedding_4bit.out"} <= names
    assert without_kernel_or_reason(names) == []
