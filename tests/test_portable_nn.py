"""Portable kernels on a PyTorch device: see ``check_nn.py``, ``check_out.py`` and ``check_shapes.py``."""

from __future__ import annotations

from apart import run_apart


def test_portable_kernels_give_what_the_cpu_gives() -> None:
    run_apart("portable_backend/check_nn.py")


def test_an_out_of_another_dtype_is_treated_as_the_cpu_does() -> None:
    run_apart("portable_backend/check_out.py")


def test_results_are_shaped_as_pytorchs_meta_kernels_shape_them() -> None:
    run_apart("portable_backend/check_shapes.py")
