"""Kernels on lean tensors: what the plan says of them."""

from __future__ import annotations

from pathlib import Path

import torch

from opsmith.description import read_backend
from opsmith.emit import emit
from opsmith.plan import Plan, resolve
from opsmith.plan.meta import meta_functions
from opsmith.schema import Catalogue


def planned(folder: Path, catalogue: Catalogue, *entries: str) -> Plan:
    """The plan of a backend with one library of lean kernels, of these entries."""
    lines = ["library: lean", "abi: executorch", "kernels:", *(f"  - {each}" for each in entries)]
    (folder / "lean.yaml").write_text("\n".join(lines))
    backend = folder / "backend.yaml"
    backend.write_text("backend: chip\ndriver: sim\nlibraries: [lean.yaml]\n")
    return resolve(read_backend(backend, catalogue), catalogue).relative_to(folder)


def test_what_shapes_an_operator_of_aten_is_in_the_plan(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    plan = planned(
        tmp_path, catalogue, "{op: relu.out, kernel_name: chip::relu_out, meta: chip::relu_meta}"
    )
    assert plan.entry("relu").why == (
        "from the kernel of `relu.out`: allocates the result and runs `chip::native::relu_out` "
        "(lean.yaml:4:20) into it; shape and dtype from `chip::relu_meta` (lean.yaml:4:49); for at most 16 "
        "dimensions, others: the fallback runs it on the CPU (backend.yaml:1:1)"
    )
    for name in ("relu", "relu_", "relu.out"):
        meta = plan.entry(name).meta
        assert meta is not None
        assert meta.why == "`chip::relu_meta` shapes the result (lean.yaml:4:49)"


def test_what_pytorch_shapes_in_python_has_a_function_of_opsmiths_whatever_the_library(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    plan = planned(
        tmp_path,
        catalogue,
        "{op: where.self_out, kernel_name: chip::where_out}",
        "{op: add.out, kernel_name: chip::add_out}",
    )
    assert (
        "; shape and dtype from `opsmith::meta_functions::where` (" in plan.entry("where.self").why
    )
    assert plan.entry("add.Tensor").meta is None  # PyTorch's meta function is compiled
    (tmp_path / "aten.yaml").write_text(
        "library: own\nkernels: [{op: where.self_out, kernel_name: chip::where_out}]\n"
    )
    backend = tmp_path / "backend.yaml"
    backend.write_text("backend: chip\ndriver: sim\nlibraries: [aten.yaml]\n")
    plan = resolve(read_backend(backend, catalogue), catalogue)
    meta = plan.entry("where.self").meta
    assert meta is not None and meta.sources == ("opsmith::meta_functions::where",)
    assert not any(
        "meta_functions" in file.text
        for file in emit(plan, laid_out=False)
        if "Native" in file.name
    )


def test_functions_of_opsmiths_are_for_meta_kernels_in_python(catalogue: Catalogue) -> None:
    """A release of PyTorch that compiles one needs no function of opsmith's for it."""
    shaped = [each.operator for each in meta_functions()]
    assert len(set(shaped)) == len(shaped) > 90
    for name in shaped:
        kernels = torch._C._dispatch_dump(f"aten::{name}").splitlines()
        compiled = [line for line in kernels if line.startswith("Meta: ") and ".cpp:" in line]
        assert not compiled, name


def test_a_meta_serves_an_operator_that_has_none_in_pytorch(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    entry = "op: _dirichlet_grad.out, kernel_name: chip::dirichlet_grad_out"
    without = planned(tmp_path, catalogue, f"{{{entry}}}").entry("_dirichlet_grad")
    assert without.kernel is None
    assert (
        "serves ExecuTorch's programs only: `_dirichlet_grad` has no meta kernel, and no `meta:` tells the "
        "result's shape" in without.why
    )
    plan = planned(tmp_path, catalogue, f"{{{entry}, meta: {{same_as: x}}}}")
    assert plan.entry("_dirichlet_grad.out").kernel is not None
    why = plan.entry("_dirichlet_grad").why
    assert "; shape and dtype from `x` (lean.yaml:4:70); for at most 16 dimensions" in why
