"""The generated code of every group compiles: structured, and derived from each variant that ATen has.

Checks syntax only, which is what catches a wrapper whose types do not fit; values are tested elsewhere.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opsmith.build.toolchain import find_compiler, find_torch
from opsmith.description import read_backend
from opsmith.description.backend import PACKAGE
from opsmith.emit import emit
from opsmith.plan import Plan, Route, resolve
from opsmith.schema import Catalogue, Composite, Group

Describe = Callable[..., Path]

PARTS = 4


def kernels(catalogue: Catalogue, variant: Callable[[Group], str | None], suffix: str = "") -> str:
    """A manifest's entries: a kernel for the ``variant`` of each group that may have one."""
    names = sorted({name for group in catalogue.groups if (name := variant(group))})
    return "\n".join(
        f"- {{op: {name}, kernel_name: chip::{name.replace('.', '_')}{suffix}}}"
        for name in names
        if catalogue.operators[name].composite is not Composite.IMPLICIT
    )


def complaints(plan: Plan, folder: Path) -> list[str]:
    """What the compiler says of the generated files."""
    torch = find_torch()
    compiler = find_compiler(folder)
    files = emit(plan)
    for file in files:
        (folder / file.name).write_text(file.text)
    includes = [f"-I{PACKAGE / 'csrc'}"]
    for directory in torch.include_dirs:
        includes += ["-isystem", str(directory)]

    # Together, because what takes the time is PyTorch's headers; after the declarations of the calls, so
    # that the definitions must agree with them.
    names = [file.name for file in files if file.name.endswith(".cpp")]
    for part in range(PARTS):
        lines = ["ChipFunctions.h", *names[part::PARTS]]
        (folder / f"part_{part}.cc").write_text("".join(f'#include "{line}"\n' for line in lines))

    def check(part: int) -> str:
        source = f"part_{part}.cc"
        command = [*compiler.command, "-std=c++20", "-fsyntax-only", "-Wall", *includes, source]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr

    with ThreadPoolExecutor(2) as pool:
        return [text[:2000] for text in pool.map(check, range(PARTS)) if text]


def test_all_structured_groups(describe: Describe, catalogue: Catalogue, tmp_path: Path) -> None:
    entries = kernels(
        catalogue, lambda group: group.out if group.structured else None, ", structured: true"
    )
    plan = resolve(read_backend(describe(entries), catalogue), catalogue)
    # 275 out variants, as many functional ones, and 110 in place.
    assert plan.counts()[Route.STRUCTURED] == 2 * 275 + 110
    assert complaints(plan, tmp_path) == []


def test_all_structured_groups_with_their_own_meta_and_casts(
    describe: Describe, catalogue: Catalogue, tmp_path: Path
) -> None:
    entries = "\n".join(
        f"- {{op: {group.out}, kernel_name: chip::{(group.out or '').replace('.', '_')}, structured: true, "
        f"structured_meta: override, casts: {str(group.iterator).lower()}}}"
        for group in catalogue.groups
        if group.structured
    )
    plan = resolve(read_backend(describe(entries), catalogue), catalogue)
    assert complaints(plan, tmp_path) == []


def test_all_groups_with_symint(describe: Describe, catalogue: Catalogue, tmp_path: Path) -> None:
    groups = [
        group
        for group in catalogue.groups
        if any("SymInt" in catalogue.operators[name].schema for _, name in group.members())
    ]
    members = {id(group): [name for _, name in group.members()] for group in groups}
    given = {
        id(group): names[i % len(names)]
        for i, (group, names) in enumerate(zip(groups, members.values(), strict=True))
    }
    entries = kernels(catalogue, lambda group: given.get(id(group)))
    path = describe(entries, header="symint: true")
    plan = resolve(read_backend(path, catalogue), catalogue)
    assert plan.counts()[Route.DERIVED] > 130
    assert complaints(plan, tmp_path) == []


@pytest.mark.parametrize(
    ("variant", "least"),
    [
        (lambda group: group.out, 1000),
        (lambda group: group.functional, 1100),
        (lambda group: group.inplace, 500),
    ],
    ids=["out", "functional", "in-place"],
)
def test_all_groups_derived_from(
    variant: Callable[[Group], str | None],
    least: int,
    describe: Describe,
    catalogue: Catalogue,
    tmp_path: Path,
) -> None:
    plan = resolve(read_backend(describe(kernels(catalogue, variant)), catalogue), catalogue)
    assert plan.counts()[Route.DERIVED] > least
    assert complaints(plan, tmp_path) == []


def test_differentiation_of_every_kind_of_operator(
    describe: Describe, catalogue: Catalogue, tmp_path: Path
) -> None:
    """Optional Tensors, lists of them, of numbers, strings, several results, none that is saved, …"""
    names = """add.Tensor avg_pool2d cat conv2d cumsum einsum embedding gelu index.Tensor linear logsumexp
        max.dim native_layer_norm norm.ScalarOpt_dim pad scaled_dot_product_attention sum.dim_IntList topk
        upsample_nearest2d upsample_nearest2d.vec where.self"""
    entries = "\n".join(
        f"- {{op: {name}, backward: chip::{name.replace('.', '_')}_backward}}"
        for name in names.split()
    )
    plan = resolve(read_backend(describe(entries), catalogue), catalogue)
    assert sum(entry.autograd is not None for entry in plan.entries) > 21
    assert complaints(plan, tmp_path) == []
