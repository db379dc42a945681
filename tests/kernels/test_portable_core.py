"""The portable library has a kernel for every operator of Core ATen and of ExecuTorch's, or says why not."""

from __future__ import annotations

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


def served_by_the_runtime() -> set[str]:
    """The operators of the list from which ExecuTorch builds its portable kernels."""
    path = find_executorch().root / "kernels" / "portable" / "functions.yaml"
    entries = msgspec.yaml.decode(path.read_bytes())
    return {entry.get("op") or entry["func"].partition("(")[0] for entry in entries}


def test_every_operator_of_the_runtime_has_a_kernel_or_a_reason() -> None:
    kernels = set()
    for library in ("portable", "dim_order"):
        manifest = msgspec.yaml.decode((FOLDER.parent / library / "kernels.yaml").read_bytes())
        for entry in manifest["kernels"]:
            kernels.add(entry.get("op") or entry["func"].partition("(")[0])
    reasons = msgspec.yaml.decode((FOLDER / "not_covered.yaml").read_bytes(), type=dict[str, str])
    without = [
        operator
        for operator in sorted(served_by_the_runtime() - kernels)
        if operator not in reasons and operator.partition(".")[0] not in reasons
    ]
    assert without == []
