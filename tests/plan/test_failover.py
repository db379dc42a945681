"""Kernels that refuse at run time: what the plan says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith.description import read_backend
from opsmith.errors import KernelRejected, SyntaxInvalid
from opsmith.plan import resolve
from opsmith.schema import Catalogue
from refusal import refusal


def test_the_plan_says_so(describe: Callable[..., Path], catalogue: Catalogue) -> None:
    path = describe("- {op: mul.out, kernel_name: chip::mul, on_error: fallback}")
    plan = resolve(read_backend(path, catalogue), catalogue)
    for name in ("mul.out", "mul.Tensor", "mul_.Tensor"):
        assert plan.entry(name).why.endswith(
            "; calls that it refuses at run time: the fallback runs them on the CPU"
        )


def test_another_library_gets_them_first(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "backend.yaml"
    path.write_text("backend: gpu\ndriver: cuda_driver\nlibraries: [cudnn, compute]\n")
    plan = resolve(read_backend(path, catalogue), catalogue)
    for name in ("convolution_overrideable", "convolution_backward_overrideable"):
        entry = plan.entry(name)
        assert [each.library for each in entry.chain] == ["cudnn", "compute", "runtime"]
        assert entry.kernel is not None
        assert entry.why.endswith(
            f"; calls that `{entry.kernel.symbol}` refuses at run time go there too"
        )


def test_it_needs_a_fallback(describe: Callable[..., Path], catalogue: Catalogue) -> None:
    path = describe(
        "- {op: mul.out, kernel_name: chip::mul, on_error: fallback}", fallback="{deny: [mul.out]}"
    )
    with pytest.raises(KernelRejected) as error:
        resolve(read_backend(path, catalogue), catalogue)
    folder = path.parent
    assert str(error.value) == (
        f"{folder}/kernels.yaml:5:6: `on_error: fallback` sends calls of `mul.out` to the CPU, but the "
        f"fallback is denied to it ({folder}/backend.yaml:4:19)\n"
        "  remedy: remove `on_error: fallback`, or allow the fallback for the operator"
    )


def test_it_needs_a_kernel(describe: Callable[..., Path], catalogue: Catalogue) -> None:
    path = describe("- {op: mul.Tensor, autograd: chip::mul, on_error: fallback}")
    assert refusal(SyntaxInvalid, read_backend, path, catalogue).endswith(
        "kernels.yaml:5:43: `on_error: fallback` describes a kernel, and none is named\n"
        "  remedy: add `kernel_name: …` here, or remove `on_error: fallback`"
    )
