"""The generated code of every group compiles: structured, and derived from each variant that ATen has.

Checks syntax only, which is what catches a wrapper whose types do not fit; values are tested elsewhere.

By default the groups that are compiled are representatives: together they have every type of an argument
and of a result, every default, every set of variants and every property of an operator that any group has
(``representatives.py``), which is what the generated code is made from.  What is left to ``make test-all``,
where every group is compiled, is a combination of them that no representative has, and what is derived from
functional and in-place kernels; ``test_variants.py`` and sim compile hundreds of others.  What compiled once
is not compiled again until the text, a header or the compiler changes.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opsmith.base.cache_folder import cache_root
from opsmith.build.csrc import CSRC, INCLUDE_DIRS
from opsmith.build.toolchain import find_compiler, find_torch
from opsmith.description import read_backend
from opsmith.emit import emit
from opsmith.plan import Plan, Route, resolve
from opsmith.schema import Catalogue, Composite, Group
from representatives import features, representatives

Describe = Callable[..., Path]
Check = Callable[..., Plan]

GROUPS_IN_A_FILE = 250
"""PyTorch's headers take most of the time, and each file reads them anew."""


def test_representatives_have_what_all_groups_have(catalogue: Catalogue) -> None:
    groups = catalogue.groups
    few = representatives(groups, lambda group: features(group, catalogue))
    assert 50 < len(few) < len(groups) / 5
    has = [set().union(*(features(group, catalogue) for group in each)) for each in (few, groups)]
    assert has[0] == has[1]
    arguments = {feature[1] for feature in has[0] if len(feature) == 2}
    assert {"Tensor", "Tensor?[]", "SymInt[0]=0", "ScalarType?=None", "Tensor(a!)"} <= arguments
    assert not [argument for argument in arguments if "self" in str(argument)]


# ---- compiling


def complaints(plan: Plan, folder: Path, groups: int) -> list[str]:
    """The compiler's diagnostics for the files that are generated for ``groups`` groups."""
    torch = find_torch()
    compiler = find_compiler(folder)
    files = emit(plan, laid_out=False)
    csrc = sorted(CSRC.rglob("*.h"))
    digest = hashlib.sha256(f"{compiler.identity} {torch.version}".encode())
    for name, text in [
        *((file.name, file.text.encode()) for file in files),
        *((path.name, path.read_bytes()) for path in csrc),
    ]:
        digest.update(f"{name} {len(text)}\n".encode() + text)
    checked = cache_root() / "checked" / digest.hexdigest()
    if checked.exists():
        return []

    for file in files:
        (folder / file.name).write_text(file.text)
    includes = [f"-I{folder}" for folder in INCLUDE_DIRS]
    for directory in torch.include_dirs:
        includes += ["-isystem", str(directory)]

    # Together, because what takes the time is PyTorch's headers; after the declarations of the calls, so
    # that the definitions must agree with them.
    names = [file.name for file in files if file.name.endswith(".cpp")]
    parts = -(-groups // GROUPS_IN_A_FILE)
    for part in range(parts):
        lines = ["ChipFunctions.h", *names[part::parts]]
        (folder / f"part_{part}.cc").write_text("".join(f'#include "{line}"\n' for line in lines))

    def check(part: int) -> str:
        source = f"part_{part}.cc"
        # With the headers that the build gives generated code.
        options = ["-std=c++20", "-fsyntax-only", "-Wall", "-DAT_PER_OPERATOR_HEADERS"]
        command = [*compiler.command, *options, *includes, source]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr

    with ThreadPoolExecutor(2) as pool:
        said = [text[:2000] for text in pool.map(check, range(parts)) if text]
    if not said:
        checked.parent.mkdir(parents=True, exist_ok=True)
        checked.touch()
    return said


@pytest.fixture(params=["representatives", pytest.param("all", marks=pytest.mark.nightly)])
def check(
    request: pytest.FixtureRequest, describe: Describe, catalogue: Catalogue, tmp_path: Path
) -> Check:
    """Compiles what is generated where a library has ``entry(group)`` for each of ``groups``.

    Returns the plan for all of ``groups``.
    """

    def planned(groups: Sequence[Group], entry: Callable[[Group], str], header: str) -> Plan:
        entries = "\n".join(sorted({entry(group) for group in groups}))
        return resolve(read_backend(describe(entries, header=header), catalogue), catalogue)

    def compiled(groups: Sequence[Group], entry: Callable[[Group], str], header: str = "") -> Plan:
        whole = planned(groups, entry, header)
        part = whole
        if request.param == "representatives":
            groups = representatives(groups, lambda group: features(group, catalogue))
            part = planned(groups, entry, header)
        assert complaints(part, tmp_path, len(groups)) == []
        return whole

    return compiled


def served(name: str | None, catalogue: Catalogue) -> bool:
    """Whether an operator exists and may have a kernel for the device."""
    return name is not None and catalogue.operators[name].composite is not Composite.IMPLICIT


def kernel(name: str | None, more: str = "") -> str:
    """A manifest's entry for the operator ``name``."""
    assert name is not None
    return f"- {{op: {name}, kernel_name: chip::{name.replace('.', '_')}{more}}}"


def test_all_structured_groups(check: Check, catalogue: Catalogue) -> None:
    groups = [group for group in catalogue.groups if group.structured]
    plan = check(groups, lambda group: kernel(group.out, ", structured: true"))
    assert plan.counts()[Route.STRUCTURED] == sum(len([*group.members()]) for group in groups)


def test_all_structured_groups_with_their_own_meta_and_casts(
    check: Check, catalogue: Catalogue
) -> None:
    def entry(group: Group) -> str:
        casts = str(group.iterator).lower()
        return kernel(group.out, f", structured: true, structured_meta: override, casts: {casts}")

    check([group for group in catalogue.groups if group.structured], entry)


def test_all_groups_with_symint(check: Check, catalogue: Catalogue) -> None:
    groups = [
        group
        for group in catalogue.groups
        if any("SymInt" in catalogue.operators[name].schema for _, name in group.members())
    ]
    given = {}
    for index, group in enumerate(groups):
        names = [name for _, name in group.members()]
        if served(name := names[index % len(names)], catalogue):
            given[id(group)] = name
    plan = check(
        [group for group in groups if id(group) in given],
        lambda group: kernel(given[id(group)]),
        "symint: true",
    )
    assert plan.counts()[Route.DERIVED] > 130


@pytest.mark.parametrize(
    ("variant", "least"),
    [
        (lambda group: group.out, 1000),
        pytest.param(lambda group: group.functional, 1100, marks=pytest.mark.nightly),
        pytest.param(lambda group: group.inplace, 500, marks=pytest.mark.nightly),
    ],
    ids=["out", "functional", "in-place"],
)
def test_all_groups_derived_from(
    variant: Callable[[Group], str | None], least: int, check: Check, catalogue: Catalogue
) -> None:
    groups = [group for group in catalogue.groups if served(variant(group), catalogue)]
    plan = check(groups, lambda group: kernel(variant(group)))
    assert plan.counts()[Route.DERIVED] > least


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
    assert complaints(plan, tmp_path, 1) == []
